// MlaKeys and MlaQueries: what latent attention does to rows beside its GEMMs.
#include "engine/device/cpu/cpu_backend.h"
#include "engine/device/portable/slice_rows.h"

namespace moe::cpu {
namespace {

bool Interleaved(const MlaSpec& spec) {
  return spec.rope->layout == RopeSpec::Layout::kInterleaved;
}

}  // namespace

void CpuBackend::MlaKeys(const MlaKeysOp& op) {
  const MlaSpec& spec = *op.spec;
  const int64_t width = spec.kv_lora + spec.rope_dim;
  const int64_t half = spec.rope ? spec.rope->rotary_dim / 2 : 0;
  const int64_t size = ElementSize(act_);
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const auto count = static_cast<int64_t>(rows.size());
  float* keys = per_thread_.GetAs<float>(static_cast<size_t>(threads_ * width));
  RunTasks(count, static_cast<double>(count * width), [&](int64_t task, int thread) {
    const SliceRow& at = rows[static_cast<size_t>(task)];
    float* key = keys + thread * width;
    float* rotated = key + spec.kv_lora;
    std::copy_n(op.kv_a + at.row * width, width, key);
    NormInPlace(spec.kv_norm, op.kv_norm, spec.kv_lora, key);
    if (spec.kv_scale != 1) ops_->scale(key, spec.kv_lora, spec.kv_scale);
    NormInPlace(spec.k_rope_norm, op.k_rope_norm, spec.rope_dim, rotated);
    if (half > 0) ops_->rotate(rotated, half, Interleaved(spec), op.cos + at.row * half, op.sin + at.row * half);
    const int64_t block = at.block(at.position) * kKvBlockTokens;
    const int64_t token = at.position % kKvBlockTokens;
    StoreKey(key, width, token, op.kv.k + block * width * size);
    if (op.kv.v != nullptr) StoreValue(key, spec.kv_lora, token, op.kv.v + block * spec.kv_lora * size);
  });
}

void CpuBackend::MlaQueries(const MlaQueriesOp& op) {
  constexpr int64_t kHeads = 16;  // of a task
  const MlaSpec& spec = *op.spec;
  const int64_t in_dim = spec.nope_dim + spec.rope_dim;
  const int64_t out_dim = spec.kv_lora + spec.rope_dim;
  const int64_t half = spec.rope ? spec.rope->rotary_dim / 2 : 0;
  const int64_t size = ElementSize(act_);
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const int64_t parts = (spec.num_heads + kHeads - 1) / kHeads;
  const int64_t tasks = static_cast<int64_t>(rows.size()) * parts;
  float* queries = per_thread_.GetAs<float>(static_cast<size_t>(threads_ * out_dim));
  const double work_ns = static_cast<double>(static_cast<int64_t>(rows.size()) * spec.num_heads * out_dim) / 2;
  RunTasks(tasks, work_ns, [&](int64_t task, int thread) {
    const SliceRow& at = rows[static_cast<size_t>(task / parts)];
    const float scale = spec.q_scale * PositionScaleAt(spec.query_scale, at.position);
    float* query = queries + thread * out_dim;
    float* rotated = query + spec.kv_lora;
    const int64_t first = task % parts * kHeads;
    for (int64_t h = first; h < std::min(first + kHeads, spec.num_heads); ++h) {
      const int64_t head = at.row * spec.num_heads + h;
      std::copy_n(op.absorbed + head * spec.kv_lora, spec.kv_lora, query);
      std::copy_n(op.q + head * in_dim + spec.nope_dim, spec.rope_dim, rotated);
      if (half > 0) ops_->rotate(rotated, half, Interleaved(spec), op.cos + at.row * half, op.sin + at.row * half);
      if (scale != 1) ops_->scale(query, out_dim, scale);
      ops_->round(query, out_dim, reinterpret_cast<char*>(op.q_out) + head * out_dim * size, act_);
    }
  });
}

}  // namespace moe::cpu
