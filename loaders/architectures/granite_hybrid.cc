// Granite 4: Granite's experts and shared MLP behind Mamba-2 layers, with attention layers between them that may do
// without positions.
#include <algorithm>
#include <limits>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/granite.h"
#include "loaders/rope.h"

namespace moe {
namespace {

Mamba2Spec ReadGraniteMamba(ConfigReader* config, const ModelSpec& spec) {
  Mamba2Spec mamba;
  mamba.num_heads = config->IntOr("mamba_n_heads", 128, 1, limits::kMaxHeads);
  const int64_t inner = config->IntOr("mamba_expand", 2, 1, 64) * spec.hidden_size;
  if (config->TypeOf("mamba_d_head") == nlohmann::json::value_t::string) {
    config->ExpectString("mamba_d_head", {"auto"});
    mamba.head_dim = inner / mamba.num_heads;
  } else {
    mamba.head_dim = config->IntOr("mamba_d_head", inner / mamba.num_heads, 1, limits::kMaxHeadDim);
  }
  if (config->ok() && mamba.inner() != inner) {
    config->Invalid("mamba_n_heads",
                    Cat("× mamba_d_head is ", mamba.inner(), ", but mamba_expand × hidden_size ", inner));
  }
  mamba.state_size = config->IntOr("mamba_d_state", 256, 1, limits::kMaxHeadDim);
  mamba.num_groups = config->IntOr("mamba_n_groups", 1, 1, limits::kMaxHeads);
  mamba.conv_kernel = config->IntOr("mamba_d_conv", 4, 1, 64);
  mamba.conv_bias = config->BoolOr("mamba_conv_bias", true);
  mamba.proj_bias = config->BoolOr("mamba_proj_bias", false);
  mamba.norm_eps = spec.final_norm.eps;
  config->ExpectString("hidden_act", {"silu"});  // of the convolution too
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> limit = config->FloatList("time_step_limit", 0, kInfinity);
  if (limit.size() == 2) {
    mamba.dt_min = static_cast<float>(limit[0]);
    mamba.dt_max = static_cast<float>(limit[1]);
  } else if (!limit.empty()) {
    config->Invalid("time_step_limit", Cat("has ", limit.size(), " numbers, expected 2"));
  }
  return mamba;
}

}  // namespace

void ReadGraniteMoeHybrid(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadGraniteBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const std::vector<std::string> types = ReadLayerTypes(config, num_layers, {"linear_attention", "full_attention"},
                                                        [](int64_t) { return "linear_attention"; });
  AttentionSpec attn = ReadGraniteAttention(config, *spec);
  // Without it there is none, as with what released files say.
  config->ExpectString("position_embedding_type", {"rope", "nope"});
  if (config->StringOr("position_embedding_type", "nope") == "rope") {
    attn.rope = ReadRope(config, GraniteRope(attn, *spec));
  } else {
    ExpectUnscaledRope(config);
  }
  Mamba2Spec mamba;
  if (std::find(types.begin(), types.end(), "linear_attention") != types.end()) mamba = ReadGraniteMamba(config, *spec);
  const FfnSpec ffn = ReadGraniteFfn(config, true, 1024, /*may_be_dense=*/true);
  for (size_t l = 0; config->ok() && l < static_cast<size_t>(num_layers); ++l) {
    const MixerSpec mixer = types[l] == "linear_attention" ? MixerSpec(mamba) : MixerSpec(attn);
    spec->layers.push_back(GraniteLayer(config, *spec, mixer, ffn));
  }
  AddGraniteNames(rules, config, ffn, num_layers);
  const std::string mixer = "model.layers.{l}.mamba.";
  rules->AddLinear("layers.{l}.mamba.in_proj", mixer + "in_proj");
  rules->AddLinear("layers.{l}.mamba.out_proj", mixer + "out_proj");
  rules->AddLinear("layers.{l}.mamba.conv", mixer + "conv1d");
  rules->Add("layers.{l}.mamba.dt_bias", mixer + "dt_bias");
  rules->Add("layers.{l}.mamba.a_log", mixer + "A_log");
  rules->Add("layers.{l}.mamba.d", mixer + "D");
  rules->Add("layers.{l}.mamba.norm", mixer + "norm.weight");
}

}  // namespace moe
