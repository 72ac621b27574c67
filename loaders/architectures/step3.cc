// Step-3: one key/value head for all query heads, whose queries come from a normed latent (multi-matrix factorisation
// attention); dense layers, then experts with a shared one.
#include <algorithm>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadStep3(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr const char* kEnum = "moe_layers_enum";
  config->Assume({{"vocab_size", 128815},
                  {"hidden_size", 7168},
                  {"intermediate_size", 18432},
                  {"num_hidden_layers", 61},
                  {"num_attention_heads", 64},
                  {"moe_intermediate_size", 5120},
                  {"moe_num_experts", 48},
                  {"moe_top_k", 3},
                  {"share_expert_dim", 5120},
                  {"share_q_dim", 2048}});
  // Released files say it without the plural's s.
  const int64_t most = config->IntOr("max_seq_len", 65536, 1, limits::kMaxPositions);
  const int64_t positions = config->IntOr("max_position_embedding", most, 1, limits::kMaxPositions);
  config->Assume({{"max_position_embeddings", positions}, {"num_key_value_heads", 1}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-5);
  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, 256);
  if (config->IntOr("num_attention_groups", 1, 1, limits::kMaxHeads) != 1 || attn.num_kv_heads != 1) {
    config->Unsupported("num_attention_groups", "is not 1, the number of key/value heads that factored queries have");
  }
  attn.q_lora = config->Int("share_q_dim", 1, limits::kMaxWidth);
  attn.q_lora_norm = norm;
  attn.rope = ReadRope(
      config, {.head_dim = attn.head_dim, .theta = 500000, .max_positions = spec->max_positions, .whole_head = true});

  MoeSpec moe;
  moe.num_experts = config->Int("moe_num_experts", 1, limits::kMaxExperts);
  moe.top_k = config->Int("moe_top_k", 1, limits::kMaxExperts);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  if (config->BoolOr("norm_expert_weight", false)) moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.shared = SharedExpertSpec{.mlp = {.intermediate_size = config->Int("share_expert_dim", 1, limits::kMaxInner)}};
  const std::vector<int64_t> listed = ReadLayerNumbers(config, kEnum);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) {
    sparse[static_cast<size_t>(l)] =
        config->Has(kEnum) ? std::find(listed.begin(), listed.end(), l) != listed.end() : l >= 1;
  }
  AddPreNormLayers(config, spec, norm, attn, moe, sparse);

  const std::string layer = "model.layers.{l}.";
  // Before the names of Llama, whose q_proj is all of the query's projection.
  rules->Add("layers.{l}.attn.q", layer + "self_attn.wq.weight");
  rules->Add("layers.{l}.attn.q_a", layer + "self_attn.q_proj.weight");
  rules->Add("layers.{l}.attn.q_a_norm", layer + "self_attn.inter_norm.weight");
  AddLlamaNames(rules);
  rules->Add("layers.{l}.moe.router", layer + "moe.gate.weight");
  for (const char* name : {"gate", "up", "down"}) {
    rules->Add(Cat("layers.{l}.moe.experts.{e}.", name), Cat(layer, "moe.", name, "_proj.weight"),
               Stacked(moe.num_experts));
  }
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", layer + "share_expert.");
  AddGatedMlpNames(rules, "layers.{l}.mlp.", layer + "mlp.");
  IgnoreCommon(rules, config, "model.", num_layers);
  for (const char* tower : {"vision_model.*", "vit_downsampler*", "vit_large_projector.*"}) {
    rules->Ignore(tower, "vision");
  }
}

}  // namespace moe
