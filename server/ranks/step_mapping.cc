#include "server/ranks/step_mapping.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace moe {
namespace {

template <typename T, typename Field>
void Assign(const std::vector<T>& from, Field* to) {
  to->Assign(from.begin(), from.end());
}

template <typename T, typename Field>
std::vector<T> ToVector(const Field& from) {
  return std::vector<T>(from.begin(), from.end());
}

template <typename Field>
bool AllAtLeastZero(const Field& values) {
  for (const auto value : values) {
    if (value < 0) return false;
  }
  return true;
}

void SamplingToProto(const SamplingParams& from, v1::RankSampling* to) {
  to->set_temperature(from.temperature);
  to->set_top_p(from.top_p);
  to->set_top_k(from.top_k);
  to->set_min_p(from.min_p);
  to->set_repetition_penalty(from.repetition_penalty);
  to->set_presence_penalty(from.presence_penalty);
  to->set_frequency_penalty(from.frequency_penalty);
  to->set_seed(from.seed);
  for (const auto& [id, bias] : from.logit_bias) {
    to->add_bias_ids(id);
    to->add_bias_values(bias);
  }
}

StatusOr<SamplingParams> SamplingFromProto(const v1::RankSampling& from) {
  if (from.bias_ids_size() != from.bias_values_size()) {
    return InvalidError("rank message: ", from.bias_ids_size(), " biased tokens with ", from.bias_values_size(),
                        " values");
  }
  SamplingParams to;
  to.temperature = from.temperature();
  to.top_p = from.top_p();
  to.top_k = from.top_k();
  to.min_p = from.min_p();
  to.repetition_penalty = from.repetition_penalty();
  to.presence_penalty = from.presence_penalty();
  to.frequency_penalty = from.frequency_penalty();
  to.seed = from.seed();
  to.logit_bias.reserve(static_cast<size_t>(from.bias_ids_size()));
  for (int i = 0; i < from.bias_ids_size(); ++i) to.logit_bias.emplace_back(from.bias_ids(i), from.bias_values(i));
  return to;
}

void SequenceToProto(const SequenceInit& from, v1::RankSequence* to) {
  to->set_id(from.id);
  to->set_prompt_len(from.prompt_len);
  Assign(from.tokens, to->mutable_tokens());
  to->set_choice(from.choice);
  SamplingToProto(from.sampling, to->mutable_sampling());
  to->set_min_new_tokens(from.min_new_tokens);
  Assign(from.end_ids, to->mutable_end_ids());
  if (from.logprobs.has_value()) to->set_logprobs(*from.logprobs);
  if (from.prompt_logprobs.has_value()) to->set_prompt_logprobs(*from.prompt_logprobs);
  to->set_routed_experts(from.routed_experts);
  to->set_state_slot(from.state_slot);
  to->set_state_snapshot(from.state_snapshot);
  to->set_long_context(from.long_context);
}

StatusOr<SequenceInit> SequenceFromProto(const v1::RankSequence& from) {
  if (from.prompt_len() < 0 || from.prompt_len() > from.tokens_size()) {
    return InvalidError("rank message: sequence ", from.id(), " has ", from.tokens_size(), " tokens, its prompt ",
                        from.prompt_len());
  }
  if (!from.has_sampling()) return InvalidError("rank message: sequence ", from.id(), " without sampling");
  if (!AllAtLeastZero(from.tokens())) return InvalidError("rank message: sequence ", from.id(), " has a token below 0");
  if (from.state_slot() < -1 || from.state_snapshot() < -1) {
    return InvalidError("rank message: sequence ", from.id(), " in state slot ", from.state_slot(), ", snapshot ",
                        from.state_snapshot());
  }
  SequenceInit to;
  to.id = from.id();
  to.prompt_len = from.prompt_len();
  to.tokens = ToVector<int32_t>(from.tokens());
  to.choice = from.choice();
  MOE_ASSIGN_OR_RETURN(to.sampling, SamplingFromProto(from.sampling()));
  to.min_new_tokens = from.min_new_tokens();
  to.end_ids = ToVector<int32_t>(from.end_ids());
  if (from.has_logprobs()) to.logprobs = from.logprobs();
  if (from.has_prompt_logprobs()) to.prompt_logprobs = from.prompt_logprobs();
  to.routed_experts = from.routed_experts();
  to.state_slot = from.state_slot();
  to.state_snapshot = from.state_snapshot();
  to.long_context = from.long_context();
  return to;
}

void SliceToProto(const SlicePlan& from, v1::RankSlice* to) {
  to->set_id(from.id);
  to->set_first_pos(from.first_pos);
  to->set_count(from.count);
  Assign(from.new_blocks, to->mutable_new_blocks());
  to->set_sample(from.sample);
  Assign(from.draft, to->mutable_draft());
  to->set_save_snapshot(from.save_snapshot);
}

StatusOr<SlicePlan> SliceFromProto(const v1::RankSlice& from) {
  constexpr int64_t kMaxPosition = std::numeric_limits<int32_t>::max();
  if (from.first_pos() < 0 || from.first_pos() > kMaxPosition || from.count() < 0 || from.count() > kMaxPosition ||
      from.draft_size() > from.count()) {
    return InvalidError("rank message: slice of sequence ", from.id(), " at ", from.first_pos(), " with ", from.count(),
                        " positions, ", from.draft_size(), " of them guesses");
  }
  if (!AllAtLeastZero(from.new_blocks()) || !AllAtLeastZero(from.draft()) || from.save_snapshot() < -1) {
    return InvalidError("rank message: slice of sequence ", from.id(), " names a block, token or snapshot below 0");
  }
  SlicePlan to;
  to.id = from.id();
  to.first_pos = from.first_pos();
  to.count = from.count();
  to.new_blocks = ToVector<int32_t>(from.new_blocks());
  to.sample = from.sample();
  to.draft = ToVector<int32_t>(from.draft());
  to.save_snapshot = from.save_snapshot();
  return to;
}

void TokensToProto(const std::vector<TokenInfo>& from, v1::RankTokens* to) {
  bool any_top = false;
  for (const TokenInfo& token : from) {
    to->add_ids(token.id);
    to->add_logprobs(token.logprob);
    to->add_ranks(token.rank);
    any_top |= !token.top.empty();
  }
  if (!any_top) return;
  for (const TokenInfo& token : from) {
    to->add_top_counts(static_cast<uint32_t>(token.top.size()));
    for (const TokenProb& top : token.top) {
      to->add_top_ids(top.id);
      to->add_top_logprobs(top.logprob);
    }
  }
}

StatusOr<std::vector<TokenInfo>> TokensFromProto(const v1::RankTokens& from) {
  const int size = from.ids_size();
  const uint64_t tops = std::accumulate(from.top_counts().begin(), from.top_counts().end(), uint64_t{0});
  if (from.logprobs_size() != size || from.ranks_size() != size ||
      (from.top_counts_size() != 0 && from.top_counts_size() != size) ||
      tops != static_cast<uint64_t>(from.top_ids_size()) || from.top_logprobs_size() != from.top_ids_size()) {
    return InvalidError("rank message: ", size, " tokens, ", from.logprobs_size(), " log-probabilities, ",
                        from.ranks_size(), " ranks, ", from.top_counts_size(), " counts of ", tops, " alternatives, ",
                        from.top_ids_size(), " and ", from.top_logprobs_size(), " of them there");
  }
  std::vector<TokenInfo> to(static_cast<size_t>(size));
  int next = 0;
  for (int i = 0; i < size; ++i) {
    TokenInfo& token = to[static_cast<size_t>(i)];
    token.id = from.ids(i);
    token.logprob = from.logprobs(i);
    token.rank = from.ranks(i);
    if (tops == 0) continue;
    token.top.resize(from.top_counts(i));
    for (TokenProb& top : token.top) {
      top = {from.top_ids(next), from.top_logprobs(next)};
      ++next;
    }
  }
  return to;
}

}  // namespace

