// Every norm and rotation against transformers' numbers.
#include <cmath>
#include <map>

#include "engine/device/reference/reference_math.h"
#include "loaders/rope.h"
#include "tests/engine/device/unit_values.h"

namespace moe::device_test {
namespace {

using Json = nlohmann::json;

TEST(NormValues, OfEveryKind) {
  static const std::map<std::string, NormKind> kKinds = {
      {"rms", NormKind::kRms}, {"rms_offset", NormKind::kRmsOffset}, {"layer", NormKind::kLayer}};
  const Json units = ReadUnits("norms");
  const int64_t dim = units["dim"];
  const std::vector<float> x = Flat<float>(units["x"]);
  const auto rows = static_cast<int64_t>(x.size()) / dim;
  const std::vector<float> weight = Flat<float>(units["weight"]);
  const std::vector<float> bias = Flat<float>(units["bias"]);
  ForEachBackend([&](Backend& backend) {
    for (const Json& json : units["cases"]) {
      NormOp op;
      op.x = x.data();
      op.rows = rows;
      op.dim = dim;
      op.stride = dim;
      op.spec.kind = kKinds.at(json["kind"]);
      op.spec.eps = json["eps"];
      op.spec.bias = json.value("bias", false);
      op.spec.weight = json["weight"];
      op.spec.groups = json.value("groups", 1);
      op.weight = op.spec.weight ? weight.data() : nullptr;
      op.bias = op.spec.bias ? bias.data() : nullptr;
      std::vector<float> got(x.size());
      op.out_f32 = got.data();
      backend.Norm(op);
      const std::vector<float> want = Flat<float>(json["out"]);
      std::vector<double> bound;
      for (int64_t r = 0; r < rows; ++r) {
        double largest = 0;
        for (int64_t i = 0; i < dim; ++i) largest = std::max<double>(largest, std::fabs(x[r * dim + i]));
        for (int64_t i = 0; i < dim; ++i) {
          // As in rows_test: (dim + 10) u of the value; a mean errs by (dim + 1) u of the largest element, which the
          // scale (at most 1/√eps, and about 0.5 for the row around 1000) multiplies, to second order the scale itself.
          const double mean = op.spec.kind == NormKind::kLayer ? static_cast<double>(dim + 1) * kU * largest : 0;
          const double scale = largest > 100 ? 0.5 : largest < 0.01 ? 316 : 1;
          const double w = op.weight == nullptr ? 1 : 1 + std::fabs(weight[i]);
          bound.push_back(static_cast<double>(dim + 14) * kU * (std::fabs(want[r * dim + i]) + 1) +
                          8 * mean * scale * w);
        }
      }
      ExpectNear(Cat(backend.name(), ", ", json["name"].get<std::string>()), got, want, bound, dim);
    }
  });
}

TEST(RopeValues, FrequenciesAndTablesOfEveryKind) {
  const Json units = ReadUnits("ropes");
  const auto positions = units["positions"].get<std::vector<int64_t>>();
  for (const Json& json : units["cases"]) {
    const std::string name = json["name"];
    const Json config_json = {{"rope_parameters", json["parameters"]}};
    ConfigReader config(&config_json, "config.json");
    const RopeSpec rope = ReadRope(&config, {.head_dim = units["head_dim"], .max_positions = units["max_positions"]});
    ASSERT_TRUE(config.ok()) << name << ": " << config.status();
    const auto frequencies = Flat<float>(json["frequencies"]);
    ASSERT_EQ(rope.inv_freq.size(), frequencies.size()) << name;
    // A power, quotients and a blend, in float32 there as here.
    for (size_t i = 0; i < frequencies.size(); ++i) {
      EXPECT_NEAR(rope.inv_freq[i], frequencies[i], 6 * kU * frequencies[i]) << name << " " << i;
    }
    EXPECT_NEAR(rope.cos_sin_scale, json["factor"].get<double>(), 1e-8) << name;

    const std::vector<float> want_cos = Flat<float>(json["cos"]), want_sin = Flat<float>(json["sin"]);
    const auto half = static_cast<int64_t>(frequencies.size());
    for (size_t p = 0; p < positions.size(); ++p) {
      std::vector<float> cos(static_cast<size_t>(half)), sin(cos.size());
      reference::RotationAt(rope, positions[p], cos.data(), sin.data());
      for (int64_t i = 0; i < half; ++i) {
        // An angle errs as its frequency does.
        const double angle = static_cast<double>(positions[p]) * frequencies[i];
        const double bound = (8 * kU * angle + 2 * kU) * rope.cos_sin_scale;
        EXPECT_NEAR(cos[i], want_cos[p * half + i], bound) << name << " position " << positions[p] << " pair " << i;
        EXPECT_NEAR(sin[i], want_sin[p * half + i], bound) << name << " position " << positions[p] << " pair " << i;
      }
    }
  }
}

// One head as it leaves Qkv, in the order of dimensions that transformers leaves it in.
TEST(RopeValues, Rotations) {
  const Json units = ReadUnits("ropes")["rotations"];
  const std::vector<float> x = Flat<float>(units["x"]);
  const std::vector<float> cos = Flat<float>(units["cos"]), sin = Flat<float>(units["sin"]);
  const auto head_dim = static_cast<int64_t>(x.size());
  ForEachBackend([&](Backend& backend) {
    for (const char* kind : {"half_split", "interleaved", "interleaved_complex", "half_split_partial"}) {
      AttentionSpec spec;
      spec.num_heads = spec.num_kv_heads = 1;
      spec.head_dim = spec.v_head_dim = head_dim;
      spec.rope = RopeSpec{};
      spec.rope->rotary_dim = kind == std::string("half_split_partial") ? head_dim / 2 : head_dim;
      if (std::string(kind).starts_with("interleaved")) spec.rope->layout = RopeSpec::Layout::kInterleaved;
      std::vector<float> qkv = x;
      for (int other = 0; other < 2; ++other) qkv.insert(qkv.end(), x.begin(), x.end());
      std::vector<std::byte> k(static_cast<size_t>(kKvBlockTokens * head_dim) * 4), v(k.size());
      std::vector<float> q(x.size());
      const std::vector<int32_t> blocks = {0};
      const MixerSlice slice{.count = 1, .blocks = blocks};
      backend.Qkv({.spec = &spec,
                   .qkv = qkv.data(),
                   .stride = 3 * head_dim,
                   .rows = 1,
                   .cos = cos.data(),
                   .sin = sin.data(),
                   .slices = {&slice, 1},
                   .kv = {.k = k.data(), .v = v.data(), .num_blocks = 1},
                   .q_out = reinterpret_cast<std::byte*>(q.data())});
      // Two products and a sum of numbers below 3.
      ExpectNear(Cat(backend.name(), " ", kind), q, Flat<float>(units[kind]), std::vector<double>(q.size(), 12 * kU),
                 head_dim);
    }
  });
}

}  // namespace
}  // namespace moe::device_test
