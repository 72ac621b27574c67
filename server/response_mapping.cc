#include "server/response_mapping.h"

#include <algorithm>
#include <utility>

#include "loaders/model_loader.h"
#include "moe/v1/inference.pb.h"
#include "server/expert_load.h"

namespace moe {
namespace {

v1::FinishReason MapFinish(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case FinishReason::kEos:
      return v1::FINISH_REASON_EOS;
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

void FillLogprobs(const TokenInfo& token, v1::TokenLogprobs* to) {
  to->set_token_id(static_cast<uint32_t>(token.id));
  to->set_logprob(token.logprob);
  to->set_rank(token.rank);
  to->mutable_top()->Reserve(static_cast<int>(token.top.size()));
  for (const TokenProb& probability : token.top) {
    v1::TokenProbability* top = to->add_top();
    top->set_token_id(static_cast<uint32_t>(probability.id));
    top->set_logprob(probability.logprob);
  }
}

void FillChoice(const Delta& delta, const ResponseShape& shape, v1::Choice* choice) {
  choice->set_index(delta.choice);
  choice->set_text(delta.text);
  choice->mutable_token_ids()->Reserve(static_cast<int>(delta.tokens.size()));
  for (const TokenInfo& token : delta.tokens) {
    choice->add_token_ids(static_cast<uint32_t>(token.id));
    if (shape.logprobs) FillLogprobs(token, choice->add_logprobs());
  }
  choice->set_finish_reason(MapFinish(delta.finish));
  choice->set_stop_match(delta.stop_match);
  if (shape.routed_experts && delta.expert_rows > 0) {
    v1::RoutedExperts* routed = choice->mutable_routed_experts();
    routed->set_tokens(delta.expert_rows);
    routed->set_moe_layers(shape.moe_layers);
    routed->set_experts_per_token(shape.experts_per_token);
    routed->mutable_expert_ids()->Add(delta.expert_ids.begin(), delta.expert_ids.end());
  }
}

void FillUsage(const CallUsage& from, v1::Usage* to) {
  to->set_prompt_tokens(from.prompt_tokens);
  to->set_cached_prompt_tokens(from.cached_prompt_tokens);
  to->set_generated_tokens(from.generated_tokens);
  to->set_queue_seconds(from.times.queue_seconds);
  to->set_time_to_first_token_seconds(from.times.time_to_first_token_seconds);
  to->set_total_seconds(from.times.total_seconds);
}

}  // namespace

ResponseShape::ResponseShape(const Request& request, const std::string& model_name, const ModelSpec& spec)
    : request_id(request.id),
      model(model_name),
      logprobs(request.logprobs.has_value()),
      routed_experts(request.routed_experts),
      moe_layers(static_cast<uint32_t>(spec.MoeLayers().size())),
      experts_per_token(static_cast<uint32_t>(spec.MaxTopK())) {}

void FillChunk(const Delta& delta, const CallUsage& usage, const ResponseShape& shape, v1::GenerateChunk* chunk) {
  chunk->set_request_id(shape.request_id);
  chunk->set_model(shape.model);
  chunk->set_index(delta.choice);
  FillChoice(delta, shape, chunk->mutable_delta());
  for (const TokenInfo& token : delta.prompt_tokens) FillLogprobs(token, chunk->add_prompt_logprobs());
  FillUsage(usage, chunk->mutable_usage());
}

void FillResponse(std::vector<Delta> choices, const CallUsage& usage, const ResponseShape& shape,
                  v1::GenerateResponse* response) {
  std::sort(choices.begin(), choices.end(), [](const Delta& a, const Delta& b) { return a.choice < b.choice; });
  response->set_request_id(shape.request_id);
  response->set_model(shape.model);
  for (const Delta& choice : choices) {
    FillChoice(choice, shape, response->add_choices());
    for (const TokenInfo& token : choice.prompt_tokens) FillLogprobs(token, response->add_prompt_logprobs());
  }
  FillUsage(usage, response->mutable_usage());
}

void FillModelInfo(const std::string& name, const Engine& engine, v1::ModelInfo* to) {
  const ModelSpec& spec = engine.model().spec;
  const EngineInfo& info = engine.info();
  to->set_name(name);
  to->set_architecture(spec.architecture);
  to->set_vocab_size(static_cast<uint32_t>(spec.vocab_size));
  to->set_hidden_size(static_cast<uint32_t>(spec.hidden_size));
  to->set_layers(static_cast<uint32_t>(spec.layers.size()));
  to->set_moe_layers(static_cast<uint32_t>(spec.MoeLayers().size()));
  to->set_experts(static_cast<uint32_t>(spec.MaxExperts()));
  to->set_experts_per_token(static_cast<uint32_t>(spec.MaxTopK()));
  if (const std::vector<int64_t> layers = spec.MoeLayers(); !layers.empty()) {
    const auto& moe = std::get<MoeSpec>(spec.layers[layers.front()].ffn);
    to->set_shared_experts(static_cast<uint32_t>(moe.shared.has_value() ? moe.shared->count : 0));
    to->set_latent_size(static_cast<uint32_t>(moe.latent_size));
  }
  to->set_max_context_tokens(static_cast<uint32_t>(info.max_model_len));
  to->set_weight_dtype(info.weight_dtype);
  to->set_backend(info.backend);
  to->set_ranks(static_cast<uint32_t>(info.ranks));
}

void FillLoad(const EngineStats& stats, const EngineInfo& info, v1::Load* load) {
  v1::RankLoad* rank = load->add_ranks();
  rank->set_running_requests(static_cast<uint32_t>(stats.running));
  rank->set_waiting_requests(static_cast<uint32_t>(stats.waiting));
  rank->set_used_kv_tokens(static_cast<uint64_t>(stats.kv_blocks_used * info.kv_block_tokens));
  rank->set_max_kv_tokens(static_cast<uint64_t>(stats.kv_blocks_total * info.kv_block_tokens));
  rank->set_generated_tokens_per_second(stats.generated_tokens_per_second);
}

void FillPlacement(const EngineStats& stats, v1::ExpertPlacement* placement) {
  for (size_t l = 0; l < stats.moe_layers.size(); ++l) {
    const MoeLayerStats& layer = stats.moe_layers[l];
    const ExpertPlacement* where = PlacementOf(stats, l);
    v1::LayerPlacement* to = placement->add_layers();
    to->set_layer(static_cast<uint32_t>(layer.layer));
    to->set_imbalance(MeasureExpertLoad(layer, where).rank_imbalance);
    for (size_t e = 0; e < layer.tokens_per_expert.size(); ++e) {
      v1::ExpertReplicas* replicas = to->add_experts();
      replicas->set_expert(static_cast<uint32_t>(e));
      replicas->set_tokens(layer.tokens_per_expert[e]);
      if (where == nullptr) {
        replicas->add_ranks(0);
        continue;
      }
      for (int32_t rank : where->RanksOf(static_cast<int64_t>(e))) replicas->add_ranks(static_cast<uint32_t>(rank));
    }
  }
}

}  // namespace moe
