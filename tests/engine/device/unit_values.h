// tests/data/units: what transformers' own modules give for small inputs (tests/reference/make_unit_values.py).
#ifndef MOE_TESTS_ENGINE_DEVICE_UNIT_VALUES_H_
#define MOE_TESTS_ENGINE_DEVICE_UNIT_VALUES_H_

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "engine/device/backend.h"
#include "nlohmann/json.hpp"
#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {

inline nlohmann::json ReadUnits(const std::string& name) {
  std::ifstream in(std::string(MOE_TEST_DATA_DIR) + "/units/" + name + ".json");
  EXPECT_TRUE(in.good()) << name;
  return nlohmann::json::parse(in);
}

// A list of numbers, or of such lists one after another.
template <typename T>
std::vector<T> Flat(const nlohmann::json& values) {
  if (!values.empty() && values[0].is_number()) return values.get<std::vector<T>>();
  std::vector<T> out;
  for (const nlohmann::json& row : values) {
    const auto part = row.get<std::vector<T>>();
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// Runs `body` with the reference backend and every path of the cpu backend, in float32.
inline void ForEachBackend(const std::function<void(Backend&)>& body) {
  WorkerPool pool(2);
  body(*CreateReferenceBackend(DType::kF32));
  for (const CpuIsa isa : AvailableIsas()) body(*MakeCpu(isa, DType::kF32, &pool));
}

}  // namespace moe::device_test

#endif  // MOE_TESTS_ENGINE_DEVICE_UNIT_VALUES_H_
