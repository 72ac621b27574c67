// What a checkpoint is, in words and as JSON, for `moe inspect`.
#ifndef MOE_ENGINE_TOOLS_DESCRIBE_MODEL_H_
#define MOE_ENGINE_TOOLS_DESCRIBE_MODEL_H_

#include <string>

#include "loaders/model_loader.h"
#include "nlohmann/json.hpp"

namespace moe {

// "softmax over 16 experts, top 4, weights renormalised".
std::string DescribeRouter(const MoeSpec& moe);
// "attention: 4 heads of 32, 2 K/V heads, RoPE on 32 dims, QK-norm".
std::string DescribeMixer(const MixerSpec& mixer);
std::string DescribeFfn(const FfnSpec& ffn);

// Parameters, from the shapes.
int64_t CountParameters(const ModelSpec& spec);
int64_t CountActiveParameters(const ModelSpec& spec);

nlohmann::ordered_json DescribeModelJson(const LoadedModel& model);
std::string DescribeModelText(const LoadedModel& model);

}  // namespace moe

#endif  // MOE_ENGINE_TOOLS_DESCRIBE_MODEL_H_
