// Qkv and Attention.
#include <cstring>

#include "engine/device/cpu/cpu_backend.h"
#include "loaders/config_reader.h"
#include "parallel/base/check.h"

namespace moe::cpu {
namespace {

static_assert(kAttentionBlock == kKvBlockTokens);
constexpr int64_t kSplitTokens = kAttentionSplit * kAttentionBlock;

int64_t RoundUp16(int64_t n) {
  return (n + 15) / 16 * 16;
}

// Positions of one slice that share a pass over K and V.
int64_t TilePositions(const AttentionSpec& spec) {
  return std::max<int64_t>(1, kAttentionRows / (spec.num_heads / spec.num_kv_heads));
}

void NormOne(const OpKernels& ops, const NormSpec& spec, const float* weight, int64_t dim, float* x) {
  NormArgs a;
  a.layer = spec.kind == NormKind::kLayer;
  a.weight_offset = spec.kind == NormKind::kRmsOffset;
  a.eps = spec.eps;
  a.weight = weight;
  a.dim = dim;
  a.x = x;
  a.out_f32 = x;
  ops.norm(a);
}

void NormHeads(const OpKernels& ops, const AttentionSpec& spec, int64_t heads, const float* weight, float* x) {
  if (spec.qk_norm == QkNorm::kNone) return;
  const int64_t parts = spec.qk_norm == QkNorm::kPerHead ? heads : 1;
  const int64_t dim = spec.qk_norm == QkNorm::kPerHead ? spec.head_dim : heads * spec.head_dim;
  for (int64_t i = 0; i < parts; ++i) NormOne(ops, spec.qk_norm_spec, weight, dim, x + i * dim);
}

// Writes one token's key into its block of 32: [d / 2][32 tokens][2] in bf16, an odd last d as [32]; [d][32] in
// float32. key: [head_dim] in act.
void StoreKeyUnits(const char* key, int64_t head_dim, Element act, int64_t token, char* block) {
  constexpr int64_t kUnit = 4;  // a float32 or a pair of bf16
  const int64_t units = act == Element::kF32 ? head_dim : head_dim / 2;
  for (int64_t u = 0; u < units; ++u) {
    std::memcpy(block + (u * kAttentionBlock + token) * kUnit, key + u * kUnit, kUnit);
  }
  if (act != Element::kF32 && head_dim % 2 != 0) {
    std::memcpy(block + units * kAttentionBlock * kUnit + token * 2, key + units * kUnit, 2);
  }
}

}  // namespace

void CpuBackend::Qkv(const QkvOp& op) {
  const AttentionSpec& spec = *op.spec;
  const int64_t kv_heads = spec.share_kv_with_layer < 0 ? spec.num_kv_heads : 0;
  const int64_t q_dim = spec.num_heads * spec.head_dim;
  const int64_t k_dim = kv_heads * spec.head_dim;
  const int64_t v_dim = kv_heads * spec.v_head_dim;
  const int64_t width = q_dim + k_dim + v_dim;
  const int64_t half = spec.rope ? spec.rope->rotary_dim / 2 : 0;
  const bool interleaved = spec.rope && spec.rope->layout == RopeSpec::Layout::kInterleaved;
  const int64_t size = ElementSize(act_);
  int64_t count = 0;
  for (const MixerSlice& s : op.slices) count += s.count;
  // Tasks of up to 16 positions of one slice.
  constexpr int64_t kPositions = 16;
  int64_t tasks = 0;
  for (const MixerSlice& s : op.slices) tasks += (s.count + kPositions - 1) / kPositions;
  float* scratch = per_thread_.GetAs<float>(static_cast<size_t>(threads_ * RoundUp16(width)));
  RunTasks(tasks, static_cast<double>(count * width) / 2, [&](int64_t task, int thread) {
    const MixerSlice* slice = op.slices.data();
    int64_t skip = task;
    for (; skip >= (slice->count + kPositions - 1) / kPositions; ++slice) {
      skip -= (slice->count + kPositions - 1) / kPositions;
    }
    float* q = scratch + thread * RoundUp16(width);
    float* k = q + q_dim;
    float* v = k + k_dim;
    const auto norm = [&] {
      NormHeads(*ops_, spec, spec.num_heads, op.q_norm, q);
      if (kv_heads > 0) NormHeads(*ops_, spec, kv_heads, op.k_norm, k);
    };
    const int64_t end = std::min(slice->count, (skip + 1) * kPositions);
    for (int64_t i = skip * kPositions; i < end; ++i) {
      const int64_t row = slice->row0 + i;
      const int64_t position = slice->first_pos + i;
      std::copy_n(op.qkv + row * op.stride, width, q);
      if (spec.clip_qkv > 0 && !spec.clip_after_qk_norm) ops_->clamp(q, width, spec.clip_qkv);
      if (!spec.qk_norm_after_rope) norm();
      if (spec.clip_qkv > 0 && spec.clip_after_qk_norm) ops_->clamp(q, width, spec.clip_qkv);
      for (int64_t h = 0; half > 0 && h < spec.num_heads + kv_heads; ++h) {
        ops_->rotate(q + h * spec.head_dim, half, interleaved, op.cos + row * half, op.sin + row * half);
      }
      if (spec.qk_norm_after_rope) norm();
      const float scale = spec.query_scale_after_cap ? 1 : PositionScaleAt(spec.query_scale, position);
      if (scale != 1) ops_->scale(q, q_dim, scale);
      for (int64_t h = 0; spec.v_norm.present() && h < kv_heads; ++h) {
        NormOne(*ops_, spec.v_norm, op.v_norm, spec.v_head_dim, v + h * spec.v_head_dim);
      }
      if (spec.value_scale != 1 && v_dim > 0) ops_->scale(v, v_dim, spec.value_scale);
      ops_->round(q, q_dim, reinterpret_cast<char*>(op.q_out) + row * q_dim * size, act_);
      const int64_t block = slice->blocks[position / kKvBlockTokens];
      const int64_t token = position % kKvBlockTokens;
      for (int64_t h = 0; h < kv_heads; ++h) {
        const int64_t at = (block * spec.num_kv_heads + h) * kKvBlockTokens;
        // q is in the output by now: its place holds the rounded key.
        char* key = reinterpret_cast<char*>(q);
        ops_->round(k + h * spec.head_dim, spec.head_dim, key, act_);
        StoreKeyUnits(key, spec.head_dim, act_, token, reinterpret_cast<char*>(op.kv.k) + at * spec.head_dim * size);
        ops_->round(v + h * spec.v_head_dim, spec.v_head_dim,
                    reinterpret_cast<char*>(op.kv.v) + (at + token) * spec.v_head_dim * size, act_);
      }
    }
  });
}

void CpuBackend::StoreKey(const float* key, int64_t head_dim, int64_t token, std::byte* block) {
  std::byte rounded[2 * limits::kMaxHeadDim * 4];  // the latent key is two of the largest heads
  ops_->round(key, head_dim, reinterpret_cast<char*>(rounded), act_);
  StoreKeyUnits(reinterpret_cast<const char*>(rounded), head_dim, act_, token, reinterpret_cast<char*>(block));
}

void CpuBackend::StoreValue(const float* value, int64_t v_head_dim, int64_t token, std::byte* block) {
  ops_->round(value, v_head_dim, reinterpret_cast<char*>(block) + token * v_head_dim * ElementSize(act_), act_);
}

void CpuBackend::LoadKey(const std::byte* block, int64_t head_dim, int64_t token, float* key) const {
  const auto* from = reinterpret_cast<const char*>(block);
  if (act_ == Element::kF32) {
    for (int64_t d = 0; d < head_dim; ++d) std::memcpy(key + d, from + (d * kAttentionBlock + token) * 4, 4);
    return;
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    const bool last_odd = d + 1 == head_dim && head_dim % 2 != 0;
    const int64_t at =
        last_odd ? d * kAttentionBlock * 2 + token * 2 : (d / 2 * kAttentionBlock + token) * 4 + d % 2 * 2;
    bf16_t bits;
    std::memcpy(&bits, from + at, sizeof(bits));
    key[d] = Bf16ToFloat(bits);
  }
}

void CpuBackend::LoadValue(const std::byte* block, int64_t v_head_dim, int64_t token, float* value) const {
  ops_->widen(reinterpret_cast<const char*>(block) + token * v_head_dim * ElementSize(act_), act_, v_head_dim, 1.0f,
              value);
}

void CpuBackend::ForTasks(int64_t count, double work, const std::function<void(int64_t)>& fn) {
  // Plain code does about one multiply-add a nanosecond.
  RunTasks(count, work, [&](int64_t task, int) { fn(task); });
}

void CpuBackend::Attention(const AttentionOp& op) {
  if (op.selection != nullptr) {
    SelectedAttention(op);
    return;
  }
  const AttentionSpec& spec = *op.spec;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  const int64_t positions = TilePositions(spec);
  const int64_t size = ElementSize(act_);
  // A tile: some positions of one slice and one K/V head. They are numbered slice by slice, K/V head by K/V head, the
  // last positions (the longest contexts) first, so that the short ones fill the gaps at the end.
  attention_tiles_.clear();
  double work_ns = 0;
  int64_t max_splits = 1;
  for (const MixerSlice& slice : op.slices) {
    const int64_t parts = (slice.count + positions - 1) / positions;
    for (int64_t part = parts - 1; part >= 0; --part) {
      AttentionPart t;
      t.slice = &slice;
      t.first = part * positions;
      t.count = std::min(positions, slice.count - t.first);
      const int64_t last_pos = slice.first_pos + t.first + t.count - 1;
      int64_t first_key = spec.window > 0 ? std::max<int64_t>(0, slice.first_pos + t.first - spec.window + 1) : 0;
      if (spec.chunk > 0) first_key = std::max(first_key, (slice.first_pos + t.first) / spec.chunk * spec.chunk);
      t.split_begin = first_key / kSplitTokens;
      t.split_end = last_pos / kSplitTokens + 1;
      max_splits = std::max(max_splits, t.split_end - t.split_begin);
      // 2 · 2 · d multiply-adds per key and query row at some 30 a nanosecond, or K and V from memory.
      const double keys = static_cast<double>(last_pos + 1 - first_key);
      const double dims = static_cast<double>(spec.head_dim + spec.v_head_dim);
      work_ns += keys * dims * (static_cast<double>(t.count * group) / 30 + static_cast<double>(size) / 12) *
                 static_cast<double>(spec.num_kv_heads);
      for (t.kv_head = 0; t.kv_head < spec.num_kv_heads; ++t.kv_head) attention_tiles_.push_back(t);
    }
  }
  const int64_t rows = positions * group;
  const int64_t floats = RoundUp16(attention_.scratch_floats(rows, spec.head_dim, spec.v_head_dim));
  float* scratch = per_thread_.GetAs<float>(static_cast<size_t>(threads_ * floats));

  std::vector<float> score_scales;  // by row
  for (const MixerSlice& slice : op.slices) {
    if (!spec.query_scale_after_cap) break;
    if (const auto end = static_cast<size_t>(slice.row0 + slice.count); score_scales.size() < end) {
      score_scales.resize(end);
    }
    for (int64_t i = 0; i < slice.count; ++i) {
      score_scales[static_cast<size_t>(slice.row0 + i)] = PositionScaleAt(spec.query_scale, slice.first_pos + i);
    }
  }

  auto make = [&](const AttentionPart& part, int thread) {
    AttentionTile t;
    const int64_t row = part.slice->row0 + part.first;
    t.q_row_bytes = spec.num_heads * spec.head_dim * size;
    t.q = reinterpret_cast<const char*>(op.q) + row * t.q_row_bytes + part.kv_head * group * spec.head_dim * size;
    t.out_row_bytes = spec.num_heads * spec.v_head_dim * size;
    t.out = reinterpret_cast<char*>(op.out_act) + row * t.out_row_bytes + part.kv_head * group * spec.v_head_dim * size;
    t.act = act_;
    t.count = part.count;
    t.group = group;
    t.first_pos = part.slice->first_pos + part.first;
    t.head_dim = spec.head_dim;
    t.v_head_dim = spec.v_head_dim;
    t.scale = spec.scale;
    t.logit_cap = spec.logit_cap;
    if (!score_scales.empty()) t.score_scale = score_scales.data() + row;
    if (op.sinks != nullptr) t.sinks = op.sinks + part.kv_head * group;
    if (op.relative != nullptr) {
      const RelativeBiasSpec& relative = *spec.relative_bias;
      t.relative = op.relative + row * op.relative_stride + part.kv_head * group * relative.dim;
      t.relative_stride = op.relative_stride;
      t.relative_dim = relative.dim;
      t.relative_extent = relative.extent;
      t.relative_bias = op.relative_bias;
    }
    t.window = spec.window;
    t.chunk = spec.chunk;
    t.blocks = part.slice->blocks.data();
    t.k_block_bytes = spec.num_kv_heads * kKvBlockTokens * spec.head_dim * size;
    t.v_block_bytes = spec.num_kv_heads * kKvBlockTokens * spec.v_head_dim * size;
    t.k = reinterpret_cast<const char*>(op.kv.k) + part.kv_head * kKvBlockTokens * spec.head_dim * size;
    if (op.kv.v != nullptr) {
      t.v = reinterpret_cast<const char*>(op.kv.v) + part.kv_head * kKvBlockTokens * spec.v_head_dim * size;
    }
    t.split_begin = part.split_begin;
    t.split_end = part.split_end;
    t.scratch = scratch + thread * floats;
    return t;
  };

  const auto tiles = static_cast<int64_t>(attention_tiles_.size());
  const bool split = max_splits > 1 && threads_ > 1 && tiles < 4 * threads_ && work_ns >= kInlineNs;
  if (!split) {
    RunTasks(tiles, work_ns, [&](int64_t i, int thread) { attention_.attend(make(attention_tiles_[i], thread)); });
    return;
  }
  // Few tiles with long contexts: the splits of a tile go to different threads, their partial sums are merged after.
  const int64_t pieces = std::min(max_splits, (4 * threads_ + tiles - 1) / tiles);
  const int64_t per_split = rows * (RoundUp16(spec.v_head_dim) + 16);
  float* partials = partials_.GetAs<float>(static_cast<size_t>(tiles * max_splits * per_split));
  RunTasks(tiles * pieces, work_ns, [&](int64_t i, int thread) {
    const AttentionPart& part = attention_tiles_[i / pieces];
    AttentionTile t = make(part, thread);
    const int64_t splits = part.split_end - part.split_begin;
    t.split_begin = part.split_begin + splits * (i % pieces) / pieces;
    t.split_end = part.split_begin + splits * (i % pieces + 1) / pieces;
    // A tile's own rows × its splits, packed: the kernel steps by its count of rows.
    const int64_t own_rows = t.count * t.group;
    t.partials = partials + i / pieces * max_splits * per_split +
                 (t.split_begin - part.split_begin) * own_rows * (RoundUp16(spec.v_head_dim) + 16);
    if (t.split_begin < t.split_end) attention_.attend(t);
  });
  RunTasks(tiles, 0, [&](int64_t i, int thread) {
    AttentionTile t = make(attention_tiles_[i], thread);
    t.partials = partials + i * max_splits * per_split;
    attention_.merge(t);
  });
}

}  // namespace moe::cpu
