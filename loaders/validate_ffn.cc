// Rules of MLPs, routers and the MoE block.
#include <cmath>

#include "loaders/config_reader.h"
#include "loaders/spec_checks.h"

namespace moe::spec_checks {

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

namespace {

Status Check(const std::monostate&) {
  return absl::OkStatus();
}
Status Check(const MlpSpec& mlp) {
  return CheckMlp("intermediate_size", mlp);
}

Status Check(const MoeSpec& moe) {
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
  if (router.others_weigh_zero &&
      (router.others_score_zero || router.normalize == RouterSpec::Normalize::kSoftmaxOverChosen)) {
    return UnsupportedError("weights of 0 for experts of other groups with other rules for those");
  }
  if (moe.top_k > router.top_groups * group_size && !router.others_weigh_zero) {
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
  if (!(router.normalize_order > 0)) {
    return InvalidError("the order of the norm of the router's weights is ", router.normalize_order);
  }
  if (router.normalize_order != 1 && (router.normalize_eps != 0 || router.normalize_min != 0)) {
    return UnsupportedError("an order of the norm of the router's weights with an epsilon or a smallest sum");
  }
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

}  // namespace

Status CheckFfn(const FfnSpec& ffn) {
  return std::visit([](const auto& spec) { return Check(spec); }, ffn);
}

}  // namespace moe::spec_checks
