// LongCat-Flash: each of its layers is two of ours. The first has attention, an MLP and beside it the experts, whose
// output is added only at the end of the second (the shortcut); the second attention and an MLP. Some experts return
// their input. In LongCat-Flash-Lite the word embeddings are averaged with those of hashed n-grams.
#include <cmath>
#include <limits>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/mla.h"

namespace moe {
namespace {

MoeSpec ReadMoe(ConfigReader* config) {
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.zero_experts = config->IntOr("zero_expert_num", 256, 0, limits::kMaxExperts);
  if (moe.zero_experts > 0) config->ExpectString("zero_expert_type", {"identity"});
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int({"expert_ffn_hidden_size", "moe_intermediate_size"}, 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router.score = RouterSpec::Score::kSoftmax;
  moe.router.select_bias = true;
  moe.router.scale = static_cast<float>(config->FloatOr("routed_scaling_factor", 6.0, 0, 1e6));
  return moe;
}

void AddNames(TensorRules* rules, ConfigReader* config, const MlaSpec& mla, const MoeSpec& moe) {
  const std::string layer = "model.layers.{l/2}.";
  const std::string block = layer + "mlp.";
  rules->Add("embed", "model.embed_tokens.weight");
  rules->Add("final_norm", "model.norm.weight");
  rules->Add("lm_head", "lm_head.weight");
  rules->Add("layers.{l}.mixer_norm", layer + "input_layernorm.{l%2}.weight");
  rules->Add("layers.{l}.ffn_norm", layer + "post_attention_layernorm.{l%2}.weight");
  rules->Add("layers.{l}.beside.norm", layer + "post_attention_layernorm.{l%2}.weight");
  AddMlaNames(rules, layer + "self_attn.{l%2}.", mla);
  AddGatedMlpNames(rules, "layers.{l}.beside.", layer + "mlps.{l%2}.");
  AddGatedMlpNames(rules, "layers.{l}.mlp.", layer + "mlps.{l%2}.");
  rules->Add("layers.{l}.moe.router", block + "router.classifier.weight");
  rules->Add("layers.{l}.moe.router.select_bias", block + "router.e_score_correction_bias");
  rules->AddExperts("layers.{l}.moe.experts.", block + "experts.", "gate_proj", "up_proj", "down_proj");
  // transformers holds, and saves, gates of the experts that return their input, which it never reads.
  rules->Add("layers.{l}.moe.experts.{e}.gate", block + "experts.gate_up_proj", Stacked(moe.num_choices()).Part(0, 2));
  rules->Add("layers.{l}.moe.experts.{e}.up", block + "experts.gate_up_proj", Stacked(moe.num_choices()).Part(1, 2));
  rules->Add("layers.{l}.moe.experts.{e}.down", block + "experts.down_proj", Stacked(moe.num_experts));
  for (int64_t e = moe.num_experts; e < moe.num_choices(); ++e) {
    rules->Ignore(Cat("model.layers.*.mlp.experts.", e, ".*"), "experts without weights");
  }
  // The router is computed without it, also in the model's own code.
  if (config->BoolOr("router_bias", false)) rules->Ignore("*.mlp.router.classifier.bias", "a bias that is not used");
  rules->Ignore("model.mtp.*", "multi-token prediction");
  rules->Ignore("*.rotary_emb.inv_freq", "stored rotary frequencies");
}

NgramMeanSpec ReadNgrams(ConfigReader* config, const ModelSpec& spec) {
  constexpr int64_t kMostSplits = 1024;
  NgramMeanSpec ngram;
  ngram.max_n = config->Int("emb_neighbor_num", 2, NgramSpec::kMaxN);
  ngram.heads_per_n = config->Int("emb_split_num", 1, kMostSplits);
  const double ratio = config->Float("ngram_vocab_size_ratio", 1e-6, 1e6);
  if (config->ok() && spec.eos_token_ids.empty()) {
    config->Invalid("eos_token_id", "is absent; n-gram embeddings need it");
  }
  if (!config->ok()) return ngram;
  ngram.boundary = spec.eos_token_ids[0];
  ngram.dim = spec.hidden_size / ngram.heads();
  for (int64_t h = 0; h < ngram.heads(); ++h) {
    const double rows = ratio * static_cast<double>(spec.vocab_size) + static_cast<double>(2 * h + 1);
    if (rows >= std::numeric_limits<int32_t>::max()) config->Invalid("ngram_vocab_size_ratio", Cat("is ", ratio));
    ngram.head_rows.push_back(config->ok() ? static_cast<int64_t>(rows) : 1);
  }
  return ngram;
}

}  // namespace

void ReadLongcatFlashNgram(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadLongcatFlash(config, spec, rules);
  spec->ngram_mean = ReadNgrams(config, *spec);
  const std::string in = "model.ngram_embeddings.";
  rules->Add("embed", in + "word_embeddings.weight");
  rules->Add("ngram_mean.{l}.table", in + "embedders.{l}.weight");
  rules->Add("ngram_mean.{l}.projection", in + "post_projs.{l}.weight");
}

void ReadLongcatFlash(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 131072},
                  {"hidden_size", 6144},
                  {"num_layers", 28},
                  {"num_attention_heads", 64},
                  {"max_position_embeddings", 131072},
                  {"bos_token_id", 1},
                  {"eos_token_id", 2},
                  {"ffn_hidden_size", 12288},
                  {"moe_topk", 12},
                  {"n_routed_experts", 512},
                  {"expert_ffn_hidden_size", 2048}});
  ReadBasics(config, spec);
  const int64_t num_layers = config->Int("num_layers", 1, limits::kMaxLayers / 2);
  config->ExpectBool("mla_scale_q_lora", true);
  config->ExpectBool("mla_scale_kv_lora", true);
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;
  MlaSpec mla = ReadMla(config, *spec, {.q_lora = 1536, .theta = 1e7});
  const auto hidden = static_cast<double>(spec->hidden_size);
  mla.q_scale = static_cast<float>(std::sqrt(hidden / static_cast<double>(mla.q_lora)));
  mla.kv_scale = static_cast<float>(std::sqrt(hidden / static_cast<double>(mla.kv_lora)));
  const MoeSpec moe = ReadMoe(config);
  const MlpSpec mlp{.intermediate_size = config->Int({"ffn_hidden_size", "intermediate_size"}, 1, limits::kMaxInner),
                    .activation = moe.expert.activation};
  for (int64_t l = 0; config->ok() && l < 2 * num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = mla;
    layer.mixer_norm = layer.ffn_norm = norm;
    if (l % 2 == 0) {
      layer.ffn = moe;
      layer.defer_ffn = true;
      layer.beside = BesideSpec{.mlp = mlp, .norm = norm};
    } else {
      layer.ffn = mlp;
    }
  }
  AddNames(rules, config, mla, moe);
}

}  // namespace moe