void PlanToProto(const RankPlan& plan, v1::RankStep* message) {
  message->set_most_rows(plan.most_rows);
  Assign(plan.drop, message->mutable_drop());
  for (const SequenceInit& sequence : plan.admit) SequenceToProto(sequence, message->add_admit());
  for (const SlicePlan& slice : plan.slices) SliceToProto(slice, message->add_slices());
}

StatusOr<RankPlan> PlanFromProto(const v1::RankStep& message) {
  RankPlan plan;
  plan.most_rows = message.most_rows();
  if (plan.most_rows < 0) return InvalidError("rank message: a step of at most ", plan.most_rows, " rows");
  plan.drop = ToVector<SequenceId>(message.drop());
  plan.admit.reserve(static_cast<size_t>(message.admit_size()));
  for (const v1::RankSequence& sequence : message.admit()) {
    MOE_ASSIGN_OR_RETURN(SequenceInit init, SequenceFromProto(sequence));
    plan.admit.push_back(std::move(init));
  }
  plan.slices.reserve(static_cast<size_t>(message.slices_size()));
  for (const v1::RankSlice& slice : message.slices()) {
    MOE_ASSIGN_OR_RETURN(SlicePlan read, SliceFromProto(slice));
    plan.slices.push_back(std::move(read));
  }
  return plan;
}

