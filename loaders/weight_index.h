// model.safetensors.index.json: which file holds which tensor, and whether the names are those that a model needs. The
// files themselves are not looked at, so a download can be judged before it begins.
#ifndef MOE_LOADERS_WEIGHT_INDEX_H_
#define MOE_LOADERS_WEIGHT_INDEX_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "loaders/model_files.h"
#include "loaders/name_matcher.h"
#include "loaders/tensor_rules.h"

namespace moe {

inline constexpr const char* kWeightFile = "model.safetensors";
inline constexpr const char* kWeightIndexFile = "model.safetensors.index.json";

struct WeightIndex {
  std::map<std::string, std::string> shard_of;  // tensor → shard, a plain file name
  std::set<std::string> shards;
  int64_t total_size = 0;  // what the index says that all tensors have, in bytes; 0: it does not say
};
// `name`: of the index. At least one shard.
StatusOr<WeightIndex> ReadWeightIndex(const ModelFiles& files, const std::string& name);

struct IndexReport {
  int64_t tensors = 0;     // in the index
  int64_t total_size = 0;  // bytes, as WeightIndex
  int64_t shards = 0;
  int64_t shards_here = 0;
  SomeNames missing;
  SomeNames unknown;                       // neither needed nor ignored by a rule
  std::map<std::string, int64_t> ignored;  // reason of the rule → how many
  std::string quantized;                   // not empty: a tensor of a quantised format
  bool sound() const { return missing.count == 0 && unknown.count == 0 && quantized.empty(); }
};
// Selection biases that the checkpoint may lack, and does, are taken out of the spec, as OpenWeightStore does.
IndexReport CheckWeightIndex(const WeightIndex& index, const ModelFiles& files, ModelSpec* spec,
                             const TensorRules& rules);

}  // namespace moe

#endif  // MOE_LOADERS_WEIGHT_INDEX_H_
