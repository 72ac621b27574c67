// Rules that every model obeys, whatever its family. Field names are those that most config.json files use.
#include <cmath>
#include <limits>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"

namespace moe {
namespace {

Status CheckRange(const char* field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return InvalidError(field, " is ", value, ", expected an integer from ", min, " to ", max);
}

Status CheckPositive(const char* field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return InvalidError(field, " is ", value, ", expected a positive number");
}

Status CheckFinite(const char* what, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return InvalidError(what, " is ", value);
}

Status CheckNotNegative(const char* field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return InvalidError(field, " is ", value, ", expected a number that is not negative");
}

Status CheckPositionScale(const PositionScale& scale) {
  if (scale.kind == PositionScale::Kind::kNone) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(CheckFinite("the query's position scale", scale.beta));
  return CheckPositive("the query's position scale's period", scale.period);
}

Status CheckNorm(const NormSpec& norm) {
  if (!(norm.eps >= 0) || !std::isfinite(norm.eps)) return InvalidError("rms_norm_eps is ", norm.eps);
  if (norm.bias && norm.kind != NormKind::kLayer) return InvalidError("an RMS norm cannot have a bias");
  if (norm.groups < 1) return InvalidError("a norm has ", norm.groups, " groups");
  return absl::OkStatus();
}

Status CheckRope(const RopeSpec& rope, int64_t head_dim) {
  if (rope.rotary_dim <= 0 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim) {
    return InvalidError("the rotated dimensions (head_dim × partial_rotary_factor) are ", rope.rotary_dim,
                        ", expected an even number from 2 to head_dim (", head_dim, ")");
  }
  if (static_cast<int64_t>(rope.inv_freq.size()) != rope.rotary_dim / 2) {
    return InvalidError("rope: ", rope.inv_freq.size(), " frequencies for ", rope.rotary_dim, " rotated dimensions");
  }
  for (const double frequency : rope.inv_freq) {
    if (!std::isfinite(frequency) || frequency < 0) return InvalidError("rope_theta gives the frequency ", frequency);
  }
  return CheckPositive("rope attention_factor", rope.cos_sin_scale);
}

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
                            " rotated dimensions of the attention heads");
  }
  if (attn.share_kv_with_layer >= 0) return UnsupportedError("a block indexer on a layer without keys of its own");
  return absl::OkStatus();
}

Status CheckMixer(const std::monostate&) {
  return absl::OkStatus();
}

