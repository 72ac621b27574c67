#include "loaders/quantized_names.h"

#include <string>

namespace moe {
namespace {

// Each follows a '.' (a parameter of its own) or a '_' (glued to the name of a stacked parameter).
constexpr std::string_view kSuffixes[] = {
    "qweight",
    "qzeros",
    "scales",
    "g_idx",
    "weight_packed",
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_shape",
    "weight_g_idx",
    "weight_zero_point",
    "input_scale",
    "scale_inv",
    "input_global_scale",
    "weight_global_scale",
    "blocks",
    "absmax",
    "quant_map",
};

}  // namespace

bool IsQuantizedName(std::string_view name) {
  for (const std::string_view suffix : kSuffixes) {
    if (name.size() <= suffix.size() || !name.ends_with(suffix)) continue;
    const char before = name[name.size() - suffix.size() - 1];
    if (before == '.' || before == '_') return true;
  }
  return name.find(".quant_state.") != std::string_view::npos;
}

}  // namespace moe