void ResultToProto(const RankResult& result, v1::RankStepResult* message) {
  for (const SliceResult& slice : result.slices) {
    v1::RankSliceResult* to = message->add_slices();
    to->set_id(slice.id);
    if (!slice.tokens.empty()) TokensToProto(slice.tokens, to->mutable_tokens());
    if (!slice.prompt_tokens.empty()) TokensToProto(slice.prompt_tokens, to->mutable_prompt_tokens());
    Assign(slice.expert_ids, to->mutable_expert_ids());
    to->set_not_finite(slice.not_finite);
  }
  Assign(result.expert_tokens, message->mutable_expert_tokens());
  message->set_compute_seconds(result.compute_seconds);
  message->set_counts_seconds(result.exchange.counts_seconds);
  message->set_dispatch_seconds(result.exchange.dispatch_seconds);
  message->set_combine_seconds(result.exchange.combine_seconds);
  message->set_rows_computed(result.rows_computed);
  message->set_count_bytes(result.exchange.count_bytes);
  message->set_dispatch_bytes(result.exchange.dispatch_bytes);
  message->set_combine_bytes(result.exchange.combine_bytes);
  message->set_rows_sent(result.exchange.rows_sent);
  message->set_exchanges(result.exchange.exchanges);
}

StatusOr<RankResult> ResultFromProto(const v1::RankStepResult& message) {
  RankResult result;
  result.slices.reserve(static_cast<size_t>(message.slices_size()));
  for (const v1::RankSliceResult& from : message.slices()) {
    SliceResult& slice = result.slices.emplace_back();
    slice.id = from.id();
    MOE_ASSIGN_OR_RETURN(slice.tokens, TokensFromProto(from.tokens()));
    MOE_ASSIGN_OR_RETURN(slice.prompt_tokens, TokensFromProto(from.prompt_tokens()));
    slice.expert_ids = ToVector<int32_t>(from.expert_ids());
    slice.not_finite = from.not_finite();
  }
  const auto counts = {message.rows_computed(), message.count_bytes(), message.dispatch_bytes(),
                       message.combine_bytes(), message.rows_sent(),   message.exchanges()};
  if (!AllAtLeastZero(message.expert_tokens()) || !AllAtLeastZero(counts)) {
    return InvalidError("rank message: counts below 0 in a result");
  }
  for (const double seconds :
       {message.compute_seconds(), message.counts_seconds(), message.dispatch_seconds(), message.combine_seconds()}) {
    if (std::isfinite(seconds) && seconds >= 0) continue;
    return InvalidError("rank message: a part of a step took ", seconds, " s");
  }
  result.expert_tokens = ToVector<int64_t>(message.expert_tokens());
  result.compute_seconds = message.compute_seconds();
  result.rows_computed = message.rows_computed();
  result.exchange = {.count_bytes = message.count_bytes(),
                     .dispatch_bytes = message.dispatch_bytes(),
                     .combine_bytes = message.combine_bytes(),
                     .rows_sent = message.rows_sent(),
                     .exchanges = message.exchanges(),
                     .counts_seconds = message.counts_seconds(),
                     .dispatch_seconds = message.dispatch_seconds(),
                     .combine_seconds = message.combine_seconds()};
  return result;
}

}  // namespace moe
