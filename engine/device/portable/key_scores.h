// A small scorer's choice among keys: score(t, s) = Σ_h w_h(t) · relu(q_h(t) · k_s), the best top_k of a row's keys.
#ifndef MOE_ENGINE_DEVICE_PORTABLE_KEY_SCORES_H_
#define MOE_ENGINE_DEVICE_PORTABLE_KEY_SCORES_H_

#include <functional>
#include <vector>

#include "engine/device/portable/slice_rows.h"

namespace moe {

struct KeyScores {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t top_k = 0;
  const float* q = nullptr;        // [rows, heads * head_dim]
  const float* weights = nullptr;  // [rows, heads]
  std::vector<SliceRow> rows;
  std::function<void(int64_t row, float* head)> rotate;  // one head of q, in place
  std::function<int64_t(const SliceRow&)> count;         // keys [0, count) are the row's
  std::function<const float*(const SliceRow&, int64_t key)> key;
  int32_t* chosen = nullptr;  // [rows, top_k], ascending, the lower of equals, -1 behind the last
};

// Backend's ForTasks.
using TaskRunner = std::function<void(int64_t count, double work, const std::function<void(int64_t)>& fn)>;

// A row with no more than top_k keys gets all, unscored.
void SelectKeys(const KeyScores& scores, const TaskRunner& run);

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_PORTABLE_KEY_SCORES_H_
