// The names of DeepSeek-V4's tensors.
#include <tuple>

#include "loaders/architectures/common.h"
#include "loaders/architectures/deepseek_v4.h"

namespace moe {
namespace {

void AddHyperNames(TensorRules* rules) {
  for (const char* part : {"fn", "base", "scale"}) {
    for (const auto& [ours, stored, loaded] : {std::tuple{"mixer", "attn", "attn"}, std::tuple{"ffn", "ffn", "ffn"}}) {
      const std::string name = Cat("layers.{l}.", ours, "_hyper.", part);
      for (const char* prefix : {"", "model."}) rules->Add(name, Cat(prefix, "layers.{l}.hc_", stored, "_", part));
      rules->Add(name, Cat("model.layers.{l}.", loaded, "_hc.", part));
    }
    rules->Add(Cat("hyper_head.", part), Cat("hc_head_", part));
    rules->Add(Cat("hyper_head.", part), Cat("model.hc_head.hc_", part));
  }
}

}  // namespace

void AddDeepseekV4Names(TensorRules* rules, int64_t num_experts) {
  struct Name {
    const char* ours;
    const char* stored;  // under "layers.{l}."
    const char* loaded;  // under "model.layers.{l}."
  };
  static constexpr Name kNames[] = {
      {"mixer_norm", "attn_norm.weight", "input_layernorm.weight"},
      {"ffn_norm", "ffn_norm.weight", "post_attention_layernorm.weight"},
      {"cattn.q_a", "attn.wq_a.weight", "self_attn.q_a_proj.weight"},
      {"cattn.q_a_norm", "attn.q_norm.weight", "self_attn.q_a_norm.weight"},
      {"cattn.q_b", "attn.wq_b.weight", "self_attn.q_b_proj.weight"},
      {"cattn.kv", "attn.wkv.weight", "self_attn.kv_proj.weight"},
      {"cattn.kv_norm", "attn.norm.weight", "self_attn.kv_norm.weight"},
      {"cattn.sinks", "attn.attn_sink", "self_attn.sinks"},
      {"cattn.o_a", "attn.wo_a.weight", "self_attn.o_a_proj.weight"},
      {"cattn.o_b", "attn.wo_b.weight", "self_attn.o_b_proj.weight"},
      {"cattn.compressor.kv", "attn.compressor.wkv.weight", "self_attn.compressor.kv_proj.weight"},
      {"cattn.compressor.gate", "attn.compressor.wgate.weight", "self_attn.compressor.gate_proj.weight"},
      {"cattn.compressor.bias", "attn.compressor.ape", "self_attn.compressor.position_bias"},
      {"cattn.compressor.norm", "attn.compressor.norm.weight", "self_attn.compressor.kv_norm.weight"},
      {"cattn.indexer.kv", "attn.indexer.compressor.wkv.weight", "self_attn.compressor.indexer.kv_proj.weight"},
      {"cattn.indexer.gate", "attn.indexer.compressor.wgate.weight", "self_attn.compressor.indexer.gate_proj.weight"},
      {"cattn.indexer.bias", "attn.indexer.compressor.ape", "self_attn.compressor.indexer.position_bias"},
      {"cattn.indexer.norm", "attn.indexer.compressor.norm.weight", "self_attn.compressor.indexer.kv_norm.weight"},
      {"cattn.indexer.q", "attn.indexer.wq_b.weight", "self_attn.compressor.indexer.q_b_proj.weight"},
      {"cattn.indexer.weights", "attn.indexer.weights_proj.weight",
       "self_attn.compressor.indexer.scorer.weights_proj.weight"},
      {"moe.router", "ffn.gate.weight", "mlp.gate.weight"},
      {"moe.router.select_bias", "ffn.gate.bias", "mlp.gate.e_score_correction_bias"},
      {"moe.router.table", "ffn.gate.tid2eid", "mlp.gate.tid2eid"},
  };
  for (const Name& name : kNames) {
    for (const char* prefix : {"", "model."}) {
      rules->Add(Cat("layers.{l}.", name.ours), Cat(prefix, "layers.{l}.", name.stored));
    }
    rules->Add(Cat("layers.{l}.", name.ours), Cat("model.layers.{l}.", name.loaded));
  }
  const std::string experts = "layers.{l}.moe.experts.";
  for (const std::string ffn : {"layers.{l}.ffn.", "model.layers.{l}.ffn."}) {
    rules->AddExperts(experts, ffn + "experts.", "w1", "w3", "w2");
    rules->AddMlp("layers.{l}.moe.shared.", ffn + "shared_experts.", "w1", "w3", "w2");
  }
  rules->AddExperts(experts, "model.layers.{l}.mlp.experts.", "gate_proj", "up_proj", "down_proj");
  rules->AddFusedExperts(experts, "model.layers.{l}.mlp.experts.gate_up_proj", "model.layers.{l}.mlp.experts.down_proj",
                         num_experts);
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", "model.layers.{l}.mlp.shared_experts.");
  for (const auto& [ours, stored, loaded] : {std::tuple{"embed", "embed.weight", "model.embed_tokens.weight"},
                                             std::tuple{"final_norm", "norm.weight", "model.norm.weight"},
                                             std::tuple{"lm_head", "head.weight", "lm_head.weight"}}) {
    rules->Add(ours, stored);
    rules->Add(ours, loaded);
  }
  AddHyperNames(rules);
  rules->Ignore("mtp.*", "multi-token prediction");
  rules->Ignore("model.mtp.*", "multi-token prediction");
}

}  // namespace moe
