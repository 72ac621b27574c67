#include "engine/cache/kv_store.h"

namespace moe {
namespace {

// Bytes of one block of one layer.
struct BlockBytes {
  int64_t k = 0;
  int64_t v = 0;
  int64_t plane = 0;
  int64_t tail = 0;
  int64_t total() const { return k + v + plane + tail; }
};

BlockBytes BytesOf(const CacheShape& shape, DType act) {
  const auto element = static_cast<int64_t>(DTypeSize(act));
  return {shape.k_heads * kKvBlockTokens * shape.k_dim * element,
          shape.k_heads * kKvBlockTokens * shape.v_dim * element,
          kKvBlockTokens * shape.plane * static_cast<int64_t>(sizeof(float)),
          shape.tail * static_cast<int64_t>(sizeof(float))};
}

}  // namespace

int64_t KvStore::BytesPerBlock(const ModelSpec& spec, DType act) {
  int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) bytes += BytesOf(CacheOf(layer, spec.hidden_size), act).total();
  return bytes;
}

StatusOr<std::unique_ptr<KvStore>> KvStore::Create(const ModelSpec& spec, DType act, int64_t num_blocks) {
  std::unique_ptr<KvStore> store(new KvStore);
  store->num_blocks_ = num_blocks;
  store->layers_.resize(spec.layers.size());
  MOE_ASSIGN_OR_RETURN(store->memory_,
                       LazyMemory::Create(static_cast<size_t>(BytesPerBlock(spec, act) * num_blocks), "the K/V cache"));
  std::byte* next = store->memory_.data();
  // The planes and tails first: float32 stays aligned whatever the number of 16-bit keys.
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const CacheShape shape = CacheOf(spec.layers[l], spec.hidden_size);
    store->layers_[l].plane = reinterpret_cast<float*>(next);
    store->layers_[l].plane_width = shape.plane;
    next += BytesOf(shape, act).plane * num_blocks;
    store->layers_[l].tail = reinterpret_cast<float*>(next);
    store->layers_[l].tail_size = shape.tail;
    next += BytesOf(shape, act).tail * num_blocks;
  }
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    KvLayer& layer = store->layers_[l];
    const BlockBytes bytes = BytesOf(CacheOf(spec.layers[l].mixer), act);
    layer.num_blocks = num_blocks;
    layer.k = next;
    next += bytes.k * num_blocks;
    if (bytes.v > 0) layer.v = next;
    next += bytes.v * num_blocks;
  }
  return store;
}

}  // namespace moe
