// Route: the formulas of engine/device/reference/route_row.h with vectorised exponentials; the selection itself is a
// few comparisons.
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/device/cpu/cpu_backend.h"
#include "engine/device/reference/route_row.h"

namespace moe::cpu {
namespace {

constexpr float kDropped = -std::numeric_limits<float>::infinity();

// Whether b replaces the best value a found so far: larger, or a is NaN and b is not. A NaN loses against everything,
// so that a broken row still chooses k different experts.
bool Beats(float b, float a) {
  return b > a || (std::isnan(a) && !std::isnan(b));
}

// The best of [0, n) not taken: the lowest of equals.
int64_t Best(const float* values, const char* taken, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (taken[i] != 0) continue;
    if (best < 0 || Beats(values[i], values[best])) best = i;
  }
  return best;
}

float GroupScore(const RouterSpec& spec, const float* score, int64_t size) {
  float first = kDropped;
  float second = kDropped;
  for (int64_t i = 0; i < size; ++i) {
    if (score[i] > first) {
      second = first;
      first = score[i];
    } else if (score[i] > second) {
      second = score[i];
    }
  }
  return spec.group_score == RouterSpec::GroupScore::kSumOfTopTwo && size > 1 ? first + second : first;
}

// What one thread needs: three rows of E, a row of groups, marks.
struct RouteRowScratch {
  float* probability;
  float* score;
  float* group_score;
  char* taken;
};

void DropGroups(const RouterSpec& spec, int64_t num_experts, const RouteRowScratch& s) {
  const int64_t size = num_experts / spec.num_groups;
  for (int64_t g = 0; g < spec.num_groups; ++g) s.group_score[g] = GroupScore(spec, s.score + g * size, size);
  std::memset(s.taken, 0, static_cast<size_t>(spec.num_groups));
  for (int64_t n = 0; n < spec.top_groups; ++n) s.taken[Best(s.group_score, s.taken, spec.num_groups)] = 1;
  for (int64_t g = 0; g < spec.num_groups; ++g) {
    // Usually -inf, not 0: biased scores may be negative, and a 0 would then win.
    if (s.taken[g] == 0) std::fill_n(s.score + g * size, size, spec.others_score_zero ? 0.0f : kDropped);
  }
}

void RouteOne(const OpKernels& ops, const RouteOp& op, int64_t row, const RouteRowScratch& s) {
  const RouterSpec& spec = *op.spec;
  const int64_t n = op.num_experts;
  const bool over_chosen = spec.normalize == RouterSpec::Normalize::kSoftmaxOverChosen;
  int32_t* ids = op.ids + row * op.top_k;
  float* weights = op.weights + row * op.top_k;
  std::copy_n(op.logits + row * n, n, s.probability);
  if (spec.input_scale != 1) ops.scale(s.probability, n, spec.input_scale);
  if (op.logit_bias != nullptr) ops.add_scaled(s.probability, op.logit_bias, 1.0f, n);
  for (int64_t e = 0; spec.logit_cap > 0 && e < n; ++e) {
    s.probability[e] = spec.logit_cap * std::tanh(s.probability[e] / spec.logit_cap);
  }
  // Where the weights are a softmax over the chosen, the selection is by the logits: a full softmax could round two
  // different ones to equal probabilities.
  const bool by_logit = over_chosen || spec.select_by_logit;
  if (by_logit) std::copy_n(s.probability, n, s.score);
  if (spec.score == RouterSpec::Score::kSigmoid) {
    ops.sigmoid(s.probability, n);
  } else if (!over_chosen) {
    RowStats stats;
    ops.row_stats(s.probability, n, &stats);
    ops.divide(s.probability, n, ops.exp_sum(s.probability, n, stats.max, s.probability));
  }
  if (!by_logit) std::copy_n(s.probability, n, s.score);
  if (op.select_bias != nullptr) ops.add_scaled(s.score, op.select_bias, 1.0f, n);
  if (spec.num_groups > 1) DropGroups(spec, n, s);

  std::memset(s.taken, 0, static_cast<size_t>(n));
  for (int64_t k = 0; k < op.top_k; ++k) {
    const int64_t e = Best(s.score, s.taken, n);
    s.taken[e] = 1;
    ids[k] = static_cast<int32_t>(e);
    weights[k] = spec.others_weigh_zero && s.score[e] == kDropped ? 0.0f : s.probability[e];
  }
  if (over_chosen) {
    float max = kDropped;
    for (int64_t k = 0; k < op.top_k; ++k) max = std::max(max, weights[k]);
    ops.divide(weights, op.top_k, ops.exp_sum(weights, op.top_k, max, weights));
  } else if (spec.normalize == RouterSpec::Normalize::kSum) {
    float sum = 0;
    for (int64_t k = 0; k < op.top_k; ++k) sum += weights[k];
    sum = std::max(sum + spec.normalize_eps, spec.normalize_min);
    if (spec.normalize_order != 1) sum = WeightNorm(weights, op.top_k, spec.normalize_order);
    ops.divide(weights, op.top_k, sum);
  }
  for (int64_t k = 0; op.expert_scale != nullptr && k < op.top_k; ++k) weights[k] *= op.expert_scale[ids[k]];
}

}  // namespace

void CpuBackend::Route(const RouteOp& op) {
  const RouterSpec::Score score = op.spec->score;
  if (op.given != nullptr || (score != RouterSpec::Score::kSoftmax && score != RouterSpec::Score::kSigmoid)) {
    RouteScratch scratch;
    for (int64_t r = 0; r < op.rows; ++r) {
      RouteRow(*op.spec, {op.logits + r * op.num_experts, static_cast<size_t>(op.num_experts)}, op.logit_bias,
               op.select_bias, op.expert_scale, op.top_k, op.ids + r * op.top_k, op.weights + r * op.top_k, scratch,
               op.given == nullptr ? nullptr : op.given + r * op.top_k);
    }
    return;
  }
  const int64_t experts = (op.num_experts + 15) / 16 * 16;
  const int64_t groups = (op.spec->num_groups + 15) / 16 * 16;
  const int64_t marks = std::max(experts, groups);
  const int64_t bytes = (2 * experts + groups) * 4 + marks;
  const int64_t per_task = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, op.num_experts));
  const int64_t tasks = (op.rows + per_task - 1) / per_task;
  char* scratch = per_thread_.Get(static_cast<size_t>(threads_ * bytes));
  const double ns = static_cast<double>(op.rows * op.num_experts * (op.top_k + 2));
  RunTasks(tasks, ns, [&](int64_t task, int thread) {
    RouteRowScratch s;
    s.probability = reinterpret_cast<float*>(scratch + thread * bytes);
    s.score = s.probability + experts;
    s.group_score = s.score + experts;
    s.taken = reinterpret_cast<char*>(s.group_score + groups);
    const int64_t end = std::min(op.rows, (task + 1) * per_task);
    for (int64_t r = task * per_task; r < end; ++r) RouteOne(*ops_, op, r, s);
  });
}

}  // namespace moe::cpu
