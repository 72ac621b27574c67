// What a checkpoint is, in words and as JSON, for `moe inspect`.
#ifndef MOE_ENGINE_TOOLS_DESCRIBE_MODEL_H_
#define MOE_ENGINE_TOOLS_DESCRIBE_MODEL_H_

#include <string>
#include <vector>

#include "loaders/model_loader.h"
#include "nlohmann/json.hpp"

namespace moe {

// "softmax over 16 experts, top 4, weights renormalised".
std::string DescribeRouter(const MoeSpec& moe);
// "attention: 4 heads of 32, 2 K/V heads, RoPE on 32 dims, QK-norm".
std::string DescribeMixer(const MixerSpec& mixer);
std::string DescribeFfn(const FfnSpec& ffn);
// " beside an MLP (…)", or nothing.
std::string DescribeBeside(const LayerSpec& layer);

// "0-3, 5, 8-20 by 4", of ascending numbers.
std::string Ranges(const std::vector<int64_t>& numbers);

nlohmann::ordered_json DescribeModelJson(const LoadedModel& model);
std::string DescribeModelText(const LoadedModel& model);

// The tensors that a checkpoint of it is expected to have, a line for each pattern of names.
nlohmann::ordered_json DescribeTensorsJson(const LoadedModel& model);
std::string DescribeTensorsText(const LoadedModel& model);

}  // namespace moe

#endif  // MOE_ENGINE_TOOLS_DESCRIBE_MODEL_H_
