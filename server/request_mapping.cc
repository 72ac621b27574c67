#include "server/request_mapping.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "loaders/model_loader.h"
#include "moe/v1/inference.pb.h"
#include "server/field_checks.h"
#include "server/json_field.h"
#include "server/random_id.h"

namespace moe {
namespace {

// Longer than any vocabulary's longest token.
constexpr int64_t kMaxBytesPerToken = 1024;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Status MapSampling(const v1::SamplingParams& from, const GenerationConfig& defaults, int64_t vocab_size,
                   const RequestLimits& limits, Request* request) {
  SamplingParams& to = request->sampling;
  const bool greedy_default = defaults.do_sample.has_value() && !*defaults.do_sample;
  to.temperature = from.has_temperature() ? from.temperature()
                   : greedy_default       ? 0.0f
                                          : static_cast<float>(defaults.temperature.value_or(1.0));
  if (!(to.temperature >= 0) || std::isinf(to.temperature)) {
    return OutOfRange("sampling.temperature", to.temperature, "[0, inf)");
  }
  to.top_p = from.has_top_p() ? from.top_p() : static_cast<float>(defaults.top_p.value_or(1.0));
  MOE_RETURN_IF_ERROR(CheckPositive("sampling.top_p", to.top_p, 1.0f));
  to.top_k = from.has_top_k() ? from.top_k()
                              : static_cast<uint32_t>(std::clamp<int64_t>(defaults.top_k.value_or(0), 0, vocab_size));
  to.min_p = from.has_min_p() ? from.min_p() : static_cast<float>(defaults.min_p.value_or(0.0));
  MOE_RETURN_IF_ERROR(CheckRange("sampling.min_p", to.min_p, 0.0f, 1.0f));
  to.repetition_penalty = from.has_repetition_penalty() ? from.repetition_penalty()
                                                        : static_cast<float>(defaults.repetition_penalty.value_or(1.0));
  MOE_RETURN_IF_ERROR(CheckPositive("sampling.repetition_penalty", to.repetition_penalty, kInfinity));
  to.presence_penalty = from.presence_penalty();
  MOE_RETURN_IF_ERROR(CheckRange("sampling.presence_penalty", to.presence_penalty, -2.0f, 2.0f));
  to.frequency_penalty = from.frequency_penalty();
  MOE_RETURN_IF_ERROR(CheckRange("sampling.frequency_penalty", to.frequency_penalty, -2.0f, 2.0f));
  to.seed = from.has_seed() ? from.seed() : RandomUint64();
  for (const auto& [id, bias] : from.logit_bias()) {
    MOE_RETURN_IF_ERROR(CheckRange<int64_t>("sampling.logit_bias key", id, 0, vocab_size - 1));
    MOE_RETURN_IF_ERROR(CheckFinite(Cat("sampling.logit_bias[", id, "]"), bias));
    to.logit_bias.emplace_back(static_cast<int32_t>(id), bias);
  }
  std::sort(to.logit_bias.begin(), to.logit_bias.end());  // a map on the wire has no order
  MOE_RETURN_IF_ERROR(CheckRange<uint32_t>("sampling.n", from.n(), 0, limits.max_n));
  request->num_choices = std::max<uint32_t>(1, from.n());
  return Status();
}

Status MapStopping(const v1::Stopping& from, const LoadedModel& model, const RequestLimits& limits, Request* request,
                   TextWanted* text) {
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  constexpr int64_t kUnlimited = kMax;  // the engine lowers it to what is left of the context
  if (from.has_max_new_tokens()) {
    MOE_RETURN_IF_ERROR(CheckRange<uint32_t>("stopping.max_new_tokens", from.max_new_tokens(), 1, kMax));
    request->max_new_tokens = from.max_new_tokens();
  } else {
    request->max_new_tokens = std::clamp<int64_t>(model.generation.max_new_tokens.value_or(kUnlimited), 1, kUnlimited);
  }
  MOE_RETURN_IF_ERROR(
      CheckRange<int64_t>("stopping.min_new_tokens", from.min_new_tokens(), 0, request->max_new_tokens));
  request->min_new_tokens = from.min_new_tokens();
  text->options.min_tokens = from.min_new_tokens();
  MOE_RETURN_IF_ERROR(CheckRange<int64_t>("stopping.stop count", from.stop_size(), 0, limits.max_stop_strings));
  for (int i = 0; i < from.stop_size(); ++i) {
    MOE_RETURN_IF_ERROR(CheckRange<int64_t>(Cat("stopping.stop[", i, "] length in bytes"),
                                            static_cast<int64_t>(from.stop(i).size()), 1, limits.max_stop_bytes));
    text->options.stop.push_back(from.stop(i));
  }
  text->options.include_stop = from.include_stop();
  MOE_RETURN_IF_ERROR(
      CheckRange<int64_t>("stopping.stop_token_ids count", from.stop_token_ids_size(), 0, limits.max_stop_tokens));
  MOE_ASSIGN_OR_RETURN(request->stop_token_ids,
                       MapTokenIds(from.stop_token_ids(), "stopping.stop_token_ids", model.spec.vocab_size));
  if (!from.ignore_eos()) request->eos_token_ids = model.eos_token_ids;
  return Status();
}

Status MapOutput(const v1::OutputOptions& from, const LoadedModel& model, Request* request, TextWanted* text) {
  const auto vocab = static_cast<int32_t>(model.spec.vocab_size);
  if (from.has_logprobs()) {
    MOE_RETURN_IF_ERROR(CheckRange<int32_t>("output.logprobs", from.logprobs(), -1, vocab));
    request->logprobs = from.logprobs();
  }
  if (from.has_prompt_logprobs()) {
    MOE_RETURN_IF_ERROR(CheckRange<int32_t>("output.prompt_logprobs", from.prompt_logprobs(), -1, vocab));
    request->prompt_logprobs = from.prompt_logprobs();
  }
  text->show = !from.skip_text();
  text->options.keep_special_tokens = from.keep_special_tokens();
  request->routed_experts = from.routed_experts();
  return Status();
}

Status NeedsTokenizer(const std::string& what) {
  return absl::FailedPreconditionError(
      Cat(what, ": this model has no tokenizer; send token ids (tokens.ids) and set output.skip_text"));
}

}  // namespace

StatusOr<std::vector<int32_t>> MapTokenIds(const google::protobuf::RepeatedField<uint32_t>& ids,
                                           const std::string& field, int64_t vocab_size) {
  std::vector<int32_t> mapped;
  mapped.reserve(ids.size());
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocab_size) return OutOfRange(Cat(field, "[", i, "]"), ids[i], Cat("[0, ", vocab_size - 1, "]"));
    mapped.push_back(static_cast<int32_t>(ids[i]));
  }
  return mapped;
}

