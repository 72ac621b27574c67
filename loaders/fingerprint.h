// Whether two processes have the same checkpoint, without reading it all.
#ifndef MOE_LOADERS_FINGERPRINT_H_
#define MOE_LOADERS_FINGERPRINT_H_

#include <string>
#include <string_view>

#include "loaders/model_spec.h"
#include "loaders/weight_store.h"

namespace moe {

// 16 hexadecimal digits of a 64-bit FNV-1a hash (Fowler, Noll, Vo) over config.json, the names, types and shapes of all
// tensors that the spec needs, and the beginnings of a few hundred of them. Tells different checkpoints apart, also
// fine-tunings of one model; no defence against forgery or a flipped bit.
std::string CheckpointFingerprint(std::string_view config, const ModelSpec& spec, const WeightStore& weights);

}  // namespace moe

#endif  // MOE_LOADERS_FINGERPRINT_H_
