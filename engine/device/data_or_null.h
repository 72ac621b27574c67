// Optional parameters of operations: a vector's data, or null where it is empty.
#ifndef MOE_ENGINE_DEVICE_DATA_OR_NULL_H_
#define MOE_ENGINE_DEVICE_DATA_OR_NULL_H_

#include <vector>

namespace moe {

inline const float* DataOrNull(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_DATA_OR_NULL_H_