StatusOr<ChatPrompt> MapChat(const v1::Chat& chat, const std::string& field, const RequestLimits& limits) {
  MOE_RETURN_IF_ERROR(
      CheckRange<int64_t>(field + ".messages count", chat.messages_size(), 1, limits.max_chat_messages));
  ChatPrompt prompt;
  prompt.messages = nlohmann::ordered_json::array();
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& from = chat.messages(i);
    const std::string place = Cat(field, ".messages[", i, "]");
    nlohmann::ordered_json message = {{"role", from.role()}, {"content", from.content()}};
    if (!from.extra_json().empty()) {
      MOE_ASSIGN_OR_RETURN(nlohmann::ordered_json extra, ParseJsonObject(from.extra_json(), place + ".extra_json"));
      message.update(extra);
    }
    if (!message["role"].is_string() || message["role"].get_ref<const std::string&>().empty()) {
      return InvalidError(place, ".role: is empty or not a string");
    }
    prompt.messages.push_back(std::move(message));
  }
  if (!chat.tools_json().empty()) {
    MOE_ASSIGN_OR_RETURN(prompt.tools, ParseJsonObjects(chat.tools_json(), field + ".tools_json"));
  }
  if (!chat.template_arguments_json().empty()) {
    MOE_ASSIGN_OR_RETURN(prompt.arguments,
                         ParseJsonObject(chat.template_arguments_json(), field + ".template_arguments_json"));
  }
  prompt.continue_final_message = chat.continue_final_message();
  prompt.add_generation_prompt = !chat.omit_generation_prompt() && !prompt.continue_final_message;
  return prompt;
}

