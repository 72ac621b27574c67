// Nemotron-H: one block a layer, Mamba-2, attention without positions, a plain MLP or a MoE of non-gated relu² experts,
// sigmoid-routed, with a shared expert and, in the larger models, a latent projection around the routed ones.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/nemotron_h_pattern.h"
#include "loaders/rope.h"

namespace moe {
namespace {

Mamba2Spec ReadMamba(ConfigReader* config, float norm_eps) {
  Mamba2Spec mamba;
  mamba.num_heads = config->Int("mamba_num_heads", 1, limits::kMaxHeads);
  mamba.head_dim = config->Int("mamba_head_dim", 1, limits::kMaxHeadDim);
  mamba.state_size = config->Int("ssm_state_size", 1, limits::kMaxHeadDim);
  mamba.num_groups = config->Int({"n_groups", "mamba_n_groups"}, 1, limits::kMaxHeads);
  mamba.conv_kernel = config->Int({"conv_kernel", "mamba_d_conv"}, 1, 64);
  mamba.conv_bias = config->BoolOr({"use_conv_bias", "mamba_conv_bias"}, true);
  mamba.proj_bias = config->BoolOr("use_bias", false);
  mamba.norm_eps = norm_eps;
  config->ExpectString("mamba_hidden_act", {"silu"});
  if (!mamba.proj_bias) config->ExpectBool("mamba_proj_bias", false);
  // Only this clamps the step size; time_step_min and _max describe how dt_bias was initialised.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> limit = config->FloatList({"time_step_limit", "mamba_dt_limit"}, 0, kInfinity);
  if (limit.size() == 2) {
    mamba.dt_min = static_cast<float>(limit[0]);
    mamba.dt_max = static_cast<float>(limit[1]);
  } else if (!limit.empty()) {
    config->Invalid("time_step_limit", Cat("has ", limit.size(), " numbers, expected 2"));
  }
  return mamba;
}

MoeSpec ReadMoe(ConfigReader* config) {
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.latent_size = config->IntOr("moe_latent_size", 0, 0, limits::kMaxWidth);
  moe.expert = {.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner),
                .activation = Activation::kRelu2,
                .gated = false};
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_bias = true;
  if (config->BoolOr("norm_topk_prob", true)) {
    moe.router.normalize = RouterSpec::Normalize::kSum;
    moe.router.normalize_eps = 1e-20f;
  }
  moe.router.scale = static_cast<float>(config->FloatOr("routed_scaling_factor", 1.0, 0, 1e6));
  moe.router.num_groups = config->IntOr("n_group", 1, 1, limits::kMaxExperts);
  moe.router.top_groups = config->IntOr("topk_group", 1, 1, limits::kMaxExperts);
  SharedExpertSpec shared;
  shared.count = config->IntOr("n_shared_experts", 1, 1, 64);
  shared.mlp = {.intermediate_size = config->Int("moe_shared_expert_intermediate_size", 1, limits::kMaxInner),
                .activation = Activation::kRelu2,
                .gated = false};
  // Of the shared expert and the latent projection; the routed experts have none.
  shared.mlp.bias = config->BoolOr("mlp_bias", false);
  moe.latent_bias = shared.mlp.bias && moe.latent_size > 0;
  moe.shared = shared;
  return moe;
}

void AddNames(TensorRules* rules, int64_t num_experts) {
  const std::string layer = "backbone.layers.{l}.";
  const std::string mixer = layer + "mixer.";
  rules->Add("embed", "backbone.embeddings.weight");
  rules->Add("final_norm", "backbone.norm_f.weight");
  rules->Add("lm_head", "lm_head.weight");
  rules->Add("layers.{l}.mixer_norm", layer + "norm.weight");
  rules->Add("layers.{l}.ffn_norm", layer + "norm.weight");
  for (const char* name : {"q", "k", "v", "o"}) {
    rules->AddLinear(Cat("layers.{l}.attn.", name), Cat(mixer, name, "_proj"));
  }
  rules->AddLinear("layers.{l}.mamba.in_proj", mixer + "in_proj");
  rules->AddLinear("layers.{l}.mamba.out_proj", mixer + "out_proj");
  rules->AddLinear("layers.{l}.mamba.conv", mixer + "conv1d");
  rules->Add("layers.{l}.mamba.dt_bias", mixer + "dt_bias");
  rules->Add("layers.{l}.mamba.a_log", mixer + "A_log");
  rules->Add("layers.{l}.mamba.d", mixer + "D");
  rules->Add("layers.{l}.mamba.norm", mixer + "norm.weight");
  rules->AddMlp("layers.{l}.mlp.", mixer, "", "up_proj", "down_proj");
  rules->Add("layers.{l}.moe.router", mixer + "gate.weight");
  rules->Add("layers.{l}.moe.router.select_bias", mixer + "gate.e_score_correction_bias");
  rules->AddExperts("layers.{l}.moe.experts.", mixer + "experts.", "", "up_proj", "down_proj");
  rules->AddStackedExperts("layers.{l}.moe.experts.", mixer + "experts.up_proj", mixer + "experts.down_proj",
                           num_experts);
  rules->AddMlp("layers.{l}.moe.shared.", mixer + "shared_experts.", "", "up_proj", "down_proj");
  rules->AddLinear("layers.{l}.moe.latent_down", mixer + "fc1_latent_proj");
  rules->AddLinear("layers.{l}.moe.latent_up", mixer + "fc2_latent_proj");
  rules->Ignore("mtp.*", "multi-token prediction");
}

}  // namespace

