// Aria's text model: Llama's attention, experts stored input dimension first, chosen by a softmax over the chosen
// logits, and shared experts as one MLP. Its vision tower is skipped.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

void AddNames(TensorRules* rules, const std::string& prefix, int64_t experts) {
  AddLlamaNames(rules, prefix);
  const std::string block = prefix + "layers.{l}.mlp.";
  rules->Add("layers.{l}.moe.router", block + "router.weight");
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", block + "shared_experts.");
  const StoredLayout stored = Stacked(experts).Transposed();
  // The second pair is what transformers 5 calls them.
  for (const auto& [gate_up, down] : {std::pair("experts.fc1.weight", "experts.fc2.weight"),
                                      std::pair("experts.gate_up_proj", "experts.down_proj")}) {
    rules->Add("layers.{l}.moe.experts.{e}.gate", block + gate_up, stored.Part(0, 2));
    rules->Add("layers.{l}.moe.experts.{e}.up", block + gate_up, stored.Part(1, 2));
    rules->Add("layers.{l}.moe.experts.{e}.down", block + down, stored);
  }
}

}  // namespace

void ReadAria(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kMaxShared = 1024;
  config->Assume({{"vocab_size", 32000},
                  {"hidden_size", 4096},
                  {"intermediate_size", 4096},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"max_position_embeddings", 2048},
                  {"moe_num_experts", 8},
                  {"moe_topk", 2}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions, .whole_head = true});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner);
  moe.router.normalize = RouterSpec::Normalize::kSoftmaxOverChosen;
  if (const int64_t shared = config->IntOr("moe_num_shared_experts", 2, 0, kMaxShared); shared > 0) {
    // hidden_act is theirs alone; the routed experts always have silu.
    moe.shared = SharedExpertSpec{.mlp = {.intermediate_size = moe.expert.intermediate_size * shared,
                                          .activation = ReadGatedActivation(config),
                                          .bias = config->BoolOr("mlp_bias", false)},
                                  .count = shared};
  }
  AddPreNormLayers(config, spec, norm, attn, moe, std::vector<bool>(static_cast<size_t>(num_layers), true));

  // Of the text model alone, and of the multimodal one as it was released and as transformers 5 calls it.
  for (const char* prefix : {"model.", "language_model.model.", "model.language_model."}) {
    AddNames(rules, prefix, moe.num_experts);
    IgnoreCommon(rules, config, prefix, num_layers);
  }
  rules->Add("lm_head", "language_model.lm_head.weight");
  for (const char* tower :
       {"vision_tower.*", "multi_modal_projector.*", "model.vision_tower.*", "model.multi_modal_projector.*"}) {
    rules->Ignore(tower, "vision");
  }
}

}  // namespace moe
