// Opens a checkpoint: config.json → ModelSpec, tensors → WeightStore, generation_config.json, tokenizer, chat template.
#ifndef MOE_LOADERS_MODEL_LOADER_H_
#define MOE_LOADERS_MODEL_LOADER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loaders/chat_template/chat_template.h"
#include "loaders/model_files.h"
#include "loaders/model_spec.h"
#include "loaders/tokenizer/tokenizer.h"
#include "loaders/weight_store.h"

namespace moe {

// generation_config.json; absent fields are nullopt.
struct GenerationConfig {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
  std::vector<int32_t> eos_token_ids;  // replace config.json's when not empty
};

struct LoadedModel {
  std::string path;  // ModelFiles::description()
  ModelSpec spec;
  GenerationConfig generation;
  std::vector<int32_t> eos_token_ids;  // the ones in force
  std::unique_ptr<WeightStore> weights;      // null when only the description was asked for
  std::unique_ptr<Tokenizer> tokenizer;      // null: the checkpoint has none
  std::unique_ptr<ChatTemplateSet> chat_template;  // null: the checkpoint has none
};

struct LoadOptions {
  bool weights = true;  // false: config, tokenizer and template only
};

// Reads and checks everything; no weight is converted or copied. Errors: status.h's three kinds, naming the file.
StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const ModelFiles& files, const LoadOptions& options);

}  // namespace moe

#endif  // MOE_LOADERS_MODEL_LOADER_H_
