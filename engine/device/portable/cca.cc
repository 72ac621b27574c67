#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/portable/slice_rows.h"

namespace moe {
namespace {

// x [dim] → factor * √dim * x / |x|.
void ScaleToLength(int64_t dim, float factor, float* x) {
  float squares = 0;
  for (int64_t d = 0; d < dim; ++d) squares += x[d] * x[d];
  const float length = std::max(std::sqrt(squares), std::numeric_limits<float>::epsilon());
  const float scale = std::sqrt(static_cast<float>(dim)) / length * factor;
  for (int64_t d = 0; d < dim; ++d) x[d] *= scale;
}

}  // namespace

void PortableBackend::Cca(const CcaOp& op) {
  const AttentionSpec& spec = *op.spec;
  const int64_t dim = spec.head_dim;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  const int64_t q_dim = spec.num_heads * dim;
  const int64_t k_dim = spec.num_kv_heads * dim;
  const int64_t width = q_dim + 2 * k_dim;
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const auto count = static_cast<int64_t>(rows.size());
  ForTasks(count, static_cast<double>(6 * count * width), [&](int64_t task) {
    const SliceRow& at = rows[static_cast<size_t>(task)];
    const float* q_in = op.q + at.row * op.stride;
    const float* k_in = op.k + at.row * op.stride;
    const float* conv = op.conv + at.row * (q_dim + k_dim);
    float* q = op.out + at.row * width;
    float* k = q + q_dim;
    float* v = k + k_dim;
    for (int64_t g = 0; g < spec.num_kv_heads; ++g) {
      float* k_head = k + g * dim;
      std::fill_n(k_head, dim, 0.0f);
      for (int64_t h = g * group; h < (g + 1) * group; ++h) {
        for (int64_t d = 0; d < dim; ++d) {
          const float mean = (q_in[h * dim + d] + k_in[g * dim + d]) * 0.5f;
          q[h * dim + d] = conv[h * dim + d] + mean;
          k_head[d] += mean;
        }
        ScaleToLength(dim, 1.0f, q + h * dim);
      }
      for (int64_t d = 0; d < dim; ++d) {
        k_head[d] = conv[q_dim + g * dim + d] + k_head[d] / static_cast<float>(group);
      }
      ScaleToLength(dim, op.key_scale[g], k_head);
    }
    const int64_t half = k_dim / 2;
    std::copy_n(op.v + at.row * op.stride, half, v);
    const bool first = at.row == at.slice->row0;
    std::copy_n(first ? at.slice->state : op.v_delayed + (at.row - 1) * op.stride, half, v + half);
  });
}

}  // namespace moe
