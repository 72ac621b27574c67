// Building a Tokenizer from tokenizer.json and tokenizer_config.json.
#include <algorithm>
#include <string>
#include <utility>

#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/tokenizer.h"
#include "loaders/tokenizer/tokenizer_parts.h"

namespace moe {
namespace {

constexpr std::string_view kFile = "tokenizer.json";
constexpr std::string_view kConfigFile = "tokenizer_config.json";

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string Place(std::string_view field) {
  return Cat(kFile, ": ", field);
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(std::string_view json, std::string_view config_json) {
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer());
  MOE_RETURN_IF_ERROR(tokenizer->ReadTokenizer(json));
  if (!config_json.empty()) {
    MOE_ASSIGN_OR_RETURN(const Json config, ParseJsonObject(config_json, kConfigFile));
    MOE_RETURN_IF_ERROR(tokenizer->ReadConfig(config));
  }
  return tokenizer;
}

// `truncation` and `padding` are not read: they are about batches in training, a server encodes what it is given.
Status Tokenizer::ReadTokenizer(std::string_view json) {
  MOE_ASSIGN_OR_RETURN(const Json file, ParseJsonObject(json, kFile));
  MOE_ASSIGN_OR_RETURN(parts_->added, AddedVocabulary::Create(FindField(file, "added_tokens"), Place("added_tokens")));
  SpecialIds special;
  for (const AddedToken& token : parts_->added.tokens()) {
    if (token.special) special.Add(token.id);
  }
  MOE_ASSIGN_OR_RETURN(parts_->normalizer, CreateNormalizer(FindField(file, "normalizer"), Place("normalizer")));
  MOE_ASSIGN_OR_RETURN(parts_->pre_tokenizer,
                       CreatePreTokenizer(FindField(file, "pre_tokenizer"), Place("pre_tokenizer")));
  MOE_ASSIGN_OR_RETURN(parts_->post_processor,
                       ReadPostProcessor(FindField(file, "post_processor"), Place("post_processor")));
  MOE_ASSIGN_OR_RETURN(parts_->decoder, TokenDecoder::Create(FindField(file, "decoder"), Place("decoder")));
  const Json* model = FindField(file, "model");
  if (model == nullptr || !model->is_object()) return InvalidError(kFile, ": model is missing or not an object");
  MOE_ASSIGN_OR_RETURN(parts_->model, CreateTokenModel(*model, std::move(special), Place("model")));
  MOE_RETURN_IF_ERROR(Annotate(parts_->added.Prepare(parts_->normalizer.get()), Place("added_tokens: ")));
  MOE_RETURN_IF_ERROR(FillEntries(Place("added_tokens"), /*may_shadow=*/false));
  return CheckPostProcessor();
}

Status Tokenizer::FillEntries(std::string_view where, bool may_shadow) {
  const Vocabulary& vocabulary = parts_->model->vocabulary();
  int32_t size = vocabulary.size();
  for (const AddedToken& token : parts_->added.tokens()) size = std::max(size, token.id + 1);
  entries_.resize(static_cast<size_t>(size));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string* token = vocabulary.TokenOrNull(id);
    if (token == nullptr) continue;
    entries_[static_cast<size_t>(id)].token = *token;
    entries_[static_cast<size_t>(id)].valid = true;
  }
  for (const AddedToken& token : parts_->added.tokens()) {
    Entry& entry = entries_[static_cast<size_t>(token.id)];
    if (entry.valid && entry.token != token.content) {
      return InvalidError(where, ": id ", token.id, " is used by \"", token.content, "\" and by \"", entry.token,
                          "\" of the vocabulary");
    }
    const int32_t model_id = vocabulary.Find(token.content);
    if (model_id != Vocabulary::kNone && model_id != token.id && !may_shadow) {
      return InvalidError(where, ": \"", token.content, "\" has id ", token.id, ", and id ", model_id,
                          " in the vocabulary");
    }
    entry.token = token.content;
    entry.valid = true;
    entry.special = token.special;
    if (token.match_text != token.content) entry.decoding_token = token.match_text;
  }
  return absl::OkStatus();
}

Status Tokenizer::CheckPostProcessor() const {
  for (const auto* ids : {&parts_->post_processor.prefix, &parts_->post_processor.suffix}) {
    for (const int32_t id : *ids) {
      if (!IsValidId(id)) return InvalidError(Place("post_processor"), ": id ", id, " is not in the vocabulary");
    }
  }
  return absl::OkStatus();
}

Status Tokenizer::ReadConfig(const Json& config) {
  for (const auto& [name, value] : config.items()) {
    // "add_bos_token" is a flag, and null means that there is no such token.
    if (!EndsWith(name, "_token") || value.is_boolean() || value.is_null()) continue;
    if (value.is_string()) {
      special_tokens_[name] = value.get<std::string>();
      continue;
    }
    const std::string where = Cat(kConfigFile, ": ", name);
    if (!value.is_object()) return InvalidError(where, " is ", value.type_name(), ", expected a string or an object");
    MOE_ASSIGN_OR_RETURN(special_tokens_[name], RequireString(value, "content", where));
  }
  return absl::OkStatus();
}

}  // namespace moe
