// KvStore: the tensors of the paged K/V cache of one rank. Which block belongs to whom is BlockPool's business.
#ifndef MOE_ENGINE_CACHE_KV_STORE_H_
#define MOE_ENGINE_CACHE_KV_STORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device/ops.h"
#include "engine/tensor/lazy_memory.h"
#include "loaders/model_spec.h"
#include "parallel/base/status.h"

namespace moe {

class KvStore {
 public:
  // Reserves address space for num_blocks blocks of every attention layer; pages are touched as blocks are first used.
  static StatusOr<std::unique_ptr<KvStore>> Create(const ModelSpec& spec, DType act, int64_t num_blocks);

  // Bytes of one block over all layers.
  static int64_t BytesPerBlock(const ModelSpec& spec, DType act);

  // REQUIRES: layer `l` of the model has K/V of its own.
  const KvLayer& layer(int64_t l) const { return layers_[l]; }
  int64_t num_blocks() const { return num_blocks_; }

 private:
  KvStore() = default;
  LazyMemory memory_;
  int64_t num_blocks_ = 0;
  std::vector<KvLayer> layers_;  // by model layer; empty for layers without attention
};

}  // namespace moe

#endif  // MOE_ENGINE_CACHE_KV_STORE_H_
