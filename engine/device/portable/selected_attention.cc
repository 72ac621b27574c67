#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/portable/slice_rows.h"
#include "engine/device/reference/reference_math.h"

namespace moe {

using reference::LoadAct;
using reference::StoreAct;

void PortableBackend::SelectedAttention(const AttentionOp& op) {
  constexpr int64_t kHeads = 8;  // query heads of one task: they share the reading of each key
  const AttentionSpec& spec = *op.spec;
  const DType act = act_dtype();
  const auto element = static_cast<int64_t>(DTypeSize(act));
  // Heads that share keys and the choice among them.
  const int64_t group = std::gcd(spec.num_heads / spec.num_kv_heads, spec.num_heads / op.selection->groups);
  const int64_t parts = (group + kHeads - 1) / kHeads;
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const int64_t width = op.selection->width;
  const double work = static_cast<double>(rows.size()) * static_cast<double>(width) *
                      static_cast<double>(spec.num_heads * (spec.head_dim + spec.v_head_dim));
  const int64_t tasks_of_row = spec.num_heads / group * parts;
  ForTasks(static_cast<int64_t>(rows.size()) * tasks_of_row, work, [&](int64_t task) {
    const SliceRow& at = rows[static_cast<size_t>(task / tasks_of_row)];
    const int64_t run = task % tasks_of_row / parts;
    const int64_t first_head = run * group + task % parts * kHeads;
    const int64_t heads = std::min(kHeads, (run + 1) * group - first_head);
    const int64_t kv_head = first_head / (spec.num_heads / spec.num_kv_heads);
    const int64_t choice = first_head / (spec.num_heads / op.selection->groups);
    const auto block_of = [&](int64_t j) { return (at.block(j) * spec.num_kv_heads + kv_head) * kKvBlockTokens; };

    std::vector<int32_t> keys;
    const int32_t* selected = op.selection->positions + (at.row * op.selection->groups + choice) * width;
    for (int64_t i = 0; i < width && selected[i] >= 0; ++i) {
      const int64_t j = selected[i];
      if (j > at.position) break;
      if (spec.window > 0 && at.position - j >= spec.window) continue;
      if (spec.chunk > 0 && at.position / spec.chunk != j / spec.chunk) continue;
      keys.push_back(selected[i]);
    }

    // Queries turned to [head_dim][kHeads], the heads behind the last one 0.
    std::vector<float> q(static_cast<size_t>(spec.head_dim * kHeads));
    for (int64_t h = 0; h < heads; ++h) {
      const std::byte* in = op.q + (at.row * spec.num_heads + first_head + h) * spec.head_dim * element;
      for (int64_t d = 0; d < spec.head_dim; ++d) q[static_cast<size_t>(d * kHeads + h)] = LoadAct(act, in, d);
    }
    float max[kHeads];
    float denominator[kHeads] = {};
    for (int64_t h = 0; h < kHeads; ++h) {
      const bool sink = op.sinks != nullptr && h < heads;
      max[h] = sink ? op.sinks[first_head + h] : -std::numeric_limits<float>::infinity();
    }
    std::vector<float> scores(keys.size() * kHeads);
    std::vector<float> row(static_cast<size_t>(std::max(spec.head_dim, spec.v_head_dim)));
    for (size_t i = 0; i < keys.size(); ++i) {
      LoadKey(op.kv.k + block_of(keys[i]) * spec.head_dim * element, spec.head_dim, keys[i] % kKvBlockTokens,
              row.data());
      float dot[kHeads] = {};
      for (int64_t d = 0; d < spec.head_dim; ++d) {
        const float* q_of_dim = q.data() + d * kHeads;
        const float k = row[static_cast<size_t>(d)];
        for (int64_t h = 0; h < kHeads; ++h) dot[h] += q_of_dim[h] * k;
      }
      for (int64_t h = 0; h < heads; ++h) {
        float score = dot[h] * spec.scale;
        if (spec.logit_cap > 0) score = spec.logit_cap * std::tanh(score / spec.logit_cap);
        scores[i * kHeads + static_cast<size_t>(h)] = score;
        max[h] = std::max(max[h], score);
      }
    }

    for (int64_t h = 0; op.sinks != nullptr && h < heads; ++h) {
      denominator[h] = std::exp(op.sinks[first_head + h] - max[h]);
    }
    std::vector<float> sum(static_cast<size_t>(heads * spec.v_head_dim));
    for (size_t i = 0; i < keys.size(); ++i) {
      const int64_t token = keys[i] % kKvBlockTokens;
      if (op.kv.v == nullptr) {
        LoadKey(op.kv.k + block_of(keys[i]) * spec.head_dim * element, spec.head_dim, token, row.data());
      } else {
        LoadValue(op.kv.v + block_of(keys[i]) * spec.v_head_dim * element, spec.v_head_dim, token, row.data());
      }
      for (int64_t h = 0; h < heads; ++h) {
        const float p = std::exp(scores[i * kHeads + static_cast<size_t>(h)] - max[h]);
        denominator[h] += p;
        float* out = sum.data() + h * spec.v_head_dim;
        for (int64_t d = 0; d < spec.v_head_dim; ++d) out[d] += p * row[static_cast<size_t>(d)];
      }
    }
    for (int64_t h = 0; h < heads; ++h) {
      std::byte* out = op.out_act + (at.row * spec.num_heads + first_head + h) * spec.v_head_dim * element;
      const float* in = sum.data() + h * spec.v_head_dim;
      // No key left and no sink: nothing is read.
      for (int64_t d = 0; d < spec.v_head_dim; ++d) {
        StoreAct(act, out, d, keys.empty() ? 0.0f : in[d] / denominator[h]);
      }
    }
  });
}

}  // namespace moe
