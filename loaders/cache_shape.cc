// What each mixer keeps of a sequence.
#include "loaders/model_spec.h"

namespace moe {
namespace {

CacheShape CacheOfMixer(const std::monostate&) {
  return {};
}
CacheShape CacheOfMixer(const AttentionSpec& attn) {
  if (attn.share_kv_with_layer >= 0) return {};
  CacheShape shape{.k_heads = attn.num_kv_heads, .k_dim = attn.head_dim, .v_dim = attn.v_head_dim};
  if (attn.block_indexer) {
    // The key; with pooled keys the key as projected, and in the last token of each block the block's.
    const bool pooled = attn.block_indexer->pooling == BlockIndexerSpec::Pooling::kMeanKey;
    shape.plane = attn.block_indexer->head_dim * (pooled ? 2 : 1);
  }
  const int64_t k_dim = attn.num_kv_heads * attn.head_dim;
  const int64_t v_dim = attn.num_kv_heads * attn.v_head_dim;
  if (attn.kv_conv > 0) shape.tail = (attn.kv_conv - 1) * (k_dim + v_dim);
  if (attn.cca) {
    // q and k as projected, then after the first convolution; v_delayed.
    const int64_t rows = attn.cca->depthwise_taps + attn.cca->grouped_taps - 2;
    shape.tail = rows * (attn.num_heads * attn.head_dim + k_dim) + v_dim / 2;
  }
  return shape;
}
CacheShape CacheOfMixer(const MlaSpec& mla) {
  const bool scores = mla.indexer && mla.indexer->share_with_layer < 0;
  // No values: they are the keys' latents.
  return {.k_heads = 1, .k_dim = mla.kv_lora + mla.rope_dim, .plane = scores ? mla.indexer->head_dim : 0};
}
CacheShape CacheOfMixer(const CompressedAttentionSpec& attn) {
  // Key and value are one; entries and index keys live in the planes (CompressedKeysOp).
  const int64_t entry = attn.compressor ? attn.head_dim : 0;
  const int64_t index = attn.indexer ? attn.indexer->head_dim : 0;
  return {.k_heads = 1, .k_dim = attn.head_dim, .plane = 2 * attn.series() * (entry + index)};
}
CacheShape CacheOfMixer(const Mamba2Spec& mamba) {
  return {.state = mamba.conv_dim() * (mamba.conv_kernel - 1) + mamba.num_heads * mamba.head_dim * mamba.state_size};
}
CacheShape CacheOfMixer(const GatedDeltaSpec& delta) {
  return {.state = delta.conv_dim() * (delta.conv_kernel - 1) + delta.v_dim() * delta.k_head_dim};
}
CacheShape CacheOfMixer(const Mamba1Spec& mamba) {
  return {.state = mamba.inner * (mamba.conv_kernel - 1 + mamba.state_size)};
}
CacheShape CacheOfMixer(const LightningSpec& lightning) {
  return {.state = lightning.num_heads * lightning.head_dim * lightning.head_dim};
}
CacheShape CacheOfMixer(const ShortConvSpec& conv) {
  return {.state = conv.channels * (conv.kernel - 1)};
}

}  // namespace

CacheShape CacheOf(const MixerSpec& mixer) {
  return std::visit([](const auto& spec) { return CacheOfMixer(spec); }, mixer);
}

CacheShape CacheOf(const LayerSpec& layer, int64_t hidden_size) {
  CacheShape shape = CacheOf(layer.mixer);
  if (layer.ngram) shape.state += layer.ngram->streams * hidden_size * layer.ngram->conv_window();
  for (const int64_t taps : {layer.mixer_conv, layer.ffn_conv}) {
    if (taps > 0) shape.tail += (taps - 1) * hidden_size;
  }
  return shape;
}

}  // namespace moe
