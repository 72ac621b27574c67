#include <algorithm>
#include <cmath>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {
namespace {

using reference::Sigmoid;

constexpr int64_t kMaxStreams = HyperSpec::kMaxStreams;
constexpr int64_t kDims = 64;  // worked on at once

// comb [n, n] holds logits; → softmax by rows + eps, then made doubly stochastic (Sinkhorn and Knopp).
void Sinkhorn(int64_t n, int64_t rounds, float eps, float* comb) {
  for (int64_t i = 0; i < n; ++i) {
    float* row = comb + i * n;
    const float max = *std::max_element(row, row + n);
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      row[k] = std::exp(row[k] - max);
      sum += row[k];
    }
    for (int64_t k = 0; k < n; ++k) row[k] = row[k] / sum + eps;
  }
  // `step` from one of a line to the next, `next` from line to line.
  const auto normalise = [&](int64_t step, int64_t next) {
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += comb[i * next + k * step];
      for (int64_t k = 0; k < n; ++k) comb[i * next + k * step] /= sum + eps;
    }
  };
  normalise(n, 1);
  for (int64_t round = 1; round < rounds; ++round) {
    normalise(1, n);
    normalise(n, 1);
  }
}

// row = Σ_i pre_i · stream_i.
void Collapse(const float* pre, const float* streams, int64_t n, int64_t dim, float* out) {
  for (int64_t d = 0; d < dim; ++d) out[d] = pre[0] * streams[d];
  for (int64_t i = 1; i < n; ++i) {
    const float* stream = streams + i * dim;
    for (int64_t d = 0; d < dim; ++d) out[d] += pre[i] * stream[d];
  }
}

void ReadMixed(const HyperReadOp& op, int64_t row) {
  const HyperSpec& spec = *op.spec;
  const int64_t n = spec.streams;
  const float* mixes = op.mixes + row * (op.post == nullptr ? n : spec.mixes());
  float pre[kMaxStreams] = {};
  for (int64_t i = 0; i < n; ++i) pre[i] = Sigmoid(mixes[i] * op.scale[0] + op.base[i]) + spec.eps;
  Collapse(pre, op.streams + row * n * op.dim, n, op.dim, op.out + row * op.dim);
  if (op.post == nullptr) return;
  const bool comb = spec.kind == HyperSpec::Kind::kManifold;
  float* post = op.post + row * n;
  for (int64_t i = 0; i < n; ++i) {
    post[i] = spec.post_scale * Sigmoid(mixes[n + i] * op.scale[1] + op.base[n + i]) + (comb ? 0.0f : spec.eps);
  }
  if (!comb) return;
  float* matrix = op.comb + row * n * n;
  for (int64_t i = 0; i < n * n; ++i) matrix[i] = mixes[2 * n + i] * op.scale[2] + op.base[2 * n + i];
  Sinkhorn(n, spec.sinkhorn, spec.eps, matrix);
}

void ReadGated(const HyperReadOp& op, int64_t row) {
  const int64_t n = op.spec->streams;
  const auto count = static_cast<float>(n);
  float* out = op.out + row * op.dim;
  std::fill_n(out, op.dim, 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    const float* stream = op.streams + (row * n + i) * op.dim;
    const float* gate = op.gates + (row * n + i) * op.dim;
    for (int64_t d = 0; d < op.dim; ++d) out[d] += Sigmoid(gate[d]) * stream[d];
  }
  for (int64_t d = 0; d < op.dim; ++d) out[d] /= count;
  for (int64_t i = 0; op.post != nullptr && i < n; ++i) {
    op.post[row * n + i] = op.spec->post_scale * Sigmoid(op.mixes[row * n + i] / count);
  }
}

}  // namespace

void PortableBackend::HyperRead(const HyperReadOp& op) {
  const bool gated = op.spec->kind == HyperSpec::Kind::kGated;
  const double work = static_cast<double>(op.rows * op.spec->streams * op.dim) * (gated ? 16 : 1);
  ForTasks(op.rows, work, [&](int64_t row) { gated ? ReadGated(op, row) : ReadMixed(op, row); });
}

void PortableBackend::HyperWrite(const HyperWriteOp& op) {
  const int64_t n = op.streams_per_row;
  const double work = static_cast<double>(op.rows * n * op.dim) * static_cast<double>(op.comb == nullptr ? 1 : n);
  ForTasks(op.rows, work, [&](int64_t row) {
    const float* y = op.y + row * op.dim;
    const float* post = op.post + row * n;
    float* streams = op.streams + row * n * op.dim;
    if (op.comb == nullptr) {
      for (int64_t k = 0; k < n; ++k) {
        float* stream = streams + k * op.dim;
        for (int64_t d = 0; d < op.dim; ++d) stream[d] += post[k] * y[d];
      }
      return;
    }
    const float* comb = op.comb + row * n * n;
    float mixed[kMaxStreams][kDims];
    for (int64_t begin = 0; begin < op.dim; begin += kDims) {
      const int64_t dims = std::min(kDims, op.dim - begin);
      for (int64_t k = 0; k < n; ++k) {
        for (int64_t d = 0; d < dims; ++d) mixed[k][d] = post[k] * y[begin + d];
        for (int64_t i = 0; i < n; ++i) {
          const float* stream = streams + i * op.dim + begin;
          for (int64_t d = 0; d < dims; ++d) mixed[k][d] += comb[i * n + k] * stream[d];
        }
      }
      for (int64_t k = 0; k < n; ++k) std::copy_n(mixed[k], dims, streams + k * op.dim + begin);
    }
  });
}

}  // namespace moe
