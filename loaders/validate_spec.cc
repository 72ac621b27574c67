// Rules that every model obeys, whatever its family. Field names are those that most config.json files use.
#include <cmath>

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

Status CheckNorm(const NormSpec& norm) {
  if (!(norm.eps >= 0) || !std::isfinite(norm.eps)) return InvalidError("rms_norm_eps is ", norm.eps);
  if (norm.bias && norm.kind != NormKind::kLayer) return InvalidError("an RMS norm cannot have a bias");
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

Status CheckMixer(const std::monostate&) {
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
  if (!std::isfinite(attn.scale)) return InvalidError("the attention scale is ", attn.scale);
  MOE_RETURN_IF_ERROR(CheckRange("sliding_window", attn.window, 0, limits::kMaxPositions));
  MOE_RETURN_IF_ERROR(CheckNorm(attn.qk_norm_spec));
  if (attn.qk_norm_spec.bias) return UnsupportedError("biases of query and key norms are not supported");
  return attn.rope ? CheckRope(*attn.rope, attn.head_dim) : absl::OkStatus();
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
  // Fails closed: the kernels do not add biases of MLPs yet.
  if (mlp.bias) return UnsupportedError("biases of MLPs and experts (mlp_bias, expert biases) are not supported");
  return absl::OkStatus();
}

Status CheckFfn(const std::monostate&) {
  return absl::OkStatus();
}
Status CheckFfn(const MlpSpec& mlp) {
  return CheckMlp("intermediate_size", mlp);
}

Status CheckFfn(const MoeSpec& moe) {
  MOE_RETURN_IF_ERROR(CheckRange("num_experts", moe.num_experts, 1, limits::kMaxExperts));
  if (moe.top_k < 1 || moe.top_k > moe.num_experts) {
    return InvalidError("num_experts_per_tok is ", moe.top_k, ", expected 1 to the number of experts (",
                        moe.num_experts, ")");
  }
  MOE_RETURN_IF_ERROR(CheckMlp("moe_intermediate_size", moe.expert));
  MOE_RETURN_IF_ERROR(CheckRange("moe_latent_size", moe.latent_size, 0, limits::kMaxWidth));
  const RouterSpec& router = moe.router;
  MOE_RETURN_IF_ERROR(CheckRange("n_group", router.num_groups, 1, moe.num_experts));
  if (moe.num_experts % router.num_groups != 0) {
    return InvalidError("n_group is ", router.num_groups, ", which does not divide the number of experts (",
                        moe.num_experts, ")");
  }
  MOE_RETURN_IF_ERROR(CheckRange("topk_group", router.top_groups, 1, router.num_groups));
  const int64_t group_size = moe.num_experts / router.num_groups;
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
  if (!std::isfinite(router.scale)) return InvalidError("routed_scaling_factor is ", router.scale);
  if (!(router.normalize_eps >= 0)) return InvalidError("the router's epsilon is ", router.normalize_eps);
  return moe.shared ? CheckMlp("shared_expert_intermediate_size", moe.shared->mlp) : absl::OkStatus();
}

// How many tensors the routed experts have at most; the rest is a few per layer.
int64_t ExpertTensors(const ModelSpec& spec) {
  int64_t total = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) total += moe->num_experts * (moe->expert.bias ? 6 : 3);
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
  if (!std::isfinite(spec.embedding_scale)) return InvalidError("the embedding multiplier is ", spec.embedding_scale);
  if (!std::isfinite(spec.logit_scale)) return InvalidError("the logit scale is ", spec.logit_scale);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const std::string where = Cat("layer ", i);
    MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.mixer_norm), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.ffn_norm), where));
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
