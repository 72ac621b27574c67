// Opens a checkpoint: config.json → ModelSpec, tensors → WeightStore, generation_config.json, tokenizer, chat template.
#ifndef MOE_LOADERS_MODEL_LOADER_H_
#define MOE_LOADERS_MODEL_LOADER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loaders/chat_template/chat_templates.h"
#include "loaders/generation_config.h"
#include "loaders/model_files.h"
#include "loaders/model_spec.h"
#include "loaders/tokenizer/tokenizer.h"
#include "loaders/weight_index.h"
#include "loaders/weight_store.h"

namespace moe {

struct LoadedModel {
  std::string path;  // ModelFiles::description()
  ModelSpec spec;
  TensorRules rules;           // how the checkpoint calls the spec's tensors
  std::string declared_dtype;  // config.json's; the stored tensors decide
  QuantizationConfig quantization;
  std::string fingerprint;  // CheckpointFingerprint; empty without weights
  GenerationConfig generation;
  std::vector<int32_t> eos_token_ids;            // the ones in force: generation_config.json's, else config.json's
  std::unique_ptr<WeightStore> weights;          // null when only the description was asked for, or could be given
  std::optional<IndexReport> index;              // with absent_weights: of an index whose files are not all there
  std::unique_ptr<Tokenizer> tokenizer;          // null: the checkpoint has none
  std::unique_ptr<ChatTemplates> chat_template;  // null: the checkpoint has none
};

struct LoadOptions {
  bool weights = true;          // false: config, tokenizer and template only
  bool absent_weights = false;  // weight files that are not there are no error
};

// Reads and checks everything; no weight is converted or copied. Errors: status.h's three kinds, naming the file.
StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const ModelFiles& files, const LoadOptions& options);

}  // namespace moe

#endif  // MOE_LOADERS_MODEL_LOADER_H_