Status CheckSeconds(double value, const std::string& field) {
  if (value >= 0 && std::isfinite(value)) return Status();
  return OutOfRange(field, value, "[0, inf)");
}

StatusOr<GenerateSpec> MapGenerateRequest(const v1::GenerateRequest& request, const MappingContext& context) {
  const LoadedModel& model = context.model;
  GenerateSpec spec;
  Request& to = spec.request;
  if (request.has_constraint()) {
    return UnsupportedError("constraint: constrained output is not offered by this version");
  }
  MOE_RETURN_IF_ERROR(MapSampling(request.sampling(), model.generation, model.spec.vocab_size, context.limits, &to));
  MOE_RETURN_IF_ERROR(MapStopping(request.stopping(), model, context.limits, &to, &spec.text_wanted));
  MOE_RETURN_IF_ERROR(MapOutput(request.output(), model, &to, &spec.text_wanted));
  const int64_t longest = context.limits.max_identifier_bytes;
  MOE_RETURN_IF_ERROR(
      CheckRange<int64_t>("request_id length in bytes", static_cast<int64_t>(request.request_id().size()), 0, longest));
  MOE_RETURN_IF_ERROR(
      CheckRange<int64_t>("cache_salt length in bytes", static_cast<int64_t>(request.cache_salt().size()), 0, longest));
  to.id = request.request_id().empty() ? RandomRequestId() : request.request_id();
  to.cache_salt = request.cache_salt();
  to.priority = request.priority();

  if (to.routed_experts && model.spec.MoeLayers().empty()) {
    return absl::FailedPreconditionError("output.routed_experts: this model has no MoE layers");
  }
  switch (request.input_case()) {
    case v1::GenerateRequest::kText:
      if (model.tokenizer == nullptr) return NeedsTokenizer("text");
      spec.input = GenerateSpec::Input::kText;
      // No tokenizer makes so few tokens of it: refused before it is copied and tokenized.
      if (static_cast<int64_t>(request.text().size()) > model.spec.max_positions * kMaxBytesPerToken) {
        return InvalidError("text: ", request.text().size(), " bytes cannot fit the model's ", model.spec.max_positions,
                            " positions");
      }
      spec.text = request.text();
      break;
    case v1::GenerateRequest::kTokens: {
      spec.input = GenerateSpec::Input::kTokens;
      if (request.tokens().ids_size() > model.spec.max_positions) {
        return InvalidError("tokens.ids: ", request.tokens().ids_size(), " tokens are more than the model's ",
                            model.spec.max_positions, " positions");
      }
      MOE_ASSIGN_OR_RETURN(to.prompt, MapTokenIds(request.tokens().ids(), "tokens.ids", model.spec.vocab_size));
      if (to.prompt.empty()) return InvalidError("tokens.ids: is empty; a prompt needs at least one token");
      break;
    }
    case v1::GenerateRequest::kChat: {
      if (model.tokenizer == nullptr) return NeedsTokenizer("chat");
      if (model.chat_template == nullptr) {
        return absl::FailedPreconditionError("chat: this model has no chat template; send text instead");
      }
      spec.input = GenerateSpec::Input::kChat;
      MOE_ASSIGN_OR_RETURN(ChatPrompt chat, MapChat(request.chat(), "chat", context.limits));
      spec.chat = std::make_shared<const ChatPrompt>(std::move(chat));
      break;
    }
    case v1::GenerateRequest::INPUT_NOT_SET:
      return InvalidError("input: is not set; give one of text, tokens, chat");
  }
  if (spec.text_wanted.NeedsTokenizer() && model.tokenizer == nullptr) {
    return NeedsTokenizer(spec.text_wanted.show ? "output.skip_text" : "stopping.stop");
  }
  return spec;
}

}  // namespace moe
