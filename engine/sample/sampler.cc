#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/sample/philox.h"
#include "engine/sample/weights.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
// Smaller temperatures act as this one: 1 / t stays finite, and any two different logits are far enough apart.
constexpr float kMinTemperature = 1e-30f;

float LogProb(float logit, float log_sum_exp) {
  const float p = logit - log_sum_exp;
  return std::isnan(p) ? kMinusInf : p;
}

// Drops what top_p and min_p exclude from sorted candidates whose values are weights. `total` is the weight that top_p
// refers to.
void CutTail(std::vector<Candidate>& sorted, float top_p, float min_p, double total) {
  size_t keep = sorted.size();
  if (top_p < 1.0f) {
    const double target = static_cast<double>(top_p) * total;
    double sum = 0;
    for (size_t i = 0; i < sorted.size(); ++i) {
      sum += sorted[i].value;
      if (sum >= target) {
        keep = i + 1;
        break;
      }
    }
  }
  if (min_p > 0.0f) {
    const float floor = min_p * sorted[0].value;
    while (keep > 1 && sorted[keep - 1].value < floor) --keep;
  }
  sorted.resize(keep);
}

int32_t DrawInOrder(std::span<const Candidate> candidates, double u) {
  double total = 0;
  for (const Candidate& c : candidates) total += c.value;
  if (!(total > 0)) return -1;
  const double target = u * total;
  double sum = 0;
  int32_t last = -1;
  for (const Candidate& c : candidates) {
    if (c.value <= 0) continue;
    last = c.id;
    sum += c.value;
    if (sum > target) break;
  }
  return last;
}

void ToWeights(std::vector<Candidate>& candidates, float max, float inv_temperature) {
  for (Candidate& c : candidates) c.value = WeightOf(c.value, max, inv_temperature);
}

}  // namespace

Sampler::Sampler(const SequenceInit& init, int64_t vocab_size)
    : params_(init.sampling),
      vocab_size_(vocab_size),
      choice_(init.choice),
      min_new_tokens_(init.min_new_tokens),
      logprobs_(init.logprobs),
      num_generated_(static_cast<int64_t>(init.tokens.size()) - init.prompt_len) {
  MOE_CHECK(num_generated_ >= 0) << "prompt_len " << init.prompt_len << ", tokens " << init.tokens.size();
  for (int32_t id : init.end_ids) {
    if (id >= 0 && id < vocab_size) end_ids_.push_back(id);
  }
  std::sort(end_ids_.begin(), end_ids_.end());
  if (params_.NeedsHistory()) {
    std::vector<int32_t> prompt(init.tokens.begin(), init.tokens.begin() + init.prompt_len);
    std::sort(prompt.begin(), prompt.end());
    prompt.erase(std::unique(prompt.begin(), prompt.end()), prompt.end());
    for (int32_t id : prompt) seen_.push_back({id, 0});
    for (size_t i = static_cast<size_t>(init.prompt_len); i < init.tokens.size(); ++i) NoteGenerated(init.tokens[i]);
  }
}

void Sampler::NoteGenerated(int32_t id) {
  const auto it = std::lower_bound(seen_.begin(), seen_.end(), id, [](const Seen& s, int32_t i) { return s.id < i; });
  if (it != seen_.end() && it->id == id) {
    ++it->generated;
  } else {
    seen_.insert(it, {id, 1});
  }
}

bool Sampler::Modifies() const {
  return !params_.logit_bias.empty() || params_.NeedsHistory() ||
         (num_generated_ < min_new_tokens_ && !end_ids_.empty());
}

void Sampler::Process(std::span<const float> logits, SamplerScratch& scratch) const {
  scratch.logits.assign(logits.begin(), logits.end());
  float* x = scratch.logits.data();
  if (num_generated_ < min_new_tokens_) {
    for (int32_t id : end_ids_) x[id] = kMinusInf;
  }
  for (const auto& [id, bias] : params_.logit_bias) {
    if (id >= 0 && id < vocab_size_) x[id] += bias;
  }
  for (const auto& [id, generated] : seen_) {
    if (id < 0 || id >= vocab_size_) continue;
    float& v = x[id];
    v = v > 0 ? v / params_.repetition_penalty : v * params_.repetition_penalty;
    if (generated > 0) {
      v -= params_.presence_penalty;
      v -= params_.frequency_penalty * static_cast<float>(generated);
    }
  }
}

