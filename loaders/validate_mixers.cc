// Rules of the mixers.
#include <cmath>

#include "loaders/config_reader.h"
#include "loaders/spec_checks.h"

namespace moe::spec_checks {
namespace {

Status CheckBlockIndexer(const AttentionSpec& attn) {
  const BlockIndexerSpec& indexer = *attn.block_indexer;
  MOE_RETURN_IF_ERROR(CheckRange("index_n_heads", indexer.num_heads, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("index_head_dim", indexer.head_dim, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("index_block_size", indexer.block_size, 1, limits::kMaxPositions));
  MOE_RETURN_IF_ERROR(CheckRange("index_topk_blocks", indexer.top_blocks, 1, limits::kMaxPositions));
  MOE_RETURN_IF_ERROR(CheckRange("index_local_blocks", indexer.local_blocks, 0, indexer.top_blocks));
  MOE_RETURN_IF_ERROR(CheckNorm(indexer.norm));
  if (attn.num_heads % indexer.groups() != 0) {
    return InvalidError("num_attention_heads is ", attn.num_heads, ", not a multiple of index_n_heads (",
                        indexer.num_heads, ")");
  }
  if (attn.rope && attn.rope->rotary_dim > indexer.head_dim) {
    return UnsupportedError("the indexer's head_dim is ", indexer.head_dim, ", less than the ", attn.rope->rotary_dim,
                            " rotated dimensions of the attention heads: the pairs that turn together would be cut "
                            "apart");
  }
  if (attn.share_kv_with_layer >= 0) return UnsupportedError("a block indexer on a layer without keys of its own");
  return absl::OkStatus();
}

Status Check(const std::monostate&) {
  return absl::OkStatus();
}

// The other ways to q, k and v than one projection each.
Status CheckQkvForms(const AttentionSpec& attn) {
  const int forms = (attn.kv_conv > 0) + attn.cca.has_value() + attn.head_experts.has_value();
  if (forms > 1 || (forms > 0 && attn.share_kv_with_layer >= 0)) {
    return UnsupportedError(
        "convolved keys and values, compressed attention, mixtures of heads or shared K/V together");
  }
  MOE_RETURN_IF_ERROR(CheckRange("share_q_dim", attn.q_lora, 0, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckNorm(attn.q_lora_norm));
  if (attn.q_lora > 0 && (forms > 0 || attn.relative_bias || attn.qkv_bias || attn.share_kv_with_layer >= 0)) {
    return UnsupportedError("factored queries together with other forms of q, k and v or with biases");
  }
  if (attn.query_scale_after_cap && (attn.logit_cap <= 0 || attn.block_indexer || attn.relative_bias)) {
    return UnsupportedError("a scale of capped scores without a cap, or with sparse attention or a relative bias");
  }
  if (attn.kv_conv != 0) MOE_RETURN_IF_ERROR(CheckConvKernel("conv_kernel_size", attn.kv_conv));
  if (attn.cca) {
    MOE_RETURN_IF_ERROR(CheckConvKernel("cca_time0", attn.cca->depthwise_taps));
    MOE_RETURN_IF_ERROR(CheckConvKernel("cca_time1", attn.cca->grouped_taps));
    if (attn.qk_norm != QkNorm::kNone || attn.v_head_dim != attn.head_dim) {
      return UnsupportedError("compressed attention with query and key norms or values of another size");
    }
    if (attn.num_kv_heads * attn.head_dim % 2 != 0) {
      return InvalidError("num_key_value_heads × head_dim is ", attn.num_kv_heads * attn.head_dim,
                          ", which does not have two halves");
    }
  }
  if (attn.head_experts) {
    MOE_RETURN_IF_ERROR(CheckRange("num_local_experts", attn.head_experts->num_experts, 1, limits::kMaxExperts));
    MOE_RETURN_IF_ERROR(CheckRange("num_experts_per_tok", attn.head_experts->top_k, 1, attn.head_experts->num_experts));
    if (attn.num_heads != attn.head_experts->top_k * attn.num_kv_heads || attn.qkv_bias ||
        attn.gate != AttentionGate::kNone || attn.relative_bias) {
      return UnsupportedError("a mixture of attention heads with biases, gates or another number of heads");
    }
  }
  if (attn.relative_bias) {
    MOE_RETURN_IF_ERROR(CheckRange("d_rel", attn.relative_bias->dim, 1, limits::kMaxHeadDim));
    MOE_RETURN_IF_ERROR(CheckRange("rel_extent", attn.relative_bias->extent, 1, limits::kMaxPositions));
    if (attn.logit_cap > 0 || attn.block_indexer || attn.cca || attn.share_kv_with_layer >= 0 || attn.qkv_bias) {
      return UnsupportedError(
          "a relative position bias together with softcapping, biases, sparse, compressed or shared K/V");
    }
  }
  return absl::OkStatus();
}

Status Check(const AttentionSpec& attn) {
  MOE_RETURN_IF_ERROR(CheckRange("num_attention_heads", attn.num_heads, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("num_key_value_heads", attn.num_kv_heads, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("head_dim", attn.head_dim, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("v_head_dim", attn.v_head_dim, 1, limits::kMaxHeadDim));
  if (attn.num_heads % attn.num_kv_heads != 0) {
    return InvalidError("num_attention_heads is ", attn.num_heads, ", not a multiple of num_key_value_heads (",
                        attn.num_kv_heads, ")");
  }
  MOE_RETURN_IF_ERROR(CheckFinite("the attention scale", attn.scale));
  MOE_RETURN_IF_ERROR(CheckFinite("the attention's value scale", attn.value_scale));
  MOE_RETURN_IF_ERROR(CheckNotNegative("attn_logit_softcapping", attn.logit_cap));
  MOE_RETURN_IF_ERROR(CheckNotNegative("clip_qkv", attn.clip_qkv));
  MOE_RETURN_IF_ERROR(CheckRange("sliding_window", attn.window, 0, limits::kMaxPositions));
  MOE_RETURN_IF_ERROR(CheckRange("attention_chunk_size", attn.chunk, 0, limits::kMaxPositions));
  MOE_RETURN_IF_ERROR(CheckPositionScale(attn.query_scale));
  MOE_RETURN_IF_ERROR(CheckNorm(attn.qk_norm_spec));
  MOE_RETURN_IF_ERROR(CheckNorm(attn.v_norm));
  if (attn.block_indexer) MOE_RETURN_IF_ERROR(CheckBlockIndexer(attn));
  if (attn.block_indexer && attn.rope && attn.rope->original_positions > 0) {
    return UnsupportedError("longrope with a choice of blocks of keys");
  }
  MOE_RETURN_IF_ERROR(CheckQkvForms(attn));
  if (attn.qk_norm_spec.bias) return UnsupportedError("biases of query and key norms are not supported");
  return attn.rope ? CheckRope(*attn.rope, attn.head_dim) : absl::OkStatus();
}

Status Check(const MlaSpec& mla) {
  MOE_RETURN_IF_ERROR(CheckRange("num_attention_heads", mla.num_heads, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("q_lora_rank", mla.q_lora, 0, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckRange("kv_lora_rank", mla.kv_lora, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("qk_nope_head_dim", mla.nope_dim, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("qk_rope_head_dim", mla.rope_dim, 0, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("v_head_dim", mla.v_dim, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckFinite("the attention scale", mla.scale));
  MOE_RETURN_IF_ERROR(CheckFinite("the query scale", mla.q_scale));
  MOE_RETURN_IF_ERROR(CheckFinite("the latent scale", mla.kv_scale));
  MOE_RETURN_IF_ERROR(CheckRange("sliding_window", mla.window, 0, limits::kMaxPositions));
  MOE_RETURN_IF_ERROR(CheckPositionScale(mla.query_scale));
  MOE_RETURN_IF_ERROR(CheckNorm(mla.q_norm));
  MOE_RETURN_IF_ERROR(CheckNorm(mla.kv_norm));
  MOE_RETURN_IF_ERROR(CheckNorm(mla.k_rope_norm));
  if (mla.indexer) {
    const IndexerSpec& indexer = *mla.indexer;
    MOE_RETURN_IF_ERROR(CheckRange("index_n_heads", indexer.num_heads, 1, limits::kMaxHeads));
    MOE_RETURN_IF_ERROR(CheckRange("index_head_dim", indexer.head_dim, 1, limits::kMaxHeadDim));
    MOE_RETURN_IF_ERROR(CheckRange("index_topk", indexer.top_k, 1, limits::kMaxPositions));
    MOE_RETURN_IF_ERROR(CheckNorm(indexer.key_norm));
    if (indexer.rope) MOE_RETURN_IF_ERROR(CheckRope(*indexer.rope, indexer.head_dim));
  }
  return mla.rope ? CheckRope(*mla.rope, mla.rope_dim) : absl::OkStatus();
}

Status Check(const CompressedAttentionSpec& attn) {
  MOE_RETURN_IF_ERROR(CheckRange("num_attention_heads", attn.num_heads, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("head_dim", attn.head_dim, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("q_lora_rank", attn.q_lora, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckRange("sliding_window", attn.window, 1, limits::kMaxPositions));
  MOE_RETURN_IF_ERROR(CheckRange("o_lora_rank", attn.output_rank, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckRange("o_groups", attn.output_groups, 1, limits::kMaxHeads));
  if (attn.num_heads * attn.head_dim % attn.output_groups != 0) {
    return InvalidError("o_groups is ", attn.output_groups, ", which does not divide num_attention_heads × head_dim (",
                        attn.num_heads * attn.head_dim, ")");
  }
  MOE_RETURN_IF_ERROR(CheckFinite("the attention scale", attn.scale));
  MOE_RETURN_IF_ERROR(CheckNorm(attn.norm));
  if (attn.compressor)
    MOE_RETURN_IF_ERROR(CheckRange("compress_rates", attn.compressor->rate, 1, limits::kMaxPositions));
  if (attn.indexer) {
    if (!attn.compressor) return InvalidError("index_topk: an indexer needs compressed entries");
    MOE_RETURN_IF_ERROR(CheckRange("index_n_heads", attn.indexer->num_heads, 1, limits::kMaxHeads));
    MOE_RETURN_IF_ERROR(CheckRange("index_head_dim", attn.indexer->head_dim, 1, limits::kMaxHeadDim));
    MOE_RETURN_IF_ERROR(CheckRange("index_topk", attn.indexer->top_k, 1, limits::kMaxPositions));
    MOE_RETURN_IF_ERROR(Annotate(CheckRope(attn.rope, attn.indexer->head_dim), "the indexer"));
  }
  if (attn.rope.original_positions > 0) return UnsupportedError("longrope with compressed keys");
  return CheckRope(attn.rope, attn.head_dim);
}

Status Check(const GatedDeltaSpec& delta) {
  MOE_RETURN_IF_ERROR(CheckRange("linear_num_key_heads", delta.num_k_heads, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("linear_num_value_heads", delta.num_v_heads, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("linear_key_head_dim", delta.k_head_dim, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("linear_value_head_dim", delta.v_head_dim, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckConvKernel("linear_conv_kernel_dim", delta.conv_kernel));
  if (delta.num_v_heads % delta.num_k_heads != 0) {
    return InvalidError("linear_num_value_heads is ", delta.num_v_heads, ", not a multiple of linear_num_key_heads (",
                        delta.num_k_heads, ")");
  }
  if (delta.decay != GatedDeltaSpec::Decay::kHead && delta.num_k_heads != delta.num_v_heads) {
    return InvalidError("a decay per key channel needs as many key heads (", delta.num_k_heads, ") as value heads (",
                        delta.num_v_heads, ")");
  }
  MOE_RETURN_IF_ERROR(CheckRange("the decay's rank", delta.decay_rank, 0, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckRange("the gate's rank", delta.gate_rank, 0, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckFinite("the decay's lower bound", delta.decay_lower_bound));
  return CheckNorm(delta.norm);
}

Status Check(const Mamba1Spec& mamba) {
  MOE_RETURN_IF_ERROR(CheckRange("mamba_expand × hidden_size", mamba.inner, 1, limits::kMaxInner));
  MOE_RETURN_IF_ERROR(CheckRange("mamba_d_state", mamba.state_size, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("mamba_dt_rank", mamba.dt_rank, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckConvKernel("mamba_d_conv", mamba.conv_kernel));
  return CheckNorm(mamba.inner_norm);
}

Status Check(const LightningSpec& lightning) {
  MOE_RETURN_IF_ERROR(CheckRange("num_attention_heads", lightning.num_heads, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("head_dim", lightning.head_dim, 1, limits::kMaxHeadDim));
  if (static_cast<int64_t>(lightning.slopes.size()) != lightning.num_heads) {
    return InvalidError("lightning attention: ", lightning.slopes.size(), " slopes for ", lightning.num_heads,
                        " heads");
  }
  for (const double slope : lightning.slopes) {
    if (!std::isfinite(slope) || slope < 0) return InvalidError("lightning attention: the slope ", slope);
  }
  MOE_RETURN_IF_ERROR(CheckNorm(lightning.norm));
  MOE_RETURN_IF_ERROR(CheckNorm(lightning.qk_norm_spec));
  const int64_t width = lightning.num_heads * lightning.head_dim;
  if (width % lightning.norm.groups != 0) {
    return InvalidError("group_norm_size is ", lightning.norm.groups, ", which does not divide ", width);
  }
  return lightning.rope ? CheckRope(*lightning.rope, lightning.head_dim) : absl::OkStatus();
}

Status Check(const ShortConvSpec& conv) {
  return CheckConvKernel("conv_L_cache", conv.kernel);
}

Status Check(const Mamba2Spec& mamba) {
  MOE_RETURN_IF_ERROR(CheckRange("mamba_num_heads", mamba.num_heads, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("mamba_head_dim", mamba.head_dim, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("ssm_state_size", mamba.state_size, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("n_groups", mamba.num_groups, 1, mamba.num_heads));
  MOE_RETURN_IF_ERROR(CheckRange("conv_kernel", mamba.conv_kernel, 1, Mamba2Spec::kMaxConvKernel));
  if (mamba.num_heads % mamba.num_groups != 0) {
    return InvalidError("mamba_num_heads is ", mamba.num_heads, ", not a multiple of n_groups (", mamba.num_groups,
                        ")");
  }
  if (!(mamba.dt_min >= 0) || !(mamba.dt_max >= mamba.dt_min)) {
    return InvalidError("time_step_limit is [", mamba.dt_min, ", ", mamba.dt_max, "], expected 0 <= low <= high");
  }
  return CheckNorm({NormKind::kRms, mamba.norm_eps, false});
}

}  // namespace

Status CheckMixer(const MixerSpec& mixer) {
  return std::visit([](const auto& spec) { return Check(spec); }, mixer);
}

}  // namespace moe::spec_checks
