// The text part of DeepSeek-OCR 2: DeepSeek-V2's experts and router around ordinary attention.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadDeepseekOcr2(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 102400},
                  {"hidden_size", 4096},
                  {"intermediate_size", 11008},
                  {"moe_intermediate_size", 1407},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"n_routed_experts", 64},
                  {"max_position_embeddings", 2048},
                  {"bos_token_id", 1},
                  {"eos_token_id", 2}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-6);
  config->ExpectBool("use_mla", false);
  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions, .whole_head = true});

  MoeSpec moe = ReadDeepseekMoe(config, {.score = RouterSpec::Score::kSoftmax, .n_shared_experts = 2});
  moe.router.normalize = RouterSpec::Normalize::kNone;
  moe.router.normalize_eps = 0;
  moe.router.group_score = RouterSpec::GroupScore::kMax;
  moe.router.others_weigh_zero = true;
  config->ExpectString("topk_method", {"greedy", "group_limited_greedy"});
  if (config->StringOr("topk_method", "greedy") == "greedy") moe.router.num_groups = moe.router.top_groups = 1;
  const bool bias = config->BoolOr("mlp_bias", false);
  if (moe.shared) moe.shared->mlp.bias = bias;
  AddPreNormLayers(config, spec, norm, attn, moe, ReadMlpLayerTypes(config, num_layers, 0), bias);

  AddLlamaNames(rules);
  AddDeepseekMoeNames(rules, "model.layers.{l}.mlp.", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
  rules->AddAliases({{"model.", "model.language_model."}});
  for (const char* part : {"sam_model.*", "qwen2_model.*", "projector.*", "view_seperator", "vision_tower.*",
                           "multi_modal_projector.*", "view_separator"}) {
    rules->Ignore(Cat("model.", part), "vision");
  }
}

}  // namespace moe
