#include "loaders/model_loader.h"

#include <algorithm>
#include <iterator>

#include "loaders/architectures.h"
#include "loaders/fingerprint.h"
#include "loaders/json_text.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kAddedTokens = "added_tokens.json";
// What families ship that have no tokenizer.json.
constexpr const char* kVocabularyFiles[] = {"tokenizer.model", "tiktoken.model", "hy.tiktoken", "qwen.tiktoken"};
constexpr const char* kTemplateFile = "chat_template.jinja";

Status ReadGeneration(const ModelFiles& files, LoadedModel* model) {
  if (files.Has(kGenerationConfig)) {
    MOE_ASSIGN_OR_RETURN(const auto view, files.Open(kGenerationConfig));
    MOE_ASSIGN_OR_RETURN(model->generation, ParseGenerationConfig(view->text(), kGenerationConfig));
  }
  if (const std::vector<std::string>& unused = model->generation.unused; !unused.empty()) {
    std::string names;
    for (const std::string& name : unused) names += (names.empty() ? "" : ", ") + name;
    MOE_LOG(kWarning) << kGenerationConfig << ": " << names << (unused.size() > 1 ? " are" : " is")
                      << " not implemented; tokens are generated as if the file did not say so";
  }
  const std::vector<int32_t>& own = model->generation.eos_token_ids;
  for (const int32_t id : own) {
    if (id >= model->spec.vocab_size) {
      return InvalidError(kGenerationConfig, ": eos_token_id is ", id, ", expected 0 to vocab_size - 1 (",
                          model->spec.vocab_size - 1, ")");
    }
  }
  model->eos_token_ids = own.empty() ? model->spec.eos_token_ids : own;
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Tokenizer>> ReadVocabularyFile(const ModelFiles& files, const char* name,
                                                        std::string_view tokenizer_config, const ModelSpec& spec) {
  MOE_ASSIGN_OR_RETURN(const auto view, files.Open(name));
  std::shared_ptr<const FileView> added_tokens;
  if (files.Has(kAddedTokens)) {
    MOE_ASSIGN_OR_RETURN(added_tokens, files.Open(kAddedTokens));
  }
  return Tokenizer::Create({.name = name,
                            .bytes = view->text(),
                            .config_json = tokenizer_config,
                            .added_tokens_json = added_tokens ? added_tokens->text() : std::string_view(),
                            .family = spec.family,
                            .vocab_size = static_cast<int32_t>(spec.vocab_size)});
}

Status ReadTokenizer(const ModelFiles& files, std::string_view tokenizer_config, LoadedModel* model) {
  const char* name = nullptr;
  if (files.Has(kTokenizer)) {
    name = kTokenizer;
    MOE_ASSIGN_OR_RETURN(const auto view, files.Open(kTokenizer));
    MOE_ASSIGN_OR_RETURN(model->tokenizer, Tokenizer::Create(view->text(), tokenizer_config));
  } else {
    const auto there = std::find_if(std::begin(kVocabularyFiles), std::end(kVocabularyFiles),
                                    [&](const char* file) { return files.Has(file); });
    if (there == std::end(kVocabularyFiles)) return absl::OkStatus();
    name = *there;
    MOE_ASSIGN_OR_RETURN(model->tokenizer, ReadVocabularyFile(files, name, tokenizer_config, model->spec));
  }
  if (model->tokenizer->vocab_size() > model->spec.vocab_size) {
    return InvalidError(name, ": has the id ", model->tokenizer->vocab_size() - 1, ", but vocab_size in ", kConfig,
                        " is ", model->spec.vocab_size);
  }
  return absl::OkStatus();
}

// As in transformers, a chat_template.jinja replaces the template in tokenizer_config.json.
Status ReadChatTemplate(const ModelFiles& files, std::string_view tokenizer_config, LoadedModel* model) {
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  if (!tokenizer_config.empty()) {
    MOE_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson(tokenizer_config, kTokenizerConfig));
    if (!parsed.is_object())
      return InvalidError(kTokenizerConfig, ": is a ", parsed.type_name(), ", expected an object");
    config = nlohmann::ordered_json(parsed);
  }
  std::map<std::string, std::string> special_tokens = SpecialTokensFromConfig(config);
  if (model->tokenizer != nullptr) {  // What a vocabulary file names itself.
    special_tokens.insert(model->tokenizer->special_tokens().begin(), model->tokenizer->special_tokens().end());
  }
  if (files.Has(kTemplateFile)) {
    MOE_ASSIGN_OR_RETURN(const auto view, files.Open(kTemplateFile));
    MOE_ASSIGN_OR_RETURN(model->chat_template,
                         ChatTemplates::Create(std::string(view->text()), special_tokens, kTemplateFile));
  } else if (config.contains("chat_template") && !config["chat_template"].is_null()) {
    MOE_ASSIGN_OR_RETURN(model->chat_template,
                         ChatTemplates::Create(config["chat_template"], special_tokens, kTokenizerConfig));
  }
  if (model->chat_template != nullptr && SortsTools(config)) model->chat_template->SortTools();
  return absl::OkStatus();
}

Status OpenWeights(const ModelFiles& files, const LoadOptions& options, LoadedModel* model) {
  if (options.absent_weights && !files.Has(kWeightFile)) {
    if (!files.Has(kWeightIndexFile)) return absl::OkStatus();
    MOE_ASSIGN_OR_RETURN(const WeightIndex index, ReadWeightIndex(files, kWeightIndexFile));
    IndexReport report = CheckWeightIndex(index, files, &model->spec, model->rules);
    if (report.shards_here < report.shards) {
      model->index = std::move(report);
      return absl::OkStatus();
    }
  }
  MOE_ASSIGN_OR_RETURN(model->weights, OpenWeightStore(files, &model->spec, model->rules, model->quantization));
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const ModelFiles& files, const LoadOptions& options) {
  auto model = std::make_unique<LoadedModel>();
  model->path = files.description();
  MOE_ASSIGN_OR_RETURN(const auto config, files.Open(kConfig));
  MOE_ASSIGN_OR_RETURN(ModelDescription description, ReadModelConfig(config->text(), kConfig));
  for (const std::string& warning : description.warnings) MOE_LOG(kWarning) << warning;
  model->spec = std::move(description.spec);
  model->rules = std::move(description.rules);
  model->declared_dtype = std::move(description.dtype);
  model->quantization = std::move(description.quantization);
  MOE_RETURN_IF_ERROR(ReadGeneration(files, model.get()));

  std::shared_ptr<const FileView> tokenizer_config;
  if (files.Has(kTokenizerConfig)) {
    MOE_ASSIGN_OR_RETURN(tokenizer_config, files.Open(kTokenizerConfig));
  }
  const std::string_view tokenizer_text = tokenizer_config ? tokenizer_config->text() : std::string_view();
  MOE_RETURN_IF_ERROR(ReadTokenizer(files, tokenizer_text, model.get()));
  MOE_RETURN_IF_ERROR(ReadChatTemplate(files, tokenizer_text, model.get()));
  if (options.weights) MOE_RETURN_IF_ERROR(OpenWeights(files, options, model.get()));
  if (model->weights != nullptr) {
    model->fingerprint = CheckpointFingerprint(config->text(), model->spec, *model->weights);
  }
  if (model->weights != nullptr && !model->quantization.method.empty() && model->weights->quantized_weights() == 0) {
    MOE_LOG(kWarning) << kConfig << ": quantization_config says " << Quoted(model->quantization.method)
                      << ", but the tensors are not quantised; they are used as they are";
  }
  return model;
}

}  // namespace moe
