// DeepSeek-V4: a residual of several streams (manifold-constrained hyper-connections), attention over a window and
// compressed history, experts behind a sqrt-softplus router, of which the first layers choose by token id.
#include "loaders/architectures/deepseek_v4.h"
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"

namespace moe {
namespace {

MoeSpec ReadMoe(ConfigReader* config) {
  config->ExpectString("hidden_act", {"silu", "swish"});
  config->ExpectString("scoring_func", {"sqrtsoftplus", "sigmoid"});
  MoeSpec moe;
  moe.num_experts =
      config->IntOr({"n_routed_experts", "num_local_experts", "num_experts"}, 256, 1, limits::kMaxExperts);
  moe.top_k = config->IntOr("num_experts_per_tok", 6, 1, limits::kMaxExperts);
  moe.expert.intermediate_size =
      config->IntOr({"moe_intermediate_size", "intermediate_size"}, 2048, 1, limits::kMaxInner);
  moe.expert.limit = static_cast<float>(config->FloatOr("swiglu_limit", 10.0, 1e-6, 1e30));
  const bool sigmoid = config->StringOr("scoring_func", "sqrtsoftplus") == "sigmoid";
  moe.router.score = sigmoid ? RouterSpec::Score::kSigmoid : RouterSpec::Score::kSqrtSoftplus;
  config->ExpectUnusedField("norm_topk_prob", true);
  config->ExpectUnusedField("n_shared_experts", 1);
  config->ExpectUnusedField("attention_bias", false);
  moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.router.normalize_eps = 1e-20f;
  moe.router.scale = static_cast<float>(config->FloatOr("routed_scaling_factor", 1.5, -1e30, 1e30));
  moe.shared = SharedExpertSpec{.mlp = moe.expert};
  moe.shared->mlp.bias = config->BoolOr("mlp_bias", false);
  return moe;
}

}  // namespace

void ReadDeepseekV4(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 129280},
                  {"hidden_size", 4096},
                  {"num_hidden_layers", 43},
                  {"max_position_embeddings", 1048576},
                  {"bos_token_id", 0},
                  {"eos_token_id", 1}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;
  spec->hyper = HyperSpec{.kind = HyperSpec::Kind::kManifold,
                          .streams = config->IntOr("hc_mult", 4, 1, HyperSpec::kMaxStreams),
                          .norm = {.kind = NormKind::kRms, .eps = norm.eps, .weight = false},
                          .eps = static_cast<float>(config->FloatOr("hc_eps", 1e-6, 0, 1)),
                          .sinkhorn = config->IntOr("hc_sinkhorn_iters", 20, 0, 1000)};

  const std::vector<CompressedAttentionSpec> attention = ReadDeepseekV4Attention(config, *spec, norm, num_layers);
  const MoeSpec moe = ReadMoe(config);
  const std::vector<bool> hash = ReadDeepseekV4HashLayers(config, num_layers);
  for (size_t l = 0; config->ok() && l < attention.size(); ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.mixer = attention[l];
    MoeSpec own_moe = moe;
    own_moe.router.by_token = hash[l];
    own_moe.router.select_bias = !hash[l];
    layer.ffn = own_moe;
  }
  AddDeepseekV4Names(rules, moe.num_experts);
}

}  // namespace moe
