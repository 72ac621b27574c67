#include "loaders/architectures/nemotron_h_pattern.h"

#include "loaders/json_text.h"

namespace moe {
namespace {

std::string PatternOfTypes(ConfigReader* config, const std::vector<std::string>& types) {
  std::string pattern;
  for (const std::string& type : types) {
    if (type == "mamba" || type == "linear_attention") {
      pattern += kNemotronMamba;
    } else if (type == "attention" || type == "full_attention") {
      pattern += kNemotronAttention;
    } else if (type == "mlp") {
      pattern += kNemotronMlp;
    } else if (type == "moe") {
      pattern += kNemotronMoe;
    } else {
      config->Unsupported("layers_block_type", Cat("has the layer kind ", Quoted(type),
                                                   "; supported: mamba, linear_attention, attention, full_attention, "
                                                   "mlp, moe"));
    }
  }
  return pattern;
}

}  // namespace

std::string ReadNemotronPattern(ConfigReader* config) {
  const std::string letters = config->StringOr("hybrid_override_pattern", "");
  const std::string types = PatternOfTypes(config, config->StringList("layers_block_type"));
  const size_t unknown = letters.find_first_not_of("M*-E");
  if (unknown != std::string::npos) {
    config->Unsupported("hybrid_override_pattern",
                        Cat("has the layer kind ", Quoted(letters.substr(unknown, 1)), "; supported: M, *, -, E"));
  }
  if (!letters.empty() && !types.empty() && letters != types) {
    config->Invalid("layers_block_type", Cat("means ", Quoted(types), ", but hybrid_override_pattern is ",
                                             Quoted(letters), "; they must agree"));
  }
  std::string pattern = letters.empty() ? types : letters;
  if (pattern.empty()) config->Invalid("hybrid_override_pattern", "absent, as is layers_block_type");
  const auto size = static_cast<int64_t>(pattern.size());
  if (size > limits::kMaxLayers) config->Invalid("hybrid_override_pattern", Cat("has ", size, " layers"));
  if (config->IntOr("num_hidden_layers", size, 1, limits::kMaxLayers) != size) {
    config->Invalid("num_hidden_layers", Cat("differs from the ", size, " layers of the layer pattern"));
  }
  return pattern;
}

}  // namespace moe
