// MiniMax-M2: grouped-query attention with norms over the whole q and k, part of each head rotated, in every layer a
// sigmoid router with a selection bias, experts w1, w3, w2, no shared expert.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadMiniMaxM2(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kMaxDraftLayers = 64;
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("qk_norm_type", {"per_layer"});
  config->ExpectString("scoring_func", {"sigmoid"});
  if (config->IntOr("shared_intermediate_size", 0, 0, limits::kMaxInner) != 0) {
    config->Unsupported("shared_intermediate_size", "is not 0; no shared experts in this architecture");
  }
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, /*default_head_dim=*/128);
  if (config->BoolOr("use_qk_norm", true)) attn.qk_norm = QkNorm::kFullWidth;
  attn.qk_norm_spec = norm;
  const int64_t rotary_dim = config->IntOr("rotary_dim", attn.head_dim, 2, limits::kMaxHeadDim);
  attn.rope =
      ReadRope(config, {.head_dim = attn.head_dim,
                        .theta = 5e6,
                        .partial_rotary_factor = static_cast<double>(rotary_dim) / static_cast<double>(attn.head_dim),
                        .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_bias = config->BoolOr("use_routing_bias", true);
  moe.router.normalize = RouterSpec::Normalize::kSum;
  AddPreNormLayers(config, spec, norm, attn, moe, std::vector<bool>(static_cast<size_t>(num_layers), true));

  AddLlamaNames(rules);
  const std::string block = "model.layers.{l}.block_sparse_moe.";
  const std::string mlp = "model.layers.{l}.mlp.";  // as transformers 5 holds and may save it
  rules->Add("layers.{l}.moe.router", block + "gate.weight");
  rules->Add("layers.{l}.moe.router.select_bias", block + "e_score_correction_bias");
  rules->AddExperts("layers.{l}.moe.experts.", block + "experts.", "w1", "w3", "w2");
  AddMoeNames(rules, mlp, moe.num_experts);
  rules->Add("layers.{l}.moe.router.select_bias", mlp + "e_score_correction_bias");
  IgnoreCommon(rules, config, "model.", num_layers);
  rules->IgnoreDraftLayers("model.layers.", num_layers, config->IntOr("num_mtp_modules", 0, 0, kMaxDraftLayers));
  // transformers has the norms and the bias whatever use_qk_norm and use_routing_bias say; the authors' code goes by
  // them. The file tells which of them wrote it.
  rules->Settle([](const TensorRules::StoredShapes& stored, ModelSpec* settled) {
    for (size_t l = 0; l < settled->layers.size(); ++l) {
      const std::string layer = Cat("layers.", l, ".");
      if (stored(layer + "attn.q_norm") != nullptr) {
        std::get<AttentionSpec>(settled->layers[l].mixer).qk_norm = QkNorm::kFullWidth;
      }
      if (stored(layer + "moe.router.select_bias") != nullptr) {
        std::get<MoeSpec>(settled->layers[l].ffn).router.select_bias = true;
      }
    }
  });
}

}  // namespace moe
