#include "loaders/weight_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "loaders/architectures.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr NonFinite kNone;
constexpr NonFinite kHasNan{.nan = true};
constexpr NonFinite kHasPlus{.plus_infinity = true};
constexpr NonFinite kHasMinus{.minus_infinity = true};

uint16_t HalfBits(float value) {  // of what the tests have
  if (std::isnan(value)) return 0x7e01;
  if (std::isinf(value)) return value > 0 ? 0x7c00 : 0xfc00;
  return value > 0 ? 0x7bff : 0xfbff;  // the largest
}

// `value` as element `at` of a vector of `count` largest finite numbers, at an odd address.
NonFinite Find(DType dtype, int64_t count, int64_t at, float value, WorkerPool* pool) {
  const size_t size = DTypeSize(dtype);
  std::vector<std::byte> data(1 + static_cast<size_t>(count) * size);
  for (int64_t i = 0; i < count; ++i) {
    const float element = i == at ? value : i % 2 == 0 ? 3e38f : -3e38f;
    const uint16_t bits = dtype == DType::kF16 ? HalfBits(element) : FloatToBf16(element);
    std::byte* out = data.data() + 1 + static_cast<size_t>(i) * size;
    if (dtype == DType::kF32) {
      std::memcpy(out, &element, size);
    } else {
      std::memcpy(out, &bits, size);
    }
  }
  return FindNonFinite({.dtype = dtype, .data = data.data() + 1, .rows = 1, .cols = count, .row_stride = count}, pool);
}

TEST(FindNonFiniteTest, EveryDtypeAndPlace) {
  WorkerPool pool(2);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t count : {1, 7, 64, 2047, 2048, 5000}) {
      EXPECT_EQ(Find(dtype, count, -1, 0, &pool), kNone) << DTypeName(dtype) << count;
      for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
        EXPECT_EQ(Find(dtype, count, at, kNan, &pool), kHasNan) << DTypeName(dtype) << count;
        EXPECT_EQ(Find(dtype, count, at, -kNan, &pool), kHasNan) << DTypeName(dtype) << count;
        EXPECT_EQ(Find(dtype, count, at, kInfinity, &pool), kHasPlus) << DTypeName(dtype) << count;
        EXPECT_EQ(Find(dtype, count, at, -kInfinity, &pool), kHasMinus) << DTypeName(dtype) << count;
      }
    }
  }
}

// One NaN in a block of 4 matrices' worth of memory: found by the view that has the element and by no other.
TEST(FindNonFiniteTest, EveryLayout) {
  WorkerPool pool(3);
  constexpr int64_t kRows = 70, kCols = 60;
  std::vector<float> data(4 * kRows * kCols, 1.0f);
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  const auto view = [&](int64_t offset) {
    return WeightSource{.dtype = DType::kF32,
                        .data = bytes + offset * static_cast<int64_t>(sizeof(float)),
                        .rows = kRows,
                        .cols = kCols};
  };
  std::vector<WeightSource> layouts;
  for (const int64_t part : {0, 1}) {
    WeightSource plain = view(part * kRows * kCols);
    plain.row_stride = kCols;
    WeightSource turned = view(part * kRows);  // side by side in a matrix of twice the columns, transposed
    turned.row_stride = 1;
    turned.col_stride = 2 * kRows;
    WeightSource interleaved = view(part * kCols);
    interleaved.row_stride = 2 * kCols;
    WeightSource both = view(part);
    both.row_stride = 2;
    both.col_stride = 2 * kRows;
    WeightSource heads = view(part * 7 * kCols);  // groups of 7 rows in turn
    heads.row_stride = kCols;
    heads.group_rows = 7;
    heads.group_stride = 14 * kCols;
    WeightSource sparse = view(part);
    sparse.row_stride = 4 * kCols;
    sparse.col_stride = 4;
    for (const WeightSource& layout : {plain, turned, interleaved, both, heads, sparse}) layouts.push_back(layout);
  }
  for (size_t at = 0; at < data.size(); at += 41) {
    data[at] = kNan;
    for (const WeightSource& layout : layouts) {
      bool within = false;
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t c = 0; c < kCols; ++c) {
          const std::byte* element = layout.data + (layout.RowOffset(r) + c * layout.col_stride) * 4;
          within = within || element == bytes + at * sizeof(float);
        }
      }
      EXPECT_EQ(FindNonFinite(layout, &pool).nan, within) << at;
    }
    data[at] = 1;
  }
}

