#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/device/reference/reference_math.h"
#include "engine/device/reference/reference_mixers.h"

namespace moe::reference {
namespace {

// Bytes from the start of a cache tensor to (position, head) of a sequence.
int64_t CacheOffset(const MixerSlice& slice, int64_t position, int64_t head, int64_t num_kv_heads, int64_t dim,
                    DType act) {
  const int64_t block = slice.blocks[position / kKvBlockTokens];
  const int64_t token = position % kKvBlockTokens;
  return (((block * num_kv_heads + head) * kKvBlockTokens + token) * dim) * static_cast<int64_t>(DTypeSize(act));
}

void NormHeads(const AttentionSpec& spec, int64_t heads, const float* weight, float* x) {
  if (spec.qk_norm == QkNorm::kPerHead) {
    for (int64_t h = 0; h < heads; ++h) {
      float* head = x + h * spec.head_dim;
      NormRow(spec.qk_norm_spec, head, spec.head_dim, weight, nullptr, head);
    }
  } else if (spec.qk_norm == QkNorm::kFullWidth) {
    NormRow(spec.qk_norm_spec, x, heads * spec.head_dim, weight, nullptr, x);
  }
}

// What head h of row r adds to the score of a key so many positions back.
float RelativeBias(const AttentionOp& op, int64_t r, int64_t h, int64_t distance) {
  if (op.relative == nullptr || distance >= op.spec->relative_bias->extent) return 0;
  const RelativeBiasSpec& spec = *op.spec->relative_bias;
  const float* x = op.relative + r * op.relative_stride + h * spec.dim;
  const float* bias = op.relative_bias + kKvBlockTokens + spec.extent - 1 - distance;
  float sum = 0;
  for (int64_t d = 0; d < spec.dim; ++d) sum += x[d] * bias[d * (spec.extent + 2 * kKvBlockTokens)];
  return sum;
}

}  // namespace

void Qkv(const QkvOp& op, DType act) {
  const AttentionSpec& spec = *op.spec;
  const int64_t kv_heads = spec.share_kv_with_layer < 0 ? spec.num_kv_heads : 0;
  const int64_t q_dim = spec.num_heads * spec.head_dim;
  const int64_t k_dim = kv_heads * spec.head_dim;
  const int64_t v_dim = kv_heads * spec.v_head_dim;
  const int64_t half = spec.rope ? spec.rope->rotary_dim / 2 : 0;
  const auto element = static_cast<int64_t>(DTypeSize(act));
  std::vector<float> row(q_dim + k_dim + v_dim);
  for (const MixerSlice& slice : op.slices) {
    for (int64_t i = 0; i < slice.count; ++i) {
      const int64_t r = slice.row0 + i;
      const int64_t position = slice.first_pos + i;
      std::copy_n(op.qkv + r * op.stride, row.size(), row.begin());
      const auto clip = [&] {
        for (float& x : row) {
          if (spec.clip_qkv > 0) x = std::clamp(x, -spec.clip_qkv, spec.clip_qkv);
        }
      };
      float* q = row.data();
      float* k = q + q_dim;
      float* v = k + k_dim;
      const auto norm = [&] {
        NormHeads(spec, spec.num_heads, op.q_norm, q);
        if (kv_heads > 0) NormHeads(spec, kv_heads, op.k_norm, k);
      };
      if (!spec.clip_after_qk_norm) clip();
      if (!spec.qk_norm_after_rope) norm();
      if (spec.clip_after_qk_norm) clip();
      for (int64_t h = 0; half > 0 && h < spec.num_heads + kv_heads; ++h) {
        RotateHead(spec.rope->layout, op.cos + r * half, op.sin + r * half, half, q + h * spec.head_dim);
      }
      if (spec.qk_norm_after_rope) norm();
      const float query_scale = spec.query_scale_after_cap ? 1 : PositionScaleAt(spec.query_scale, position);
      for (int64_t d = 0; d < q_dim; ++d) q[d] *= query_scale;
      for (int64_t h = 0; h < kv_heads; ++h) {
        float* head = v + h * spec.v_head_dim;
        NormRow(spec.v_norm, head, spec.v_head_dim, op.v_norm, nullptr, head);
        for (int64_t d = 0; d < spec.v_head_dim; ++d) head[d] *= spec.value_scale;
      }
      for (int64_t d = 0; d < q_dim; ++d) StoreAct(act, op.q_out + r * q_dim * element, d, q[d]);
      for (int64_t h = 0; h < kv_heads; ++h) {
        std::byte* k_cache = op.kv.k + CacheOffset(slice, position, h, spec.num_kv_heads, spec.head_dim, act);
        for (int64_t d = 0; d < spec.head_dim; ++d) StoreAct(act, k_cache, d, k[h * spec.head_dim + d]);
        std::byte* v_cache = op.kv.v + CacheOffset(slice, position, h, spec.num_kv_heads, spec.v_head_dim, act);
        for (int64_t d = 0; d < spec.v_head_dim; ++d) StoreAct(act, v_cache, d, v[h * spec.v_head_dim + d]);
      }
    }
  }
}

void Attention(const AttentionOp& op, DType act) {
  const AttentionSpec& spec = *op.spec;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  const auto element = static_cast<int64_t>(DTypeSize(act));
  std::vector<float> score;
  std::vector<float> sum(spec.v_head_dim);
  for (const MixerSlice& slice : op.slices) {
    for (int64_t i = 0; i < slice.count; ++i) {
      const int64_t r = slice.row0 + i;
      const int64_t position = slice.first_pos + i;
      int64_t first = spec.window > 0 ? std::max<int64_t>(0, position - spec.window + 1) : 0;
      if (spec.chunk > 0) first = std::max(first, position / spec.chunk * spec.chunk);
      for (int64_t h = 0; h < spec.num_heads; ++h) {
        const std::byte* q = op.q + (r * spec.num_heads + h) * spec.head_dim * element;
        score.assign(position - first + 1, 0.0f);
        float max = -std::numeric_limits<float>::infinity();
        for (int64_t j = first; j <= position; ++j) {
          const std::byte* k = op.kv.k + CacheOffset(slice, j, h / group, spec.num_kv_heads, spec.head_dim, act);
          float dot = 0;
          for (int64_t d = 0; d < spec.head_dim; ++d) dot += LoadAct(act, q, d) * LoadAct(act, k, d);
          score[j - first] = dot * spec.scale + RelativeBias(op, r, h, position - j);
          if (spec.logit_cap > 0) score[j - first] = spec.logit_cap * std::tanh(score[j - first] / spec.logit_cap);
          if (spec.query_scale_after_cap) score[j - first] *= PositionScaleAt(spec.query_scale, position);
          max = std::max(max, score[j - first]);
        }
        if (op.sinks != nullptr) max = std::max(max, op.sinks[h]);
        float denominator = op.sinks == nullptr ? 0.0f : std::exp(op.sinks[h] - max);
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int64_t j = first; j <= position; ++j) {
          const float p = std::exp(score[j - first] - max);
          denominator += p;
          const std::byte* v =
              op.kv.v == nullptr ? op.kv.k + CacheOffset(slice, j, h / group, spec.num_kv_heads, spec.head_dim, act)
                                 : op.kv.v + CacheOffset(slice, j, h / group, spec.num_kv_heads, spec.v_head_dim, act);
          for (int64_t d = 0; d < spec.v_head_dim; ++d) sum[d] += p * LoadAct(act, v, d);
        }
        std::byte* out = op.out_act + (r * spec.num_heads + h) * spec.v_head_dim * element;
        for (int64_t d = 0; d < spec.v_head_dim; ++d) StoreAct(act, out, d, sum[d] / denominator);
      }
    }
  }
}

}  // namespace moe::reference
