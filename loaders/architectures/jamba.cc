// Jamba: Mamba-1 with inner norms between layers of attention without positions; experts in every other layer, their
// weights not renormalised.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// "Every PERIOD-th layer, from OFFSET on", as two fields say it.
struct Every {
  int64_t period = 1;
  int64_t offset = 0;
  bool operator()(int64_t l) const { return l % period == offset; }
};

Every ReadEvery(ConfigReader* config, const char* period, int64_t default_period, const char* offset,
                int64_t default_offset) {
  Every every;
  every.period = config->IntOr(period, default_period, 1, limits::kMaxLayers);
  every.offset = config->IntOr(offset, default_offset, 0, limits::kMaxLayers);
  if (config->ok() && every.offset >= every.period) {
    config->Invalid(offset, Cat("is ", every.offset, ", expected less than ", period, " (", every.period, ")"));
  }
  return every;
}

Mamba1Spec ReadMamba(ConfigReader* config, int64_t hidden, const NormSpec& norm) {
  Mamba1Spec mamba;
  mamba.inner = hidden * config->IntOr("mamba_expand", 2, 1, 64);
  mamba.state_size = config->IntOr("mamba_d_state", 16, 1, limits::kMaxHeadDim);
  mamba.dt_rank = (hidden + 15) / 16;
  if (config->TypeOf("mamba_dt_rank") == nlohmann::json::value_t::string) {
    config->ExpectString("mamba_dt_rank", {"auto"});
  } else {
    mamba.dt_rank = config->IntOr("mamba_dt_rank", mamba.dt_rank, 1, limits::kMaxWidth);
  }
  mamba.conv_kernel = config->IntOr("mamba_d_conv", 4, 1, 64);
  mamba.conv_bias = config->BoolOr("mamba_conv_bias", true);
  mamba.proj_bias = config->BoolOr("mamba_proj_bias", false);
  config->ExpectBool("mamba_inner_layernorms", true);
  mamba.inner_norm = norm;
  return mamba;
}

void AddNames(TensorRules* rules, int64_t num_experts) {
  AddLlamaNames(rules);
  rules->Add("final_norm", "model.final_layernorm.weight");
  const std::string layer = "model.layers.{l}.";
  rules->Add("layers.{l}.ffn_norm", layer + "pre_ff_layernorm.weight");
  const std::string mamba = layer + "mamba.";
  for (const char* name : {"in_proj", "x_proj", "dt_proj", "out_proj"}) {
    rules->AddLinear(Cat("layers.{l}.mamba1.", name), mamba + name);
  }
  rules->AddLinear("layers.{l}.mamba1.conv", mamba + "conv1d");
  for (const char* name : {"dt", "b", "c"}) {
    rules->Add(Cat("layers.{l}.mamba1.", name, "_norm"), Cat(mamba, name, "_layernorm.weight"));
  }
  rules->Add("layers.{l}.mamba1.a_log", mamba + "A_log");
  rules->Add("layers.{l}.mamba1.d", mamba + "D");
  const std::string block = layer + "feed_forward.";
  AddMoeNames(rules, block, num_experts);
  rules->Add("layers.{l}.moe.router", block + "router.weight");
  AddGatedMlpNames(rules, "layers.{l}.mlp.", block);
}

}  // namespace

void ReadJamba(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 65536},
                  {"hidden_size", 4096},
                  {"intermediate_size", 14336},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"num_key_value_heads", 8},
                  {"max_position_embeddings", 262144},
                  {"num_experts", 16},
                  {"num_experts_per_tok", 2}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  config->ExpectAbsent("sliding_window");
  ExpectUnscaledRope(config);
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-6);
  const AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  const Mamba1Spec mamba = ReadMamba(config, spec->hidden_size, norm);
  const MlpSpec mlp{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner)};
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert = mlp;
  moe.router.score = RouterSpec::Score::kSoftmax;
  const Every attends = ReadEvery(config, "attn_layer_period", 8, "attn_layer_offset", 4);
  const Every sparse = ReadEvery(config, "expert_layer_period", 2, "expert_layer_offset", 1);
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = norm;
    if (attends(l)) {
      layer.mixer = attn;
    } else {
      layer.mixer = mamba;
    }
    if (sparse(l) && moe.num_experts > 1) {
      layer.ffn = moe;
    } else {
      layer.ffn = mlp;
    }
  }
  AddNames(rules, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
