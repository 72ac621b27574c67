#include "engine/device/reference/route_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moe {
namespace {

constexpr float kDropped = -std::numeric_limits<float>::infinity();

// Index of the largest value among those not taken; -1 if all are. A NaN loses against everything, so that a broken row
// still chooses k different experts.
int64_t Best(std::span<const float> values, std::span<const char> taken) {
  int64_t best = -1;
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    if (taken[i]) continue;
    if (best < 0 || values[i] > values[best] || (std::isnan(values[best]) && !std::isnan(values[i]))) best = i;
  }
  return best;
}

void DropGroups(const RouterSpec& spec, RouteScratch& s) {
  const int64_t groups = spec.num_groups;
  const int64_t size = static_cast<int64_t>(s.score.size()) / groups;
  s.group_score.assign(groups, 0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    float first = kDropped;
    float second = kDropped;
    for (int64_t i = g * size; i < (g + 1) * size; ++i) {
      const float v = s.score[i];
      if (v > first) {
        second = first;
        first = v;
      } else if (v > second) {
        second = v;
      }
    }
    const bool sum = spec.group_score == RouterSpec::GroupScore::kSumOfTopTwo && size > 1;
    s.group_score[g] = sum ? first + second : first;
  }
  std::fill_n(s.taken.begin(), groups, 0);
  for (int64_t n = 0; n < spec.top_groups; ++n)
    s.taken[Best(s.group_score, {s.taken.data(), s.group_score.size()})] = 1;
  for (int64_t g = 0; g < groups; ++g) {
    // Usually -inf, not 0: biased scores may be negative, and a 0 would then win.
    if (!s.taken[g]) std::fill_n(s.score.begin() + g * size, size, spec.others_score_zero ? 0.0f : kDropped);
  }
}

// Round n of sparse-mixer routing: the best expert left, weighted by a softmax over those that come close to it.
void SparseMixerPick(const RouterSpec& spec, std::span<const float> logits, int32_t* id, float* weight,
                     RouteScratch& s) {
  const int64_t best = Best(logits, {s.taken.data(), logits.size()});
  const float max = logits[best];
  float sum = 0;
  for (size_t e = 0; e < logits.size(); ++e) {
    if (s.taken[e]) continue;
    const float factor = std::max(std::fabs(logits[e]), max);
    if ((max - logits[e]) / factor > 2 * spec.jitter) continue;
    sum += std::exp(logits[e] - max);
  }
  s.taken[best] = 1;
  *id = static_cast<int32_t>(best);
  *weight = 1.0f / sum;
}

void Scores(const RouterSpec& spec, std::vector<float>& values) {
  switch (spec.score) {
    case RouterSpec::Score::kSoftmax: {
      const float max = *std::max_element(values.begin(), values.end());
      float sum = 0;
      for (float& p : values) {
        p = std::exp(p - max);
        sum += p;
      }
      for (float& p : values) p /= sum;
      break;
    }
    case RouterSpec::Score::kSigmoid:
      for (float& p : values) p = 1.0f / (1.0f + std::exp(-p));
      break;
    case RouterSpec::Score::kSqrtSoftplus:
      for (float& p : values) p = std::sqrt(p > 20.0f ? p : std::log1p(std::exp(p)));
      break;
    case RouterSpec::Score::kSparseMixer:
      break;
  }
}

}  // namespace

float WeightNorm(const float* weights, int64_t count, float order) {
  double sum = 0;
  for (int64_t k = 0; k < count; ++k) {
    const double size = std::fabs(static_cast<double>(weights[k]));
    sum = std::isinf(order) ? std::max(sum, size) : sum + std::pow(size, static_cast<double>(order));
  }
  return static_cast<float>(std::isinf(order) ? sum : std::pow(sum, 1 / static_cast<double>(order)));
}

void RouteRow(const RouterSpec& spec, std::span<const float> logits, const float* logit_bias, const float* select_bias,
              const float* expert_scale, int64_t top_k, int32_t* ids, float* weights, RouteScratch& s,
              const int32_t* given) {
  const auto num_experts = static_cast<int64_t>(logits.size());
  s.probability.assign(logits.begin(), logits.end());
  s.taken.resize(std::max<int64_t>(num_experts, spec.num_groups));
  if (spec.input_scale != 1) {
    for (float& z : s.probability) z *= spec.input_scale;
  }
  if (logit_bias != nullptr) {
    for (int64_t e = 0; e < num_experts; ++e) s.probability[e] += logit_bias[e];
  }
  if (spec.logit_cap > 0) {
    for (float& z : s.probability) z = spec.logit_cap * std::tanh(z / spec.logit_cap);
  }
  // Where the weights are a softmax over the chosen, selection is by the logits themselves: a full softmax could round
  // two different logits to equal probabilities.
  const bool over_chosen = spec.normalize == RouterSpec::Normalize::kSoftmaxOverChosen;
  const std::vector<float> shifted = over_chosen || spec.select_by_logit ? s.probability : std::vector<float>();
  Scores(spec, s.probability);
  s.score = shifted.empty() ? s.probability : shifted;
  if (select_bias != nullptr) {
    for (int64_t e = 0; e < num_experts; ++e) s.score[e] += select_bias[e];
  }
  if (spec.num_groups > 1) DropGroups(spec, s);

  std::fill_n(s.taken.begin(), num_experts, 0);
  for (int64_t k = 0; k < top_k; ++k) {
    if (spec.score == RouterSpec::Score::kSparseMixer) {
      SparseMixerPick(spec, s.probability, ids + k, weights + k, s);
      continue;
    }
    const int64_t e = given != nullptr ? given[k] : Best(s.score, {s.taken.data(), static_cast<size_t>(num_experts)});
    s.taken[e] = 1;
    ids[k] = static_cast<int32_t>(e);
    weights[k] = spec.others_weigh_zero && s.score[e] == kDropped ? 0.0f : s.probability[e];
  }
  if (over_chosen) {
    float max = kDropped;
    for (int64_t k = 0; k < top_k; ++k) max = std::max(max, shifted[ids[k]]);
    float sum = 0;
    for (int64_t k = 0; k < top_k; ++k) {
      weights[k] = std::exp(shifted[ids[k]] - max);
      sum += weights[k];
    }
    for (int64_t k = 0; k < top_k; ++k) weights[k] /= sum;
  } else if (spec.normalize == RouterSpec::Normalize::kSum) {
    float sum = 0;
    for (int64_t k = 0; k < top_k; ++k) sum += weights[k];
    sum = std::max(sum + spec.normalize_eps, spec.normalize_min);
    if (spec.normalize_order != 1) sum = WeightNorm(weights, top_k, spec.normalize_order);
    for (int64_t k = 0; k < top_k; ++k) weights[k] /= sum;
  }
  for (int64_t k = 0; expert_scale != nullptr && k < top_k; ++k) weights[k] *= expert_scale[ids[k]];
}

}  // namespace moe
