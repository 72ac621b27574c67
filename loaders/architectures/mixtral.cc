// Mixtral: grouped-query attention, softmax router whose chosen weights always sum to one, gated experts w1, w3, w2.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadMixtral(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  config->ExpectAbsent("sliding_window");
  const NormSpec norm{NormKind::kRms, static_cast<float>(config->FloatOr("rms_norm_eps", 1e-5, 0, 1)), false};
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .theta = 1e6, .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner);
  moe.router.score = RouterSpec::Score::kSoftmax;
  moe.router.normalize = RouterSpec::Normalize::kSum;
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = attn;
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.ffn = moe;
  }

  AddLlamaNames(rules);
  const std::string block = "model.layers.{l}.block_sparse_moe.";
  rules->Add("layers.{l}.moe.router", block + "gate.weight");
  rules->AddExperts("layers.{l}.moe.experts.", block + "experts.", "w1", "w3", "w2");
  // As transformers 5 holds and may save it.
  rules->AddFusedExperts("layers.{l}.moe.experts.", "model.layers.{l}.mlp.experts.gate_up_proj",
                         "model.layers.{l}.mlp.experts.down_proj", moe.num_experts);
  rules->Add("layers.{l}.moe.router", "model.layers.{l}.mlp.gate.weight");
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
