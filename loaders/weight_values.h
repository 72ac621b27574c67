// Weights that are no finite numbers: one NaN makes every answer of the model NaN, and a server would give them out as
// text. Looked for while weights are packed, which reads every one of them anyway.
#ifndef MOE_LOADERS_WEIGHT_VALUES_H_
#define MOE_LOADERS_WEIGHT_VALUES_H_

#include <string>

#include "loaders/weight_store.h"
#include "parallel/base/status.h"
#include "parallel/worker_pool.h"

namespace moe {

// What of the kind a tensor holds.
struct NonFinite {
  bool nan = false;
  bool plus_infinity = false;
  bool minus_infinity = false;
  bool operator==(const NonFinite&) const = default;
};

// Of a source of floats; other dtypes hold none. Large ones are looked at on the pool's threads.
NonFinite FindNonFinite(const WeightSource& source, WorkerPool* pool);

// INVALID, naming the file and the checkpoint's tensor, unless every weight of the canonical tensor `name` is finite.
// An infinity anywhere in a matrix, a norm or a convolution turns to NaN with the first 0 it meets, so none is let
// through there. -infinity is let through where it only ever is a summand of what a softmax, a sigmoid or a comparison
// gets, and says "never": biases of the router and of the head, and attention sinks.
Status CheckWeight(const WeightStore& store, const std::string& name, WorkerPool* pool);

}  // namespace moe

#endif  // MOE_LOADERS_WEIGHT_VALUES_H_