int32_t Sampler::LowestAllowed(int64_t vocab) const {
  if (num_generated_ < min_new_tokens_) {
    int32_t id = 0;
    for (int32_t end : end_ids_) {  // ascending
      if (end == id) ++id;
    }
    if (id < vocab) return id;
  }
  return 0;
}

int32_t Sampler::Draw(std::span<const float> values, float max, SamplerScratch& scratch) const {
  const auto n = static_cast<int64_t>(values.size());
  const float inv_temperature = 1.0f / std::max(params_.temperature, kMinTemperature);
  const double u = UniformFor(params_.seed, choice_, static_cast<uint64_t>(num_generated_));
  const bool top_k = params_.top_k > 0 && static_cast<int64_t>(params_.top_k) < n;
  std::vector<Candidate>& candidates = scratch.candidates;
  if (top_k) {
    SelectTop(values, params_.top_k, candidates);
    ToWeights(candidates, max, inv_temperature);
    double total = 0;
    for (const Candidate& c : candidates) total += c.value;
    CutTail(candidates, params_.top_p, params_.min_p, total);
    return DrawInOrder(candidates, u);
  }
  const bool top_p = params_.top_p < 1.0f;
  const double total =
      ComputeWeights(values, max, inv_temperature, top_p ? 0.0f : params_.min_p, scratch.weights, scratch.block_sums);
  if (!top_p) return DrawById(scratch.weights, scratch.block_sums, total, u);
  // The set that top_p keeps is usually small.
  const double target = static_cast<double>(params_.top_p) * total;
  for (int64_t count = 64; count <= std::min<int64_t>(n / 4, 512); count *= 8) {
    SelectTop(values, count, candidates);
    ToWeights(candidates, max, inv_temperature);
    double sum = 0;
    for (const Candidate& c : candidates) sum += c.value;
    if (sum < target) continue;
    CutTail(candidates, params_.top_p, params_.min_p, total);
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
    return DrawInOrder(candidates, u);
  }
  const double kept = KeepNucleus(target, params_.min_p, scratch.weights, scratch.block_sums, candidates);
  return DrawById(scratch.weights, scratch.block_sums, kept, u);
}

TokenInfo Sampler::Next(std::span<const float> logits, int32_t argmax, float max, float log_sum_exp,
                        SamplerScratch& scratch) {
  MOE_CHECK_EQ(static_cast<int64_t>(logits.size()), vocab_size_);
  const bool modified = Modifies();
  const bool greedy = params_.temperature <= 0.0f;
  std::span<const float> values = logits;
  if (modified) {
    Process(logits, scratch);
    values = scratch.logits;
    argmax = ArgMax(values);
    max = argmax >= 0 ? values[argmax] : kMinusInf;
  }
  int32_t token = -1;
  if (argmax >= 0 && argmax < vocab_size_ && values[argmax] > kMinusInf) {
    // Without a finite maximum no difference to it is defined: the maximum itself is the answer.
    token = greedy || !std::isfinite(max) ? argmax : Draw(values, max, scratch);
    if (token < 0) token = argmax;
  } else {
    token = ArgMax(values);  // a row with NaN may have been given a useless argmax
    if (token < 0) token = LowestAllowed(vocab_size_);
  }

  TokenInfo info;
  if (logprobs_.has_value()) {
    info = Describe(logits, log_sum_exp, token, *logprobs_, scratch);
  } else {
    info.id = token;
    info.logprob = LogProb(logits[token], log_sum_exp);
  }
  if (params_.NeedsHistory()) NoteGenerated(token);
  ++num_generated_;
  return info;
}

TokenInfo Sampler::Describe(std::span<const float> logits, float log_sum_exp, int32_t token, int32_t num_top,
                            SamplerScratch& scratch) {
  MOE_CHECK(token >= 0 && token < static_cast<int64_t>(logits.size())) << "token " << token;
  TokenInfo info;
  info.id = token;
  info.logprob = LogProb(logits[token], log_sum_exp);
  info.rank = RankOf(logits, token);
  const int64_t count = num_top < 0 ? static_cast<int64_t>(logits.size()) : num_top;
  if (count > 0) {
    SelectTop(logits, count, scratch.candidates);
    info.top.reserve(scratch.candidates.size());
    for (const Candidate& c : scratch.candidates) info.top.push_back({c.id, LogProb(c.value, log_sum_exp)});
  }
  return info;
}

}  // namespace moe
