// Snowflake Arctic: in every second layer experts that read the row from before the attention, beside a small MLP that
// reads the one from after it; an MLP alone in the others.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadArctic(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 32000},
                  {"hidden_size", 4096},
                  {"intermediate_size", 14336},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"max_position_embeddings", 4096},
                  {"num_experts_per_tok", 1},
                  {"num_local_experts", 8},
                  {"bos_token_id", 1},
                  {"eos_token_id", 2}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  config->ExpectAbsent("quantization");
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-5);
  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.window = config->IntOr("sliding_window", 0, 0, limits::kMaxPositions);
  attn.rope = ReadRope(
      config, {.head_dim = attn.head_dim, .theta = 1e6, .max_positions = spec->max_positions, .whole_head = true});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner);
  moe.router.normalize = RouterSpec::Normalize::kSum;
  const int64_t every = config->IntOr("moe_layer_frequency", 2, 1, limits::kMaxLayers);
  const bool residual = config->BoolOr({"parallel_attn_mlp_res", "use_residual"}, false);
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = attn;
    layer.mixer_norm = layer.ffn_norm = norm;
    if ((l + 1) % every != 0) {
      layer.ffn = moe.expert;
      continue;
    }
    layer.ffn = moe;
    if (!residual) continue;
    layer.parallel = true;
    layer.beside = BesideSpec{.mlp = {.intermediate_size = spec->hidden_size}, .after_mixer = true, .norm = norm};
  }

  AddLlamaNames(rules);
  const std::string layer = "model.layers.{l}.";
  const std::string block = layer + "block_sparse_moe.";
  rules->Add("layers.{l}.beside.norm", layer + "residual_layernorm.weight");
  rules->AddMlp("layers.{l}.beside.", layer + "residual_mlp.", "w1", "w3", "w2");
  rules->AddMlp("layers.{l}.mlp.", block + "mlp.", "w1", "w3", "w2");
  rules->Add("layers.{l}.moe.router", block + "gate.weight");
  rules->AddExperts("layers.{l}.moe.experts.", block + "experts.", "w1", "w3", "w2");
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
