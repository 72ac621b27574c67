#include "engine/cache/kv_store.h"

namespace moe {
namespace {

int64_t LayerBlockBytes(const LayerSpec& layer, DType act, bool values) {
  const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
  if (attention == nullptr) return 0;
  const int64_t dim = values ? attention->v_head_dim : attention->head_dim;
  return attention->num_kv_heads * kKvBlockTokens * dim * static_cast<int64_t>(DTypeSize(act));
}

}  // namespace

int64_t KvStore::BytesPerBlock(const ModelSpec& spec, DType act) {
  int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    bytes += LayerBlockBytes(layer, act, false) + LayerBlockBytes(layer, act, true);
  }
  return bytes;
}

StatusOr<std::unique_ptr<KvStore>> KvStore::Create(const ModelSpec& spec, DType act, int64_t num_blocks) {
  std::unique_ptr<KvStore> store(new KvStore);
  store->num_blocks_ = num_blocks;
  store->layers_.resize(spec.layers.size());
  MOE_ASSIGN_OR_RETURN(store->memory_,
                       LazyMemory::Create(static_cast<size_t>(BytesPerBlock(spec, act) * num_blocks), "the K/V cache"));
  std::byte* next = store->memory_.data();
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    KvLayer& layer = store->layers_[l];
    layer.num_blocks = num_blocks;
    layer.k = next;
    next += LayerBlockBytes(spec.layers[l], act, false) * num_blocks;
    layer.v = next;
    next += LayerBlockBytes(spec.layers[l], act, true) * num_blocks;
  }
  return store;
}

}  // namespace moe
