#include "engine/device/portable/key_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace moe {
namespace {

constexpr int64_t kKeysOfTask = 256;
constexpr int64_t kScoresAtOnce = int64_t{1} << 22;

// A part of the keys that one row scores.
struct ScoreTask {
  size_t row = 0;  // of the group
  int64_t begin = 0;
  int64_t end = 0;
};

// score[s - begin] for the keys s of [begin, end), heads and dims ascending. q_turned: [head_dim][heads], so that one
// pass over a key serves all heads.
void ScoreKeys(const KeyScores& op, const SliceRow& at, const float* q_turned, int64_t begin, int64_t end,
               float* score) {
  const float* weights = op.weights + at.row * op.heads;
  std::vector<float> dot(static_cast<size_t>(op.heads));
  for (int64_t s = begin; s < end; ++s) {
    const float* key = op.key(at, s);
    std::fill(dot.begin(), dot.end(), 0.0f);
    float* sums = dot.data();
    for (int64_t d = 0; d < op.head_dim; ++d) {
      const float* q = q_turned + d * op.heads;
      const float k = key[d];
      for (int64_t h = 0; h < op.heads; ++h) sums[h] += q[h] * k;
    }
    float sum = 0;
    for (int64_t h = 0; h < op.heads; ++h) sum += weights[h] * std::max(sums[h], 0.0f);
    // What is not a number comes last, or sorting would have no order.
    score[s - begin] = std::isnan(sum) ? -std::numeric_limits<float>::infinity() : sum;
  }
}

// The positions of the `top_k` best scores, the lower position of equals, ascending.
void SelectBest(const float* score, int64_t count, int64_t top_k, int32_t* positions) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (count > top_k) {
    std::nth_element(order.begin(), order.begin() + top_k, order.end(),
                     [score](int32_t a, int32_t b) { return score[a] != score[b] ? score[a] > score[b] : a < b; });
    order.resize(static_cast<size_t>(top_k));
    std::sort(order.begin(), order.end());
  }
  std::fill(std::copy(order.begin(), order.end(), positions), positions + top_k, -1);
}

}  // namespace

void SelectKeys(const KeyScores& op, const TaskRunner& run) {
  const auto count = static_cast<int64_t>(op.rows.size());
  const int64_t q_dim = op.heads * op.head_dim;
  std::vector<float> q_turned;
  std::vector<float> scores;
  std::vector<int64_t> score_begin;
  std::vector<ScoreTask> tasks;
  for (int64_t first = 0; first < count;) {
    // As many rows as the scores' memory allows.
    tasks.clear();
    score_begin.clear();
    int64_t total = 0;
    int64_t end = first;
    for (; end < count && (end == first || total < kScoresAtOnce); ++end) {
      const int64_t keys = op.count(op.rows[static_cast<size_t>(end)]);
      score_begin.push_back(total);
      if (keys <= op.top_k) continue;
      for (int64_t k = 0; k < keys; k += kKeysOfTask) {
        tasks.push_back({score_begin.size() - 1, k, std::min(k + kKeysOfTask, keys)});
      }
      total += keys;
    }
    const int64_t group = end - first;
    scores.resize(static_cast<size_t>(total));
    q_turned.resize(tasks.empty() ? 0 : static_cast<size_t>(group * q_dim));
    const auto row_at = [&](size_t i) -> const SliceRow& { return op.rows[static_cast<size_t>(first) + i]; };
    run(tasks.empty() ? 0 : group, static_cast<double>(group * q_dim) * 2, [&](int64_t i) {
      const SliceRow& at = row_at(static_cast<size_t>(i));
      if (op.count(at) <= op.top_k) return;
      std::vector<float> head(static_cast<size_t>(op.head_dim));
      for (int64_t h = 0; h < op.heads; ++h) {
        std::copy_n(op.q + at.row * q_dim + h * op.head_dim, op.head_dim, head.begin());
        op.rotate(at.row, head.data());
        float* turned = q_turned.data() + i * q_dim + h;
        for (int64_t d = 0; d < op.head_dim; ++d) turned[d * op.heads] = head[static_cast<size_t>(d)];
      }
    });
    run(static_cast<int64_t>(tasks.size()), static_cast<double>(total) * static_cast<double>(q_dim), [&](int64_t i) {
      const ScoreTask& task = tasks[static_cast<size_t>(i)];
      ScoreKeys(op, row_at(task.row), q_turned.data() + static_cast<int64_t>(task.row) * q_dim, task.begin, task.end,
                scores.data() + score_begin[task.row] + task.begin);
    });
    run(group, static_cast<double>(total) * 8, [&](int64_t i) {
      const SliceRow& at = row_at(static_cast<size_t>(i));
      SelectBest(scores.data() + score_begin[static_cast<size_t>(i)], op.count(at), op.top_k,
                 op.chosen + at.row * op.top_k);
    });
    first = end;
  }
}

}  // namespace moe