// In a Qwen3-MoE checkpoint; `name` is the checkpoint's.
Status CheckWith(const std::string& stored, const std::string& canonical, float value) {
  moe::testing::FileMap content = moe::testing::SoundFiles();
  moe::testing::EditTensors(&content, [&](std::vector<moe::testing::TinyTensor>* tensors) {
    for (moe::testing::TinyTensor& tensor : *tensors) {
      if (tensor.name != stored) continue;
      int64_t count = 1;
      for (const int64_t dim : tensor.shape) count *= dim;
      std::vector<float> values(static_cast<size_t>(count), 1.0f);
      values.back() = value;
      tensor.data = moe::testing::Floats(values);
    }
  });
  const std::unique_ptr<ModelFiles> files = moe::testing::InMemory(content);
  StatusOr<ModelDescription> model = ReadModelConfig(content["config.json"]);
  EXPECT_TRUE(model.ok()) << model.status();
  const auto store = OpenWeightStore(*files, &model->spec, model->rules);
  EXPECT_TRUE(store.ok()) << store.status();
  WorkerPool pool(1);
  return CheckWeight(**store, canonical, &pool);
}

TEST(CheckWeightTest, NamesFileAndTensor) {
  const std::string stored = "model.layers.0.mlp.experts.1.down_proj.weight";
  const std::string canonical = "layers.0.moe.experts.1.down";
  EXPECT_TRUE(CheckWith(stored, canonical, 1).ok());
  const Status nan = CheckWith(stored, canonical, kNan);
  EXPECT_EQ(ErrorKind(nan), "INVALID");
  EXPECT_EQ(nan.message(), "model.safetensors: tensor " + stored + " holds NaN, expected finite numbers");
  const Status infinite = CheckWith(stored, canonical, -kInfinity);
  EXPECT_EQ(infinite.message(),
            "model.safetensors: tensor " + stored + " holds an infinite value, expected finite numbers");
  EXPECT_FALSE(CheckWith("model.norm.weight", "final_norm", -kInfinity).ok());
}

// What a summand of logits or scores may say, and nothing else.
TEST(CheckWeightTest, MinusInfinityMayMeanNever) {
  struct OneTensor : WeightStore {
    WeightSource source;
    WeightSource Get(const std::string&) const override { return source; }
    bool Has(const std::string&) const override { return true; }
    std::string SourceName(const std::string&) const override { return "stored"; }
    std::string FileName(const std::string&) const override { return "file"; }
    void Release(const std::string&) const override {}
    DType expert_dtype() const override { return DType::kF32; }
    int64_t total_bytes() const override { return 0; }
    int64_t ignored_tensors() const override { return 0; }
  };
  const auto ok = [](const std::string& name, float value) {
    WorkerPool pool(1);
    OneTensor store;
    store.source = {.dtype = DType::kF32,
                    .data = reinterpret_cast<const std::byte*>(&value),
                    .rows = 1,
                    .cols = 1,
                    .row_stride = 1};
    return CheckWeight(store, name, &pool).ok();
  };
  for (const char* name : {"layers.0.moe.router.select_bias", "layers.1.moe.router.bias", "lm_head.bias",
                           "layers.0.attn.sinks", "layers.0.mla.sinks", "layers.0.cattn.sinks"}) {
    EXPECT_TRUE(ok(name, -kInfinity)) << name;
    EXPECT_FALSE(ok(name, kInfinity)) << name;
    EXPECT_FALSE(ok(name, kNan)) << name;
  }
  for (const char* name : {"layers.0.moe.router", "layers.0.moe.router.sinks", "layers.0.attn.q.bias", "final_norm",
                           "layers.0.mamba.dt_bias", "embed"}) {
    EXPECT_FALSE(ok(name, -kInfinity)) << name;
  }
}

}  // namespace
}  // namespace moe
