#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {
namespace {

// The norm of one row over `parts` equal slices of it.
void NormSlices(const NormSpec& spec, const float* weight, int64_t parts, int64_t part, bool same_weight, float* row) {
  NormSpec one = spec;
  one.groups = 1;
  for (int64_t g = 0; g < parts; ++g) {
    const float* w = weight == nullptr || same_weight ? weight : weight + g * part;
    reference::NormRow(one, row + g * part, part, w, nullptr, row + g * part);
  }
}

// q and k of one row: norm, rotation, the query's factor.
void PrepareHeads(const LightningOp& op, int64_t row, const float* weight, float scale, float* x) {
  const LightningSpec& spec = *op.spec;
  const int64_t width = spec.num_heads * spec.head_dim;
  if (spec.qk_norm == QkNorm::kPerHead) {
    NormSlices(spec.qk_norm_spec, weight, spec.num_heads, spec.head_dim, true, x);
  } else if (spec.qk_norm == QkNorm::kFullWidth) {
    NormSlices(spec.qk_norm_spec, weight, 1, width, true, x);
  }
  if (spec.rope) {
    const int64_t half = spec.rope->rotary_dim / 2;
    for (int64_t h = 0; h < spec.num_heads; ++h) {
      reference::RotateHead(spec.rope->layout, op.cos + row * half, op.sin + row * half, half, x + h * spec.head_dim);
    }
  }
  for (int64_t i = 0; i < width; ++i) x[i] *= scale;
}

// One head of one slice: M = r M + k vᵀ, o = Mᵀ q; o takes the place of q.
void RunHead(const LightningOp& op, const MixerSlice& slice, int64_t head, float* qkv) {
  const LightningSpec& spec = *op.spec;
  const int64_t dim = spec.head_dim;
  const int64_t width = spec.num_heads * dim;
  const auto keep = static_cast<float>(std::exp(-spec.slopes[static_cast<size_t>(head)]));
  float* state = slice.state + head * dim * dim;
  std::vector<float> out(static_cast<size_t>(dim));
  for (int64_t i = 0; i < slice.count; ++i) {
    float* q = qkv + (slice.row0 + i) * 3 * width + head * dim;
    const float* k = q + width;
    const float* v = k + width;
    std::fill(out.begin(), out.end(), 0.0f);
    float* sum = out.data();
    for (int64_t a = 0; a < dim; ++a) {
      float* m = state + a * dim;
      const float key = k[a];
      const float query = q[a];
      for (int64_t b = 0; b < dim; ++b) {
        m[b] = keep * m[b] + key * v[b];
        sum[b] += m[b] * query;
      }
    }
    std::copy(out.begin(), out.end(), q);
  }
}

void WriteRow(const LightningOp& op, DType act, int64_t row, float* o) {
  const LightningSpec& spec = *op.spec;
  const int64_t width = spec.num_heads * spec.head_dim;
  if (spec.norm.present()) NormSlices(spec.norm, op.norm, spec.norm.groups, width / spec.norm.groups, false, o);
  const float* gate = op.gate + row * op.gate_stride;
  std::byte* out = op.out_act + row * width * static_cast<int64_t>(DTypeSize(act));
  for (int64_t i = 0; i < width; ++i) reference::StoreAct(act, out, i, o[i] * reference::Sigmoid(gate[i]));
}

}  // namespace

void PortableBackend::Lightning(const LightningOp& op) {
  const LightningSpec& spec = *op.spec;
  const int64_t heads = spec.num_heads;
  const int64_t width = heads * spec.head_dim;
  const DType act = act_dtype();
  const auto rows = static_cast<double>(op.rows);
  std::vector<float> qkv(static_cast<size_t>(op.rows * 3 * width));
  ForTasks(op.rows, rows * static_cast<double>(3 * width * (spec.silu_qkv ? 20 : 4)), [&](int64_t row) {
    float* out = qkv.data() + row * 3 * width;
    const float* in = op.qkv + row * op.qkv_stride;
    for (int64_t i = 0; i < 3 * width; ++i) out[i] = spec.silu_qkv ? reference::Silu(in[i]) : in[i];
    PrepareHeads(op, row, op.q_norm, spec.query_scale, out);
    PrepareHeads(op, row, op.k_norm, 1.0f, out + width);
  });
  const double head_work = rows * static_cast<double>(3 * width * spec.head_dim);
  ForTasks(static_cast<int64_t>(op.slices.size()) * heads, head_work,
           [&](int64_t task) { RunHead(op, op.slices[static_cast<size_t>(task / heads)], task % heads, qkv.data()); });
  ForTasks(op.rows, rows * static_cast<double>(width * 20),
           [&](int64_t row) { WriteRow(op, act, row, qkv.data() + row * 3 * width); });
}

}  // namespace moe
