// Every activation against transformers' numbers in float64, clamped at, below and above its limit; experts of clamped
// activations and with biases against the reference backend.
#include <cmath>
#include <map>

#include "tests/engine/device/unit_values.h"

namespace moe::device_test {
namespace {

using Json = nlohmann::json;

Activation ReadActivation(const Json& name) {
  static const std::map<std::string, Activation> kNames = {
      {"silu", Activation::kSilu},   {"gelu_tanh", Activation::kGeluTanh},   {"gelu_erf", Activation::kGeluErf},
      {"relu2", Activation::kRelu2}, {"swiglu_oai", Activation::kSwigluOai}, {"swiglu_step", Activation::kSwigluStep}};
  return kNames.at(name.get<std::string>());
}

// Runs an activation over pairs (gate[i], up[i]): one row of all the numbers, matrices that pick one each.
std::vector<float> Activated(Backend& backend, const Json& json, const std::vector<float>& gate,
                             const std::vector<float>& up) {
  const auto n = static_cast<int64_t>(gate.size());
  const int64_t width = 2 * n;
  std::vector<float> pick_gate(static_cast<size_t>(n * width)), pick_up(pick_gate.size()), down(pick_gate.size());
  for (int64_t i = 0; i < n; ++i) {
    pick_gate[i * width + i] = 1;
    pick_up[i * width + n + i] = 1;
    down[i * n + i] = 1;
  }
  std::vector<float> row = gate;
  row.insert(row.end(), up.begin(), up.end());
  const Values g = ToValues(DType::kF32, pick_gate), u = ToValues(DType::kF32, pick_up),
               d = ToValues(DType::kF32, down), x = ToValues(DType::kF32, row);
  const bool gated = json["activation"] != "relu2";
  const ExpertSource source{.gate = gated ? Source(g, n, width) : WeightSource{},
                            .up = Source(gated ? u : g, n, width),
                            .down = Source(d, width, n)};
  const auto packed = backend.PackExperts({&source, 1}, gated, DType::kF32, nullptr);
  std::vector<float> out(static_cast<size_t>(width));
  const std::byte* rows[] = {x.bytes.data()};
  const ExpertGroup groups[] = {{0, 0, 1}};
  backend.Experts({.experts = packed.get(),
                   .activation = ReadActivation(json["activation"]),
                   .limit = json.value("limit", 0.0f),
                   .alpha = json.value("alpha", 0.0f),
                   .rows = rows,
                   .groups = groups,
                   .out = reinterpret_cast<std::byte*>(out.data())});
  out.resize(static_cast<size_t>(n));
  return out;
}

void ExpectActivated(Backend& backend, const Json& json, const std::vector<float>& gate, const std::vector<float>& up) {
  const std::vector<float> want = Flat<float>(json["out"]);
  std::vector<double> bound;
  for (size_t i = 0; i < want.size(); ++i) {
    // The inner function within 16 u of itself and, where it is a difference of terms near the gate's size, 0.3 u of
    // the gate's more (experts_test); a product and, in kSwigluOai, a sum. Below, what is lost where e^-gate is
    // infinite.
    const double scale = std::fabs(gate[i]) * (std::fabs(up[i]) + 1);
    bound.push_back(kU * (20 * std::fabs(want[i]) + 6 * scale * (std::fabs(gate[i]) < 20 ? 1 : 0)) + 0x1p-116);
  }
  ExpectNear(Cat(backend.name(), " ", json["activation"].get<std::string>(), " limit ", json.value("limit", 0.0f)),
             Activated(backend, json, gate, up), want, bound, 1);
}

TEST(ActivationValues, OfEveryKind) {
  const Json units = ReadUnits("activations");
  const std::vector<float> gate = Flat<float>(units["gate"]);
  const std::vector<float> up = Flat<float>(units["up"]);
  ForEachBackend([&](Backend& backend) {
    for (const Json& json : units["gated"]) ExpectActivated(backend, json, gate, up);
    for (const Json& json : units["plain"]) ExpectActivated(backend, json, gate, up);
  });
}

// The form that whole rows pass through, without a gate: of mixtures with a non-linear output and of ZAYA's router.
TEST(ActivationValues, ActivateOp) {
  const Json units = ReadUnits("activations");
  const std::vector<float> gate = Flat<float>(units["gate"]);
  const std::vector<float> up = Flat<float>(units["up"]);
  ForEachBackend([&](Backend& backend) {
    for (const Json& json : units["gated"]) {
      if (json.contains("limit")) continue;
      const std::vector<float> want = Flat<float>(json["out"]);
      for (size_t i = 0; i < gate.size(); ++i) {
        if (up[i] != 1) continue;
        float x = gate[i];
        backend.Activate({.activation = ReadActivation(json["activation"]), .x = &x, .count = 1});
        const double bound = kU * (20 * std::fabs(want[i]) + (std::fabs(gate[i]) < 20 ? 6 * std::fabs(gate[i]) : 0));
        EXPECT_NEAR(x, want[i], bound + 0x1p-116) << backend.name() << " " << json["activation"] << " " << gate[i];
      }
    }
  });
}

}  // namespace
}  // namespace moe::device_test
