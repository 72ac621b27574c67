#include "loaders/architectures.h"

#include "loaders/architectures/families.h"
#include "loaders/json_text.h"

namespace moe {
namespace {

constexpr Architecture kArchitectures[] = {
    {"MixtralForCausalLM", "mixtral", "mixtral", ReadMixtral},
    {"NemotronHForCausalLM", "nemotron_h", "nemotron_h", ReadNemotronH},
    {"Qwen2MoeForCausalLM", "qwen2_moe", "qwen2_moe", ReadQwen2Moe},
    {"Qwen3MoeForCausalLM", "qwen3_moe", "qwen3_moe", ReadQwen3Moe},
};

const Architecture* FindArchitecture(ConfigReader* config, std::span<const Architecture> table) {
  const std::vector<std::string> names = config->StringList("architectures");
  const std::string model_type = config->StringOr("model_type", "");
  if (!config->ok()) return nullptr;
  std::string supported;
  for (const Architecture& entry : table) {
    if (names.empty() ? entry.model_type != nullptr && model_type == entry.model_type : names[0] == entry.name) {
      return &entry;
    }
    supported += Cat(supported.empty() ? "" : ", ", entry.name);
  }
  config->Unsupported("architectures", Cat("the architecture ", names.empty() ? "of model_type " : "",
                                           Quoted(names.empty() ? model_type : names[0]),
                                           " is not supported; supported are: ", supported));
  return nullptr;
}

}  // namespace

std::span<const Architecture> Architectures() {
  return kArchitectures;
}

StatusOr<ModelDescription> ReadModelConfig(std::string_view text, const std::string& file,
                                           std::span<const Architecture> table) {
  constexpr size_t kMaxConfigBytes = size_t{4} << 20;
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document,
                       ParseJson(text, file, {.max_bytes = kMaxConfigBytes, .non_finite = true}));
  ConfigReader root(&document, file);
  MOE_RETURN_IF_ERROR(root.status());
  const Architecture* architecture = FindArchitecture(&root, table);
  if (architecture == nullptr) return root.status();
  ConfigReader config = root.Nested("text_config");
  ModelDescription model;
  model.spec.architecture = architecture->name;
  model.spec.family = architecture->family;
  architecture->read(&config, &model.spec, &model.rules);
  MOE_RETURN_IF_ERROR(config.status());
  MOE_RETURN_IF_ERROR(Annotate(ValidateSpec(model.spec), file));
  return model;
}

}  // namespace moe
