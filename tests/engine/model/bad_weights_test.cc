// Every kind of tensor that any family has is looked at for NaN when a model is packed.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "engine/model/packed_model.h"
#include "loaders/architectures.h"
#include "loaders/model_files.h"
#include "tests/loaders/family_fixtures.h"

namespace moe {
namespace {

// A store in which one tensor has a NaN as its last element.
class Spoilt : public WeightStore {
 public:
  Spoilt(const WeightStore* sound, std::string name) : sound_(*sound), name_(std::move(name)) {
    const WeightSource source = sound_.Get(name_);
    values_.assign(static_cast<size_t>(source.rows * source.cols), 0.5f);
    values_.back() = std::numeric_limits<float>::quiet_NaN();
    spoilt_ = {.dtype = DType::kF32,
               .data = reinterpret_cast<const std::byte*>(values_.data()),
               .rows = source.rows,
               .cols = source.cols,
               .row_stride = source.cols};
  }
  WeightSource Get(const std::string& name) const override { return name == name_ ? spoilt_ : sound_.Get(name); }
  bool Has(const std::string& name) const override { return sound_.Has(name); }
  std::string SourceName(const std::string& name) const override { return sound_.SourceName(name); }
  std::string FileName(const std::string& name) const override { return sound_.FileName(name); }
  void Release(const std::string&) const override {}
  DType expert_dtype() const override { return DType::kF32; }
  int64_t total_bytes() const override { return sound_.total_bytes(); }
  int64_t ignored_tensors() const override { return 0; }

 private:
  const WeightStore& sound_;
  std::string name_;
  std::vector<float> values_;
  WeightSource spoilt_;
};

TEST(BadWeightsTest, NanInAnyKindOfTensor) {
  std::set<std::string> seen;
  WorkerPool pool(2);
  const std::unique_ptr<Backend> backend = CreateReferenceBackend(DType::kF32);
  for (const std::string& family : moe::testing::Families()) {
    const auto files = OpenModelDirectory(moe::testing::FixtureRoot() + "/" + family);
    ASSERT_TRUE(files.ok()) << files.status();
    auto model = ReadModelConfig((*(*files)->Open("config.json"))->text());
    ASSERT_TRUE(model.ok()) << family << ": " << model.status();
    const auto store = OpenWeightStore(**files, &model->spec, model->rules);
    ASSERT_TRUE(store.ok()) << family << ": " << store.status();
    const auto pack = [&](const WeightStore& weights) {
      return PackModel(model->spec, weights, DType::kF32, backend.get(), &pool, nullptr).status();
    };
    EXPECT_TRUE(pack(**store).ok()) << family << ": " << pack(**store);
    for (const TensorNeed& need : RequiredTensors(model->spec)) {
      if (need.below > 0 || !(*store)->Has(need.name)) continue;
      if (!seen.insert(ParseCanonicalName(need.name).pattern).second) continue;
      const Status status = pack(Spoilt(store->get(), need.name));
      EXPECT_EQ(ErrorKind(status), "INVALID") << family << ": " << need.name;
      EXPECT_NE(std::string(status.message()).find("tensor " + (*store)->SourceName(need.name) + " holds NaN"),
                std::string::npos)
          << family << ": " << status;
    }
  }
  EXPECT_GT(seen.size(), 100u);
}

}  // namespace
}  // namespace moe
