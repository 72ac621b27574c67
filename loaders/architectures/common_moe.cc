// DeepSeek-V3's router and experts, and the numbers of experts under their many names (common.h).
#include "loaders/architectures/common.h"

namespace moe {

RouterSpec ReadDeepseekRouter(ConfigReader* config, const DeepseekMoeDefaults& defaults) {
  RouterSpec router;
  router.score = defaults.score;
  if (defaults.score == RouterSpec::Score::kSigmoid) {
    // "noaux_tc" under the wrong name: the released dots.llm1 has it.
    config->ExpectString({"scoring_func", "moe_router_activation_func"}, {"sigmoid", "noaux_tc"});
    config->ExpectString("topk_method", {"noaux_tc"});
    router.select_bias = true;
  } else {
    config->ExpectString({"scoring_func", "moe_router_activation_func"}, {"softmax"});
  }
  if (config->BoolOr({"norm_topk_prob", "moe_renormalize"}, defaults.norm_topk_prob)) {
    router.normalize = RouterSpec::Normalize::kSum;
    router.normalize_eps = 1e-20f;
  }
  router.scale = static_cast<float>(
      config->FloatOr({"routed_scaling_factor", "router_scaling_factor"}, defaults.routed_scaling_factor, 0, 1e6));
  router.num_groups = config->IntOr({"n_group", "num_expert_group"}, defaults.n_group, 1, limits::kMaxExperts);
  router.top_groups = config->IntOr("topk_group", defaults.topk_group, 1, limits::kMaxExperts);
  return router;
}

MoeSpec ReadDeepseekMoe(ConfigReader* config, const DeepseekMoeDefaults& defaults) {
  constexpr int64_t kMaxShared = 1024;
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router = ReadDeepseekRouter(config, defaults);
  const int64_t shared =
      config->IntOr({"n_shared_experts", "num_shared_experts"}, defaults.n_shared_experts, 0, kMaxShared);
  if (shared > 0) {
    moe.shared = SharedExpertSpec{.mlp = moe.expert, .count = shared};
    moe.shared->mlp.intermediate_size *= shared;
  }
  return moe;
}

int64_t ReadExpertCount(ConfigReader* config) {
  return config->Int({"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}, 1,
                     limits::kMaxExperts);
}

int64_t ReadTopK(ConfigReader* config) {
  return config->Int({"num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts"}, 1,
                     limits::kMaxExperts);
}

}  // namespace moe