Status CheckConvKernel(const char* field, int64_t kernel) {
  return CheckRange(field, kernel, 1, Mamba2Spec::kMaxConvKernel);
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

Status CheckMixer(const AttentionSpec& attn) {
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
  MOE_RETURN_IF_ERROR(CheckQkvForms(attn));
  if (attn.qk_norm_spec.bias) return UnsupportedError("biases of query and key norms are not supported");
  return attn.rope ? CheckRope(*attn.rope, attn.head_dim) : absl::OkStatus();
}

Status CheckMixer(const MlaSpec& mla) {
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

Status CheckMixer(const CompressedAttentionSpec& attn) {
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
  return CheckRope(attn.rope, attn.head_dim);
}

Status CheckMixer(const GatedDeltaSpec& delta) {
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

Status CheckMixer(const Mamba1Spec& mamba) {
  MOE_RETURN_IF_ERROR(CheckRange("mamba_expand × hidden_size", mamba.inner, 1, limits::kMaxInner));
  MOE_RETURN_IF_ERROR(CheckRange("mamba_d_state", mamba.state_size, 1, limits::kMaxHeadDim));
  MOE_RETURN_IF_ERROR(CheckRange("mamba_dt_rank", mamba.dt_rank, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckConvKernel("mamba_d_conv", mamba.conv_kernel));
  return CheckNorm(mamba.inner_norm);
}

Status CheckMixer(const LightningSpec& lightning) {
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

Status CheckMixer(const ShortConvSpec& conv) {
  return CheckConvKernel("conv_L_cache", conv.kernel);
}

Status CheckMixer(const Mamba2Spec& mamba) {
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

Status CheckMlp(const char* field, const MlpSpec& mlp) {
  MOE_RETURN_IF_ERROR(CheckRange(field, mlp.intermediate_size, 1, limits::kMaxInner));
  if (mlp.gated == (mlp.activation == Activation::kRelu2)) {
    return UnsupportedError("hidden_act: relu2 is supported without a gate only, the others with one");
  }
  MOE_RETURN_IF_ERROR(CheckNotNegative("swiglu_limit", mlp.limit));
  const bool needs_limit = mlp.activation == Activation::kSwigluOai || mlp.activation == Activation::kSwigluStep;
  if (needs_limit && mlp.limit == 0) return InvalidError("swiglu_limit is 0, expected a positive number");
  return CheckFinite("the activation's alpha", mlp.alpha);
}

Status CheckFfn(const std::monostate&) {
  return absl::OkStatus();
}
Status CheckFfn(const MlpSpec& mlp) {
  return CheckMlp("intermediate_size", mlp);
}

Status CheckFfn(const MoeSpec& moe) {
  MOE_RETURN_IF_ERROR(CheckRange("num_experts", moe.num_experts, 1, limits::kMaxExperts));
  MOE_RETURN_IF_ERROR(CheckRange("zero_expert_num", moe.zero_experts, 0, limits::kMaxExperts));
  if (moe.top_k < 1 || moe.top_k > moe.num_choices()) {
    return InvalidError("num_experts_per_tok is ", moe.top_k, ", expected 1 to the number of experts (",
                        moe.num_choices(), ")");
  }
  if (moe.zero_experts > 0 && (moe.latent_size > 0 || moe.weight_on_input)) {
    return UnsupportedError("zero_expert_num: identity experts together with latent or input-weighted experts");
  }
  MOE_RETURN_IF_ERROR(CheckMlp("moe_intermediate_size", moe.expert));
  MOE_RETURN_IF_ERROR(CheckRange("moe_latent_size", moe.latent_size, 0, limits::kMaxWidth));
  const RouterSpec& router = moe.router;
  MOE_RETURN_IF_ERROR(CheckRange("n_group", router.num_groups, 1, moe.num_choices()));
  if (moe.num_choices() % router.num_groups != 0) {
    return InvalidError("n_group is ", router.num_groups, ", which does not divide the number of experts (",
                        moe.num_experts, ")");
  }
  MOE_RETURN_IF_ERROR(CheckRange("topk_group", router.top_groups, 1, router.num_groups));
  const int64_t group_size = moe.num_choices() / router.num_groups;
  if (moe.top_k > router.top_groups * group_size) {
    return InvalidError("num_experts_per_tok is ", moe.top_k, ", but topk_group (", router.top_groups, ") leaves only ",
                        router.top_groups * group_size, " experts to choose from");
  }
  if (router.num_groups > 1 && router.group_score == RouterSpec::GroupScore::kSumOfTopTwo && group_size < 2) {
    return InvalidError("n_group is ", router.num_groups, ", but groups need at least 2 of the ", moe.num_experts,
                        " experts");
  }
  if (router.normalize == RouterSpec::Normalize::kSoftmaxOverChosen && router.score != RouterSpec::Score::kSoftmax) {
    return InvalidError("scoring_func: a softmax over the chosen experts needs softmax scores");
  }
  if (router.score == RouterSpec::Score::kSparseMixer) {
    if (moe.top_k != 2)
      return InvalidError("num_experts_per_tok is ", moe.top_k, ", expected 2 with sparse-mixer routing");
    if (router.num_groups > 1 || router.select_bias || router.normalize != RouterSpec::Normalize::kNone) {
      return UnsupportedError("sparse-mixer routing with groups, a selection bias or renormalised weights");
    }
    MOE_RETURN_IF_ERROR(CheckNotNegative("router_jitter_noise", router.jitter));
  }
  if (router.by_token &&
      (router.num_groups > 1 || router.select_bias || router.normalize == RouterSpec::Normalize::kSoftmaxOverChosen ||
       router.score == RouterSpec::Score::kSparseMixer)) {
    return UnsupportedError("experts given by token id together with ways of choosing them by score");
  }
  MOE_RETURN_IF_ERROR(CheckNotNegative("the router's logit cap", router.logit_cap));
  MOE_RETURN_IF_ERROR(CheckNotNegative("the router's smallest sum", router.normalize_min));
  MOE_RETURN_IF_ERROR(CheckFinite("the router's input scale", router.input_scale));
  MOE_RETURN_IF_ERROR(CheckNorm(router.input_norm));
  MOE_RETURN_IF_ERROR(CheckRange("skip experts", moe.skip_experts, 0, limits::kMaxExperts));
  if (moe.skip_experts > 0 && moe.weight_on_input) return UnsupportedError("skip experts with weighted expert inputs");
  if (router.mlp) {
    MOE_RETURN_IF_ERROR(CheckRange("router_hidden_size", router.mlp->width, 1, limits::kMaxWidth));
    MOE_RETURN_IF_ERROR(CheckNorm(router.mlp->norm));
  }
  MOE_RETURN_IF_ERROR(CheckRange("n_shared_experts", router.sinks, 0, limits::kMaxExperts));
  const bool weighted = moe.shared && moe.shared->router_weighted;
  if ((router.sinks > 0) != weighted || (weighted && moe.shared->count != router.sinks)) {
    return InvalidError("n_shared_experts is not the number of logits that the router has for them");
  }
  if (router.sinks > 0 && (router.score != RouterSpec::Score::kSigmoid || moe.weight_on_input ||
                           router.normalize != RouterSpec::Normalize::kNone || moe.shared->mlp.bias)) {
    return UnsupportedError("shared experts weighted by a router that does not score by sigmoid alone");
  }
  if (router.weight_scale && router.sinks == 0) return UnsupportedError("a learnt scale of the weights without sinks");
  if (!std::isfinite(router.scale)) return InvalidError("routed_scaling_factor is ", router.scale);
  if (!(router.normalize_eps >= 0)) return InvalidError("the router's epsilon is ", router.normalize_eps);
  return moe.shared ? CheckMlp("shared_expert_intermediate_size", moe.shared->mlp) : absl::OkStatus();
}

Status CheckNgram(const NgramSpec& ngram, int64_t vocab_size) {
  constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();
  MOE_RETURN_IF_ERROR(CheckRange("ngram_size", ngram.max_n, 2, NgramSpec::kMaxN));
  MOE_RETURN_IF_ERROR(CheckRange("heads_per_ngram", ngram.heads_per_n, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("ple_embed_dim", ngram.embed_dim, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckRange("ple_conv_kernel_size", ngram.conv_kernel, 1, Mamba2Spec::kMaxConvKernel));
  MOE_RETURN_IF_ERROR(CheckRange("hc_count", ngram.streams, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckNorm(ngram.norm));
  if (ngram.embed_dim % ngram.heads() != 0) {
    return InvalidError("ple_embed_dim is ", ngram.embed_dim, ", not a multiple of the ", ngram.heads(),
                        " n-gram heads");
  }
  if (static_cast<int64_t>(ngram.multipliers.size()) != ngram.max_n ||
      static_cast<int64_t>(ngram.head_rows.size()) != ngram.heads()) {
    return InvalidError("n-gram embeddings: ", ngram.multipliers.size(), " multipliers and ", ngram.head_rows.size(),
                        " heads");
  }
  for (const int64_t multiplier : ngram.multipliers) {
    MOE_RETURN_IF_ERROR(
        CheckRange("an n-gram multiplier", multiplier, 1, std::numeric_limits<int64_t>::max() / vocab_size));
  }
  int64_t needed = 0;
  for (const int64_t rows : ngram.head_rows) {
    MOE_RETURN_IF_ERROR(CheckRange("ngram_vocab_size_base", rows, 1, kMaxRows));
    needed += rows;
  }
  int64_t stored = 0;
  for (const int64_t rows : ngram.part_rows) {
    MOE_RETURN_IF_ERROR(CheckRange("the rows of a part of the n-gram table", rows, 1, kMaxRows));
    stored += rows;
  }
  if (needed > stored || stored > kMaxRows) {
    return InvalidError("the n-gram table has ", stored, " rows, expected ", needed, " to ", kMaxRows);
  }
  return CheckRange("the n-gram boundary token", ngram.boundary, 0, vocab_size - 1);
}

Status CheckNgramMean(const NgramMeanSpec& ngram, const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckRange("emb_neighbor_num", ngram.max_n, 2, NgramSpec::kMaxN));
  MOE_RETURN_IF_ERROR(CheckRange("emb_split_num", ngram.heads_per_n, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("hidden_size / n-gram tables", ngram.dim, 1, limits::kMaxWidth));
  if (static_cast<int64_t>(ngram.head_rows.size()) != ngram.heads()) {
    return InvalidError("n-gram embeddings: ", ngram.head_rows.size(), " tables for ", ngram.heads(), " hashes");
  }
  for (const int64_t rows : ngram.head_rows) {
    MOE_RETURN_IF_ERROR(
        CheckRange("ngram_vocab_size_ratio × vocab_size", rows, 1, std::numeric_limits<int32_t>::max()));
  }
  return CheckRange("the n-gram boundary token", ngram.boundary, 0, spec.vocab_size - 1);
}

Status CheckLayerInput(const LayerInputSpec& input, const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckRange("hidden_size_per_layer_input", input.dim, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckFinite("the scale of the layers' inputs", input.scale));
  MOE_RETURN_IF_ERROR(CheckFinite("the scale of the layers' embeddings", input.table_scale));
  MOE_RETURN_IF_ERROR(CheckNorm(input.projection_norm));
  MOE_RETURN_IF_ERROR(CheckNorm(input.norm));
  if (spec.hyper) return UnsupportedError("hyper-connections together with inputs of the layers' own");
  return absl::OkStatus();
}

Status CheckResidual(const ResidualSpec& residual) {
  MOE_RETURN_IF_ERROR(CheckFinite("residual_multiplier", residual.branch));
  return CheckFinite("residual_multiplier", residual.skip);
}

// Streams take the place of the residual row, so what else a layer could do with that row is left out.
Status CheckHyper(const HyperSpec& hyper, const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckRange("hc_mult", hyper.streams, 1, HyperSpec::kMaxStreams));
  MOE_RETURN_IF_ERROR(CheckRange("hc_mult × hidden_size", hyper.streams * spec.hidden_size, 1, limits::kMaxInner));
  MOE_RETURN_IF_ERROR(CheckRange("hc_sinkhorn_iters", hyper.sinkhorn, 0, 1000));
  MOE_RETURN_IF_ERROR(CheckNotNegative("hc_eps", hyper.eps));
  MOE_RETURN_IF_ERROR(CheckFinite("hc_magnitude", hyper.post_scale));
  MOE_RETURN_IF_ERROR(CheckNorm(hyper.norm));
  if (hyper.kind == HyperSpec::Kind::kGated)
    MOE_RETURN_IF_ERROR(CheckRange("hc_lowrank", hyper.rank, 1, limits::kMaxWidth));
  for (const LayerSpec& layer : spec.layers) {
    for (const ResidualSpec& residual : {layer.mixer_residual, layer.ffn_residual}) {
      if (residual.skip != 1 || residual.branch != 1 || residual.skip_normed) {
        return UnsupportedError("hyper-connections together with residual multipliers");
      }
    }
    if (layer.parallel || layer.defer_ffn || layer.layer_scale) {
      return UnsupportedError("hyper-connections together with parallel, deferred or scaled blocks");
    }
  }
  return absl::OkStatus();
}

// A layer that reads another layer's cache or selection needs an earlier one with one of the same shape.
Status CheckSharing(const ModelSpec& spec, size_t l) {
  if (const auto* attn = std::get_if<AttentionSpec>(&spec.layers[l].mixer); attn && attn->share_kv_with_layer >= 0) {
    const auto source = static_cast<size_t>(attn->share_kv_with_layer);
    const auto* own = source < l ? std::get_if<AttentionSpec>(&spec.layers[source].mixer) : nullptr;
    if (own == nullptr || own->share_kv_with_layer >= 0 || own->num_kv_heads != attn->num_kv_heads ||
        own->head_dim != attn->head_dim || own->v_head_dim != attn->v_head_dim) {
      return InvalidError("shares the keys and values of layer ", source, ", which has none of the same shape");
    }
  }
  if (const auto* mla = std::get_if<MlaSpec>(&spec.layers[l].mixer);
      mla && mla->indexer && mla->indexer->share_with_layer >= 0) {
    const auto source = static_cast<size_t>(mla->indexer->share_with_layer);
    const auto* own = source < l ? std::get_if<MlaSpec>(&spec.layers[source].mixer) : nullptr;
    if (own == nullptr || !own->indexer || own->indexer->share_with_layer >= 0) {
      return InvalidError("shares the indexer of layer ", source, ", which has none");
    }
  }
  return absl::OkStatus();
}

// Convolutions and learnt residuals of a layer's branches, and what its router takes over from an earlier one.
Status CheckBranches(const ModelSpec& spec, size_t l) {
  const LayerSpec& layer = spec.layers[l];
  for (const int64_t taps : {layer.mixer_conv, layer.ffn_conv}) {
    if (taps != 0) MOE_RETURN_IF_ERROR(CheckConvKernel("conv_kernel_size", taps));
  }
  if ((layer.mixer_conv > 0 || layer.ffn_conv > 0) && (spec.hyper || layer.defer_ffn)) {
    return UnsupportedError("convolutions of branches together with hyper-connections or a deferred ffn");
  }
  const bool learnt = layer.mixer_residual.learnt || layer.ffn_residual.learnt;
  if (learnt && (spec.hyper || layer.parallel || layer.defer_ffn)) {
    return UnsupportedError("learnt residuals together with hyper-connections, parallel or deferred blocks");
  }
  const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
  if (moe == nullptr || !moe->router.mlp || !moe->router.mlp->carries) return absl::OkStatus();
  for (size_t before = l; before-- > 0;) {
    const auto* source = std::get_if<MoeSpec>(&spec.layers[before].ffn);
    if (source == nullptr) continue;
    if (source->router.mlp && source->router.mlp->width == moe->router.mlp->width) return absl::OkStatus();
    break;
  }
  return InvalidError("the router takes over the state of one before that has none of its size");
}

// How many tensors the routed experts have at most; the rest is a few per layer.
int64_t ExpertTensors(const ModelSpec& spec) {
  int64_t total = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) total += moe->num_experts * (moe->expert.bias ? 6 : 3);
    const auto* attn = std::get_if<AttentionSpec>(&layer.mixer);
    if (attn != nullptr && attn->head_experts) total += 2 * attn->head_experts->num_experts;
  }
  return total;
}

}  // namespace

Status ValidateSpec(const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckRange("num_hidden_layers", static_cast<int64_t>(spec.layers.size()), 1, limits::kMaxLayers));
  MOE_RETURN_IF_ERROR(CheckRange("hidden_size", spec.hidden_size, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckRange("vocab_size", spec.vocab_size, 1, limits::kMaxVocab));
  MOE_RETURN_IF_ERROR(CheckRange("max_position_embeddings", spec.max_positions, 1, limits::kMaxPositions));
  MOE_RETURN_IF_ERROR(CheckNorm(spec.final_norm));
  if (spec.hyper) MOE_RETURN_IF_ERROR(CheckHyper(*spec.hyper, spec));
  if (spec.ngram_mean) MOE_RETURN_IF_ERROR(CheckNgramMean(*spec.ngram_mean, spec));
  if (spec.layer_input) MOE_RETURN_IF_ERROR(CheckLayerInput(*spec.layer_input, spec));
  if (!std::isfinite(spec.embedding_scale)) return InvalidError("the embedding multiplier is ", spec.embedding_scale);
  MOE_RETURN_IF_ERROR(CheckNorm(spec.embedding_norm));
  MOE_RETURN_IF_ERROR(CheckNotNegative("final_logit_softcapping", spec.logit_cap));
  MOE_RETURN_IF_ERROR(CheckRange("unpadded_vocab_size", spec.head_rows, 0, spec.vocab_size));
  if (spec.head_rows > 0 && (spec.tied_head || spec.head_bias)) {
    return UnsupportedError("unpadded_vocab_size with a tied head or a bias of the head");
  }
  if (spec.unit_head_columns && (spec.final_norm.kind != NormKind::kRms || !spec.final_norm.weight)) {
    return UnsupportedError("norm_head needs an RMS norm with a weight before the head");
  }
  if (!std::isfinite(spec.logit_scale)) return InvalidError("the logit scale is ", spec.logit_scale);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const std::string where = Cat("layer ", i);
    MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.mixer_norm), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckRange("gated_norm_rank", layer.mixer_norm_gate, 0, limits::kMaxWidth), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckRange("gated_norm_rank", layer.ffn_norm_gate, 0, limits::kMaxWidth), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.ffn_norm), where));
    for (const NormSpec& norm : {layer.mixer_post_norm, layer.ffn_own_post_norm, layer.ffn_post_norm}) {
      MOE_RETURN_IF_ERROR(Annotate(CheckNorm(norm), where));
    }
    MOE_RETURN_IF_ERROR(Annotate(CheckResidual(layer.mixer_residual), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckResidual(layer.ffn_residual), where));
    if (layer.beside) {
      MOE_RETURN_IF_ERROR(Annotate(CheckMlp("intermediate_size", layer.beside->mlp), where));
      MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.beside->norm), where));
      MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.beside->post_norm), where));
      if (layer.beside->after_mixer && (!layer.parallel || spec.hyper)) {
        return UnsupportedError(where, ": an MLP that reads the row after the mixer in a layer that is not parallel");
      }
    }
    if (layer.ngram) {
      MOE_RETURN_IF_ERROR(Annotate(CheckNgram(*layer.ngram, spec.vocab_size), where));
      if (layer.ngram->streams != (spec.hyper ? spec.hyper->streams : 1) || layer.parallel) {
        return UnsupportedError(where,
                                ": n-gram embeddings on a parallel layer or on other streams than the residual's");
      }
    }
    MOE_RETURN_IF_ERROR(Annotate(CheckSharing(spec, i), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckBranches(spec, i), where));
    MOE_RETURN_IF_ERROR(Annotate(std::visit([](const auto& mixer) { return CheckMixer(mixer); }, layer.mixer), where));
    MOE_RETURN_IF_ERROR(Annotate(std::visit([](const auto& ffn) { return CheckFfn(ffn); }, layer.ffn), where));
  }
  if (ExpertTensors(spec) > MaxRequiredTensors()) {
    return InvalidError("num_hidden_layers (", spec.layers.size(), ") × num_experts (", spec.MaxExperts(),
                        ") is more than any known model has");
  }
  for (const int32_t id : spec.eos_token_ids) {
    if (id < 0 || id >= spec.vocab_size) {
      return InvalidError("eos_token_id is ", id, ", expected 0 to vocab_size - 1 (", spec.vocab_size - 1, ")");
    }
  }
  if (spec.bos_token_id && (*spec.bos_token_id < 0 || *spec.bos_token_id >= spec.vocab_size)) {
    return InvalidError("bos_token_id is ", *spec.bos_token_id, ", expected 0 to vocab_size - 1 (", spec.vocab_size - 1,
                        ")");
  }
  return absl::OkStatus();
}

}  // namespace moe
