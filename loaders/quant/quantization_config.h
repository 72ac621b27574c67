// What config.json's quantization_config says of how the weights are stored.
#ifndef MOE_LOADERS_QUANT_QUANTIZATION_CONFIG_H_
#define MOE_LOADERS_QUANT_QUANTIZATION_CONFIG_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "parallel/base/status.h"

namespace moe {

struct QuantizationConfig {
  std::string method;           // quant_method: "gptq", "compressed-tensors", …; empty: none
  int bits = 0;                 // of a weight; 0: not said. Where a tensor's shape says it too, they must agree
  int64_t group_size = 0;       // columns that share a scale; −1: all; 0: not said
  bool zeros_less_one = false;  // GPTQ's first format stores zero points less one
  int64_t block_rows = 0;       // of blocks that share a scale; 0: not said
  int64_t block_cols = 0;
  bool operator==(const QuantizationConfig&) const = default;
};

// Of the config's text part or beside it; without one, a default object. UNSUPPORTED naming the field for a method or
// variant that cannot be read, INVALID for one that makes no sense; `file` is for messages.
StatusOr<QuantizationConfig> ReadQuantizationConfig(const nlohmann::json& document, const std::string& file);

}  // namespace moe

#endif  // MOE_LOADERS_QUANT_QUANTIZATION_CONFIG_H_
