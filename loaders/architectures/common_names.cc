// Tensor names that many families share (common.h).
#include "loaders/architectures/common.h"

namespace moe {

void AddLlamaNames(TensorRules* rules, const std::string& prefix) {
  AddLlamaAttentionNames(rules, prefix);
  rules->Add("layers.{l}.ffn_norm", prefix + "layers.{l}.post_attention_layernorm.weight");
}

void AddLlamaAttentionNames(TensorRules* rules, const std::string& prefix) {
  const std::string layer = prefix + "layers.{l}.";
  rules->Add("embed", prefix + "embed_tokens.weight");
  rules->Add("final_norm", prefix + "norm.weight");
  rules->Add("lm_head", "lm_head.weight");
  rules->Add("layers.{l}.mixer_norm", layer + "input_layernorm.weight");
  for (const char* name : {"q", "k", "v", "o"}) {
    rules->AddLinear(Cat("layers.{l}.attn.", name), Cat(layer, "self_attn.", name, "_proj"));
  }
  rules->Add("layers.{l}.attn.q_norm", layer + "self_attn.q_norm.weight");
  rules->Add("layers.{l}.attn.k_norm", layer + "self_attn.k_norm.weight");
}

void AddGatedMlpNames(TensorRules* rules, const std::string& out, const std::string& in) {
  rules->AddMlp(out, in, "gate_proj", "up_proj", "down_proj");
}

void AddMoeNames(TensorRules* rules, const std::string& block, int64_t num_experts) {
  rules->Add("layers.{l}.moe.router", block + "gate.weight");
  rules->AddExperts("layers.{l}.moe.experts.", block + "experts.", "gate_proj", "up_proj", "down_proj");
  rules->AddFusedExperts("layers.{l}.moe.experts.", block + "experts.gate_up_proj", block + "experts.down_proj",
                         num_experts);
}

void AddDeepseekMoeNames(TensorRules* rules, const std::string& block, int64_t num_experts) {
  AddMoeNames(rules, block, num_experts);
  rules->Add("layers.{l}.moe.router.select_bias", block + "gate.e_score_correction_bias");
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", block + "shared_experts.");
  AddGatedMlpNames(rules, "layers.{l}.mlp.", block);
}

void IgnoreCommon(TensorRules* rules, ConfigReader* config, const std::string& prefix, int64_t num_layers,
                  int64_t default_drafts) {
  constexpr int64_t kMaxDraftLayers = 64;
  rules->Ignore("*.rotary_emb.inv_freq", "stored rotary frequencies");
  rules->IgnoreDraftLayers(
      prefix + "layers.", num_layers,
      config->IntOr({"num_nextn_predict_layers", "num_mtp_layers"}, default_drafts, 0, kMaxDraftLayers));
}

}  // namespace moe
