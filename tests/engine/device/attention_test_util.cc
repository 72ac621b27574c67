#include "tests/engine/device/attention_test_util.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/device/cpu/cpu_backend.h"
#include "tests/engine/device/amx_attention_model.h"

namespace moe::device_test {

std::vector<AttentionPath> AttentionPaths() {
  std::vector<AttentionPath> paths;
  for (const CpuIsa isa : AvailableIsas()) paths.push_back({CpuIsaName(isa), isa});
  if (CpuIsaAvailable(CpuIsa::kAvx512Bf16)) paths.push_back({"model of amx", CpuIsa::kAvx512Bf16, true});
  return paths;
}

std::unique_ptr<Backend> MakeCpu(const AttentionPath& path, DType act, WorkerPool* pool) {
  if (!path.amx_model || act != DType::kBF16) return MakeCpu(path.isa, act, pool);
  const cpu::AttentionKernels attention = AmxModelAttention();
  return std::make_unique<cpu::CpuBackend>(path.isa, act, pool, &attention);
}

AttentionSpec MakeSpec(const AttentionCase& c) {
  AttentionSpec spec;
  spec.num_heads = c.heads;
  spec.num_kv_heads = c.kv_heads;
  spec.head_dim = c.head_dim;
  spec.v_head_dim = c.v_head_dim;
  spec.window = c.window;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  return spec;
}

Cache::Cache(const AttentionCase& c, DType act_dtype, int64_t sequences, int64_t tokens) : act(act_dtype) {
  const int64_t per_sequence = (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
  const int64_t count = sequences * per_sequence;
  const auto size = static_cast<int64_t>(DTypeSize(act));
  // 0xffff and 0xffffffff are NaNs.
  k.assign(static_cast<size_t>(count * c.kv_heads * kKvBlockTokens * c.head_dim * size), std::byte{0xff});
  v.assign(static_cast<size_t>(count * c.kv_heads * kKvBlockTokens * c.v_head_dim * size), std::byte{0xff});
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(41));
  for (int64_t s = 0; s < sequences; ++s) {
    blocks.emplace_back(order.begin() + s * per_sequence, order.begin() + (s + 1) * per_sequence);
  }
  layer = {.k = k.data(), .v = v.data(), .num_blocks = count};
}

std::vector<std::byte> KeysByToken(const Cache& cache, const AttentionCase& c, bool reference) {
  if (reference) return cache.k;
  const auto size = static_cast<int64_t>(DTypeSize(cache.act));
  const int64_t block_bytes = kKvBlockTokens * c.head_dim * size;
  std::vector<std::byte> out(cache.k.size());
  for (int64_t b = 0; b < static_cast<int64_t>(out.size()) / block_bytes; ++b) {
    for (int64_t t = 0; t < kKvBlockTokens; ++t) {
      for (int64_t d = 0; d < c.head_dim; ++d) {
        int64_t from = (d * kKvBlockTokens + t) * size;
        if (cache.act == DType::kBF16 && d / 2 * 2 + 1 < c.head_dim) {
          from = (d / 2 * kKvBlockTokens + t) * 4 + d % 2 * 2;
        }
        std::copy_n(&cache.k[b * block_bytes + from], size, &out[b * block_bytes + (t * c.head_dim + d) * size]);
      }
    }
  }
  return out;
}

std::vector<MixerSlice> Slices(const Cache& cache, const std::vector<SliceOf>& parts) {
  std::vector<MixerSlice> slices;
  int64_t row = 0;
  for (const SliceOf& p : parts) {
    MixerSlice s;
    s.row0 = row;
    s.first_pos = p.first;
    s.count = p.count;
    s.blocks = cache.blocks[p.sequence];
    slices.push_back(s);
    row += p.count;
  }
  return slices;
}

Inputs::Inputs(const AttentionCase& c, int64_t sequences, int64_t num_tokens, uint32_t seed, bool q_only)
    : tokens(num_tokens) {
  Random random(seed);
  width = c.heads * c.head_dim + (q_only ? 0 : c.kv_heads * (c.head_dim + c.v_head_dim));
  qkv = random.Floats(sequences * tokens * width);
  cos = random.Floats(tokens * c.head_dim / 2);
  sin = random.Floats(tokens * c.head_dim / 2);
  q_norm = random.Floats(c.heads * c.head_dim);
  k_norm = random.Floats(c.heads * c.head_dim);
  v_norm = random.Floats(c.v_head_dim);
  sinks = random.Floats(c.heads, 2.0f);
}

StepOutput RunStep(Backend& backend, const AttentionSpec& spec, const Inputs& in, Cache& cache,
                   const std::vector<SliceOf>& parts, const KeySelection* selection) {
  const DType act = cache.act;
  const std::vector<MixerSlice> slices = Slices(cache, parts);
  const int64_t half = spec.rope ? spec.rope->rotary_dim / 2 : 0;
  std::vector<float> qkv, cos, sin;
  int64_t rows = 0;
  for (const SliceOf& p : parts) {
    const auto begin = in.qkv.begin() + (p.sequence * in.tokens + p.first) * in.width;
    qkv.insert(qkv.end(), begin, begin + p.count * in.width);
    cos.insert(cos.end(), in.cos.begin() + p.first * half, in.cos.begin() + (p.first + p.count) * half);
    sin.insert(sin.end(), in.sin.begin() + p.first * half, in.sin.begin() + (p.first + p.count) * half);
    rows += p.count;
  }
  std::vector<std::byte> q(static_cast<size_t>(rows * spec.num_heads * spec.head_dim) * DTypeSize(act));
  std::vector<std::byte> out(static_cast<size_t>(rows * spec.num_heads * spec.v_head_dim) * DTypeSize(act));
  QkvOp op;
  op.spec = &spec;
  op.qkv = qkv.data();
  op.stride = in.width;
  op.rows = rows;
  op.q_norm = spec.qk_norm_spec.weight ? in.q_norm.data() : nullptr;
  op.k_norm = spec.qk_norm_spec.weight ? in.k_norm.data() : nullptr;
  op.v_norm = spec.v_norm.weight ? in.v_norm.data() : nullptr;
  op.cos = half > 0 ? cos.data() : nullptr;
  op.sin = half > 0 ? sin.data() : nullptr;
  op.slices = slices;
  op.kv = cache.layer;
  op.q_out = q.data();
  backend.Qkv(op);
  backend.Attention({.spec = &spec,
                     .q = q.data(),
                     .sinks = spec.sinks ? in.sinks.data() : nullptr,
                     .selection = selection,
                     .slices = slices,
                     .kv = cache.layer,
                     .out_act = out.data()});
  return {ToFloats(act, q), ToFloats(act, out)};
}

}  // namespace moe::device_test
