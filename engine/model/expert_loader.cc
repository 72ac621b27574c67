#include "engine/model/expert_loader.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "engine/model/tensor_packer.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

// Single experts of one layer.
class ExpertPacker : private TensorPacker {
 public:
  ExpertPacker(const WeightStore& store, int64_t layer, Backend* backend, WorkerPool* pool)
      : TensorPacker(store, DType::kF32, backend, pool) {
    prefix_ = Cat("layers.", layer, ".");
  }

  Status Pack(int32_t expert, const MlpSpec& spec, PackedExperts* into) {
    const std::string parent = Cat("moe.experts.", expert);
    CheckExpert(parent, spec);
    MOE_RETURN_IF_ERROR(status_);
    const ExpertSource source = Source(parent, spec);
    backend_->SetExpert(into, expert, &source);
    ReleaseExpert(parent, spec);
    return absl::OkStatus();
  }
};

std::vector<int32_t> Missing(const std::vector<int32_t>& wanted, const std::vector<int32_t>& held) {
  std::vector<int32_t> missing;
  std::set_difference(wanted.begin(), wanted.end(), held.begin(), held.end(), std::back_inserter(missing));
  return missing;
}

}  // namespace

ExpertLists AllExperts(const ModelSpec& spec) {
  ExpertLists all;
  for (int64_t l : spec.MoeLayers()) {
    std::vector<int32_t>& experts = all.emplace_back(std::get<MoeSpec>(spec.layers[l].ffn).num_experts);
    std::iota(experts.begin(), experts.end(), 0);
  }
  return all;
}

ExpertLoader::ExpertLoader(const ModelSpec& spec, const WeightStore& store, PackedModel* model, Backend* backend,
                           WorkerPool* pool, ExpertLists held)
    : spec_(spec), store_(store), model_(model), backend_(backend), pool_(pool), held_(std::move(held)) {
  MOE_CHECK_EQ(held_.size(), spec.MoeLayers().size());
}

int64_t ExpertLoader::ExpertBytes(size_t layer) const {
  const int64_t l = spec_.MoeLayers()[layer];
  const PackedExperts& experts = *model_->layers[l].moe->experts.experts;
  const int64_t matrices = std::get<MoeSpec>(spec_.layers[l].ffn).expert.gated ? 3 : 2;
  return matrices * experts.width() * experts.intermediate() * static_cast<int64_t>(DTypeSize(experts.format()));
}

int64_t ExpertLoader::BytesToLoad(const ExpertLists& wanted) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    bytes += static_cast<int64_t>(Missing(wanted[i], held_[i]).size()) * ExpertBytes(i);
  }
  return bytes;
}

Status ExpertLoader::Load(const ExpertLists& wanted, const std::atomic<bool>* cancel) {
  const std::vector<int64_t> layers = spec_.MoeLayers();
  MOE_CHECK_EQ(wanted.size(), layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const MlpSpec& mlp = std::get<MoeSpec>(spec_.layers[layers[i]].ffn).expert;
    ExpertPacker packer(store_, layers[i], backend_, pool_);
    for (int32_t expert : Missing(wanted[i], held_[i])) {
      if (cancel != nullptr && *cancel) return absl::CancelledError("these experts are not wanted any more");
      MOE_RETURN_IF_ERROR(packer.Pack(expert, mlp, model_->layers[layers[i]].moe->experts.experts.get()));
      held_[i].insert(std::upper_bound(held_[i].begin(), held_[i].end(), expert), expert);
      loaded_bytes_ += ExpertBytes(i);
    }
  }
  return absl::OkStatus();
}

void ExpertLoader::KeepOnly(const ExpertLists& wanted) {
  const std::vector<int64_t> layers = spec_.MoeLayers();
  for (size_t i = 0; i < layers.size(); ++i) {
    for (int32_t expert : Missing(held_[i], wanted[i])) {
      backend_->SetExpert(model_->layers[layers[i]].moe->experts.experts.get(), expert, nullptr);
      loaded_bytes_ -= ExpertBytes(i);
    }
    std::vector<int32_t> kept;
    std::set_intersection(held_[i].begin(), held_[i].end(), wanted[i].begin(), wanted[i].end(),
                          std::back_inserter(kept));
    held_[i] = std::move(kept);
  }
}

}  // namespace moe
