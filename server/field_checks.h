// Checks of single request fields. Every failure is INVALID_ARGUMENT "field: value is not in range".
#ifndef MOE_SERVER_FIELD_CHECKS_H_
#define MOE_SERVER_FIELD_CHECKS_H_

#include <cmath>
#include <limits>
#include <string>

#include "parallel/base/status.h"

namespace moe {

template <typename T>
Status OutOfRange(const std::string& field, const T& value, const std::string& range) {
  return InvalidError(field, ": ", value, " is not in ", range);
}

// low ≤ value ≤ high; NaN is outside of everything.
template <typename T>
Status CheckRange(const std::string& field, T value, T low, T high) {
  if (value >= low && value <= high) return Status();
  return OutOfRange(field, value, Cat("[", low, ", ", high, "]"));
}

// 0 < value ≤ high.
inline Status CheckPositive(const std::string& field, float value, float high) {
  if (value > 0 && value <= high && std::isfinite(value)) return Status();
  if (std::isinf(high)) return OutOfRange(field, value, "(0, inf)");
  return OutOfRange(field, value, Cat("(0, ", high, "]"));
}

inline Status CheckFinite(const std::string& field, float value) {
  if (std::isfinite(value)) return Status();
  return OutOfRange(field, value, "the finite numbers");
}

}  // namespace moe

#endif  // MOE_SERVER_FIELD_CHECKS_H_