void ReadNemotronH(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasics(config, spec);
  const std::string pattern = ReadNemotronPattern(config);
  config->ExpectString("mlp_hidden_act", {"relu2"});
  config->ExpectAbsent("sliding_window");
  ExpectUnscaledRope(config);
  const auto eps = static_cast<float>(config->FloatOr({"layer_norm_epsilon", "norm_eps", "rms_norm_eps"}, 1e-5, 0, 1));
  const NormSpec norm{NormKind::kRms, eps, false};
  spec->final_norm = norm;

  // Only what the pattern has is read: a model without attention need not say how many heads it has.
  LayerSpec plain;
  plain.mixer_norm = plain.ffn_norm = norm;
  LayerSpec mamba = plain;
  LayerSpec attention = plain;
  LayerSpec mlp = plain;
  LayerSpec sparse = plain;
  if (pattern.find(kNemotronMamba) != std::string::npos) mamba.mixer = ReadMamba(config, eps);
  if (pattern.find(kNemotronAttention) != std::string::npos) {
    config->Int({"head_dim", "attention_head_dim"}, 1, limits::kMaxHeadDim);  // not hidden_size / heads here
    AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
    attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
    attention.mixer = attn;
  }
  if (pattern.find(kNemotronMlp) != std::string::npos) {
    mlp.ffn = MlpSpec{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                      .activation = Activation::kRelu2,
                      .gated = false,
                      .bias = config->BoolOr("mlp_bias", false)};
  }
  int64_t num_experts = 1;
  if (pattern.find(kNemotronMoe) != std::string::npos) {
    const MoeSpec moe = ReadMoe(config);
    num_experts = moe.num_experts;
    sparse.ffn = moe;
  }
  if (!config->ok()) return;
  for (const char kind : pattern) {
    spec->layers.push_back(kind == kNemotronMamba       ? mamba
                           : kind == kNemotronAttention ? attention
                           : kind == kNemotronMlp       ? mlp
                                                        : sparse);
  }
  AddNames(rules, num_experts);
  // transformers has none whatever attention_bias says, the authors' code has: the file tells which of them wrote it.
  rules->Settle([](const TensorRules::StoredShapes& stored, ModelSpec* settled) {
    for (size_t l = 0; l < settled->layers.size(); ++l) {
      auto* attn = std::get_if<AttentionSpec>(&settled->layers[l].mixer);
      if (attn == nullptr || !attn->qkv_bias || stored(Cat("layers.", l, ".attn.q.bias")) != nullptr) continue;
      attn->qkv_bias = attn->output_bias = false;
    }
  });
}

}  // namespace moe
