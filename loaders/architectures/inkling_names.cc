// The names of Inkling's tensors: transformers', and those of the released checkpoints.
#include "loaders/architectures/common.h"
#include "loaders/architectures/inkling.h"

namespace moe {
namespace {

// As transformers saves them, under PREFIX.
void AddNames(TensorRules* rules, const std::string& prefix, const MoeSpec& moe) {
  const std::string layer = prefix + "layers.{l}.";
  const std::string attention = layer + "self_attn.";
  const std::string block = layer + "mlp.";
  const int64_t choices = moe.num_experts + moe.router.sinks;
  AddLlamaNames(rules, prefix);
  rules->Add("embed_norm", prefix + "embed_tokens.embed_norm.weight");
  rules->Add("layers.{l}.attn.r", attention + "r_proj.weight");
  rules->Add("layers.{l}.attn.relative", attention + "rel_logits_proj.proj");
  rules->Add("layers.{l}.attn.conv_k", attention + "k_sconv.conv1d.weight");
  rules->Add("layers.{l}.attn.conv_v", attention + "v_sconv.conv1d.weight");
  rules->Add("layers.{l}.mixer.conv", layer + "attn_sconv.conv1d.weight");
  rules->Add("layers.{l}.ffn.conv", layer + "mlp_sconv.conv1d.weight");
  rules->Add("layers.{l}.moe.router", block + "gate.weight", RowSlice(0, choices));
  rules->Add("layers.{l}.moe.router.sinks", block + "gate.weight", RowSlice(moe.num_experts, choices));
  rules->Add("layers.{l}.moe.router.weight_scale", block + "gate.global_scale");
  rules->Add("layers.{l}.moe.router.select_bias", block + "gate.e_score_correction_bias");
  rules->AddFusedExperts("layers.{l}.moe.experts.", block + "experts.gate_up_proj", block + "experts.down_proj",
                         moe.num_experts);
  for (const char* name : {"gate", "up", "down"}) {
    rules->Add(Cat("layers.{l}.moe.shared.{e}.", name), Cat(block, "shared_experts.", name, "_proj"),
               Stacked(moe.router.sinks));
  }
  AddGatedMlpNames(rules, "layers.{l}.mlp.", block);
  rules->Add("layers.{l}.ffn_scale", block + "global_scale");
}

// As the released checkpoints have them, with the rows of gate and up in turn.
void AddReleasedNames(TensorRules* rules, const MoeSpec& moe) {
  const std::string layer = "model.llm.layers.{l}.";
  const std::string attention = layer + "attn.";
  const std::string block = layer + "mlp.";
  const int64_t choices = moe.num_experts + moe.router.sinks;
  const auto add_pair = [&](const std::string& out, const std::string& in, const StoredLayout& layout) {
    rules->Add(out + "gate", in, layout.Part(0, 2).Interleaved());
    rules->Add(out + "up", in, layout.Part(1, 2).Interleaved());
  };
  rules->Add("embed", "model.llm.embed.weight");
  rules->Add("embed_norm", "model.llm.embed_norm.weight");
  rules->Add("final_norm", "model.llm.norm.weight");
  rules->Add("layers.{l}.mixer_norm", layer + "attn_norm.weight");
  rules->Add("layers.{l}.ffn_norm", layer + "mlp_norm.weight");
  rules->Add("layers.{l}.attn.q", attention + "wq_du.weight");
  rules->Add("layers.{l}.attn.k", attention + "wk_dv.weight");
  rules->Add("layers.{l}.attn.v", attention + "wv_dv.weight");
  rules->Add("layers.{l}.attn.r", attention + "wr_du.weight");
  rules->Add("layers.{l}.attn.o", attention + "wo_ud.weight");
  rules->Add("layers.{l}.attn.q_norm", attention + "q_norm.weight");
  rules->Add("layers.{l}.attn.k_norm", attention + "k_norm.weight");
  rules->Add("layers.{l}.attn.conv_k", attention + "k_sconv.weight");
  rules->Add("layers.{l}.attn.conv_v", attention + "v_sconv.weight");
  rules->Add("layers.{l}.attn.relative", attention + "rel_logits_proj.proj");
  rules->Add("layers.{l}.mixer.conv", layer + "attn_sconv.weight");
  rules->Add("layers.{l}.ffn.conv", layer + "mlp_sconv.weight");
  rules->Add("layers.{l}.moe.router", block + "gate.weight", RowSlice(0, choices));
  rules->Add("layers.{l}.moe.router.sinks", block + "gate.weight", RowSlice(moe.num_experts, choices));
  rules->Add("layers.{l}.moe.router.weight_scale", block + "gate.global_scale");
  rules->Add("layers.{l}.moe.router.select_bias", block + "gate.bias");
  add_pair("layers.{l}.moe.experts.{e}.", block + "experts.w13_weight", Stacked(moe.num_experts));
  rules->Add("layers.{l}.moe.experts.{e}.down", block + "experts.w2_weight", Stacked(moe.num_experts));
  add_pair("layers.{l}.moe.shared.{e}.", block + "shared_experts.shared_w13_weight", Stacked(moe.router.sinks));
  rules->Add("layers.{l}.moe.shared.{e}.down", block + "shared_experts.shared_w2_weight", Stacked(moe.router.sinks));
  add_pair("layers.{l}.mlp.", block + "w13_dn.weight", Plain());
  rules->Add("layers.{l}.mlp.down", block + "w2_md.weight");
  rules->Add("layers.{l}.ffn_scale", block + "global_scale");
}

}  // namespace

void AddInklingNames(TensorRules* rules, const ModelSpec& spec, const MoeSpec& moe) {
  const bool multimodal = spec.architecture != "InklingForCausalLM";
  AddNames(rules, multimodal ? "model.language_model." : "model.", moe);
  if (multimodal) AddReleasedNames(rules, moe);
  // A head of all the vocabulary's rows, of which the last are padding, or of the others alone.
  for (const char* name : {"lm_head.weight", "model.llm.unembed.weight"}) {
    rules->Add("lm_head", name);
    rules->Add("lm_head", name, RowSlice(0, spec.vocab_size));
  }
  for (const char* tower : {"visual", "audio", "vision_tower", "audio_tower"}) {
    rules->Ignore(Cat("model.", tower, ".*"), "vision and audio");
  }
  rules->Ignore("model.mtp.*", "multi-token prediction");
}

}  // namespace moe
