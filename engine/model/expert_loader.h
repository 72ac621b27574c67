// ExpertLoader: which routed experts a PackedModel holds, changed while the model computes with others of them. One
// thread at a time.
#ifndef MOE_ENGINE_MODEL_EXPERT_LOADER_H_
#define MOE_ENGINE_MODEL_EXPERT_LOADER_H_

#include <atomic>
#include <cstdint>

#include "engine/model/packed_model.h"

namespace moe {

class ExpertLoader {
 public:
  // `held`: what `model` holds (PackModel's). backend and pool: of the thread that loads, not those of a step under
  // way; of the same kind as packed the model. All but `held` outlive this.
  ExpertLoader(const ModelSpec& spec, const WeightStore& store, PackedModel* model, Backend* backend, WorkerPool* pool,
               ExpertLists held);

  const ExpertLists& held() const { return held_; }
  // Memory that Load(wanted) takes.
  int64_t BytesToLoad(const ExpertLists& wanted) const;
  // Reads what of `wanted` is not held from the checkpoint and packs it. An error (a weight that is not finite;
  // CANCELLED once `cancel`, if not null, is set) leaves what was loaded so far.
  Status Load(const ExpertLists& wanted, const std::atomic<bool>* cancel);
  // Memory of what was loaded here and not let go of, less what was let go of from the beginning.
  int64_t loaded_bytes() const { return loaded_bytes_; }
  // Lets go of what is not in `wanted`. REQUIRES: no step uses it any more.
  void KeepOnly(const ExpertLists& wanted);

 private:
  const ModelSpec& spec_;
  const WeightStore& store_;
  PackedModel* model_;
  Backend* backend_;
  WorkerPool* pool_;
  int64_t ExpertBytes(size_t layer) const;

  ExpertLists held_;
  int64_t loaded_bytes_ = 0;
};

// All experts of every MoE layer.
ExpertLists AllExperts(const ModelSpec& spec);

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_EXPERT_LOADER_H_
