#include "loaders/architectures/common.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "loaders/json_text.h"

namespace moe {

void ReadBasics(ConfigReader* config, ModelSpec* spec, bool tied_by_default) {
  spec->vocab_size = config->Int("vocab_size", 1, limits::kMaxVocab);
  spec->hidden_size = config->Int("hidden_size", 1, limits::kMaxWidth);
  spec->max_positions = config->Int("max_position_embeddings", 1, limits::kMaxPositions);
  // In multimodal files either level may say it; a head that is stored anyway and differs is used (weight_store.h).
  spec->tied_head =
      config->BoolOr("tie_word_embeddings", tied_by_default) || config->Outer().BoolOr("tie_word_embeddings", false);
  ReadSpecialTokens(config, spec);
}

void ReadSpecialTokens(ConfigReader* config, ModelSpec* spec) {
  for (const int64_t id : config->IntOrList("eos_token_id", 0, limits::kMaxVocab)) {
    spec->eos_token_ids.push_back(static_cast<int32_t>(id));
  }
  if (const auto id = config->OptionalInt("bos_token_id", 0, limits::kMaxVocab)) {
    spec->bos_token_id = static_cast<int32_t>(*id);
  }
}

int64_t ReadLayerCount(ConfigReader* config) {
  config->ExpectAbsent("per_layer_config");
  return config->Int("num_hidden_layers", 1, limits::kMaxLayers);
}

Activation ReadGatedActivation(ConfigReader* config, const char* field) {
  config->ExpectString(field, {"silu", "swish", "gelu", "gelu_pytorch_tanh"});
  const std::string name = config->StringOr(field, "silu");
  if (name == "gelu") return Activation::kGeluErf;
  return name == "gelu_pytorch_tanh" ? Activation::kGeluTanh : Activation::kSilu;
}

NormSpec ReadRmsNorm(ConfigReader* config, double default_eps) {
  return {NormKind::kRms, static_cast<float>(config->FloatOr("rms_norm_eps", default_eps, 0, 1)), false};
}

AttentionSpec ReadGroupedQueryAttention(ConfigReader* config, const ModelSpec& spec, int64_t default_head_dim) {
  AttentionSpec attn;
  attn.num_heads = config->Int("num_attention_heads", 1, limits::kMaxHeads);
  attn.num_kv_heads = config->IntOr("num_key_value_heads", attn.num_heads, 1, limits::kMaxHeads);
  const FieldNames head_dim = {"head_dim", "attention_head_dim"};
  if (default_head_dim == 0 && !config->Has(head_dim) && config->ok() && spec.hidden_size % attn.num_heads != 0) {
    config->Invalid("num_attention_heads", Cat("is ", attn.num_heads, ", which does not divide hidden_size (",
                                               spec.hidden_size, "), and head_dim is absent"));
  }
  if (default_head_dim == 0) default_head_dim = spec.hidden_size / attn.num_heads;
  attn.head_dim = config->IntOr(head_dim, default_head_dim, 1, limits::kMaxHeadDim);
  attn.v_head_dim = attn.head_dim;
  attn.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attn.head_dim)));
  return attn;
}

std::vector<bool> ReadSparseLayers(ConfigReader* config, int64_t num_layers) {
  const int64_t step = config->IntOr("decoder_sparse_step", 1, 1, limits::kMaxLayers);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = (l + 1) % step == 0;
  for (const int64_t l : config->IntList("mlp_only_layers", 0, limits::kMaxLayers)) {
    if (l < num_layers) sparse[static_cast<size_t>(l)] = false;
  }
  return sparse;
}

namespace {

// A list with one entry a layer, or empty when absent.
std::vector<std::string> ReadPerLayer(ConfigReader* config, const char* field, int64_t num_layers) {
  std::vector<std::string> types = config->StringList(field);
  if (config->ok() && config->Has(field) && static_cast<int64_t>(types.size()) != num_layers) {
    config->Invalid(field, Cat("has ", types.size(), " entries, expected one for each of the ", num_layers, " layers"));
  }
  return types;
}

void CheckKinds(ConfigReader* config, const char* field, const std::vector<std::string>& types,
                std::initializer_list<const char*> allowed) {
  for (const std::string& type : types) {
    if (std::find(allowed.begin(), allowed.end(), type) != allowed.end()) continue;
    std::string offered;
    for (const char* one : allowed) offered += Cat(offered.empty() ? "" : ", ", one);
    config->Unsupported(field,
                        Cat("has the layer kind ", Quoted(type), "; supported for this architecture: ", offered));
  }
}

}  // namespace

std::vector<std::string> ReadLayerTypes(ConfigReader* config, int64_t num_layers,
                                        std::initializer_list<const char*> allowed,
                                        const std::function<std::string(int64_t)>& otherwise) {
  static constexpr std::pair<const char*, const char*> kOldSpellings[] = {
      {"mamba", "linear_attention"},
      {"attention", "full_attention"},
      {"deepseek_sparse_attention", "indexed_attention"},
      {"qwen_sparse_attention", "indexed_attention"}};
  std::vector<std::string> types = ReadPerLayer(config, "layer_types", num_layers);
  for (std::string& type : types) {
    for (const auto& [old, current] : kOldSpellings) {
      if (type == old) {
        type = current;
        break;
      }
    }
  }
  CheckKinds(config, "layer_types", types, allowed);
  types.resize(static_cast<size_t>(num_layers));
  if (!config->Has("layer_types") || !config->ok()) {
    for (int64_t l = 0; l < num_layers; ++l) types[static_cast<size_t>(l)] = otherwise(l);
  }
  return types;
}

std::vector<int64_t> ReadWindows(ConfigReader* config, int64_t num_layers, int64_t default_window,
                                 const std::function<std::string(int64_t)>& otherwise) {
  const std::string sliding = "sliding_attention";
  const std::vector<std::string> types =
      ReadLayerTypes(config, num_layers, {"full_attention", "sliding_attention"}, otherwise);
  if (config->IsNull("sliding_window")) default_window = 0;
  const int64_t window = config->IntOr("sliding_window", default_window, 0, limits::kMaxPositions);
  std::vector<int64_t> windows;
  for (const std::string& type : types) windows.push_back(type == sliding ? window : 0);
  if (config->ok() && window == 0 && std::find(types.begin(), types.end(), sliding) != types.end()) {
    config->Invalid("sliding_window", "is absent or 0, but layer_types has sliding_attention");
  }
  return windows;
}

std::vector<bool> ReadMlpLayerTypes(ConfigReader* config, int64_t num_layers, int64_t dense_by_default) {
  const std::vector<std::string> types = ReadPerLayer(config, "mlp_layer_types", num_layers);
  CheckKinds(config, "mlp_layer_types", types, {"dense", "sparse"});
  const int64_t dense = config->IntOr("first_k_dense_replace", dense_by_default, 0, limits::kMaxLayers);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = l >= dense;
  if (config->ok()) {
    for (size_t l = 0; l < types.size(); ++l) sparse[l] = types[l] == "sparse";
  }
  return sparse;
}

std::vector<int64_t> ReadLayerNumbers(ConfigReader* config, const char* field) {
  if (config->TypeOf(field) != nlohmann::json::value_t::string) return config->IntList(field, 0, limits::kMaxLayers);
  std::vector<int64_t> numbers;
  const std::string text = config->String(field);
  if (text.find_first_not_of("0123456789, ") != std::string::npos) {
    config->Invalid(field, Cat("is ", Quoted(text), ", expected numbers with commas between them"));
  }
  int64_t number = -1;
  for (const char c : text + ",") {
    if (c >= '0' && c <= '9') {
      number = std::min(std::max<int64_t>(number, 0) * 10 + (c - '0'), limits::kMaxLayers);
    } else if (c == ',' && number >= 0) {
      numbers.push_back(number);
      number = -1;
    }
  }
  return numbers;
}

RouterSpec ReadDeepseekRouter(ConfigReader* config, const DeepseekMoeDefaults& defaults) {
  RouterSpec router;
  router.score = defaults.score;
  if (defaults.score == RouterSpec::Score::kSigmoid) {
    // "noaux_tc" under the wrong name: the released dots.llm1 has it.
    config->ExpectString({"scoring_func", "moe_router_activation_func"}, {"sigmoid", "noaux_tc"});
    config->ExpectString("topk_method", {"noaux_tc"});
    router.select_bias = true;
  } else {
    config->ExpectString({"scoring_func", "moe_router_activation_func"}, {"softmax"});
  }
  if (config->BoolOr({"norm_topk_prob", "moe_renormalize"}, defaults.norm_topk_prob)) {
    router.normalize = RouterSpec::Normalize::kSum;
    router.normalize_eps = 1e-20f;
  }
  router.scale = static_cast<float>(
      config->FloatOr({"routed_scaling_factor", "router_scaling_factor"}, defaults.routed_scaling_factor, 0, 1e6));
  router.num_groups = config->IntOr({"n_group", "num_expert_group"}, defaults.n_group, 1, limits::kMaxExperts);
  router.top_groups = config->IntOr("topk_group", defaults.topk_group, 1, limits::kMaxExperts);
  return router;
}

MoeSpec ReadDeepseekMoe(ConfigReader* config, const DeepseekMoeDefaults& defaults) {
  constexpr int64_t kMaxShared = 1024;
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router = ReadDeepseekRouter(config, defaults);
  const int64_t shared =
      config->IntOr({"n_shared_experts", "num_shared_experts"}, defaults.n_shared_experts, 0, kMaxShared);
  if (shared > 0) {
    moe.shared = SharedExpertSpec{.mlp = moe.expert, .count = shared};
    moe.shared->mlp.intermediate_size *= shared;
  }
  return moe;
}

int64_t ReadExpertCount(ConfigReader* config) {
  return config->Int({"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}, 1,
                     limits::kMaxExperts);
}

int64_t ReadTopK(ConfigReader* config) {
  return config->Int({"num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts"}, 1,
                     limits::kMaxExperts);
}

void AddPreNormLayers(ConfigReader* config, ModelSpec* spec, const NormSpec& norm, const AttentionSpec& attn,
                      const MoeSpec& moe, const std::vector<bool>& sparse, bool mlp_bias) {
  for (size_t l = 0; config->ok() && l < sparse.size(); ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = attn;
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.ffn = moe;
    if (!sparse[l]) {
      layer.ffn = MlpSpec{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                          .activation = moe.expert.activation,
                          .bias = mlp_bias};
    }
  }
}

void SetWindows(const std::vector<int64_t>& windows, ModelSpec* spec) {
  for (size_t l = 0; l < spec->layers.size() && l < windows.size(); ++l) {
    if (auto* attn = std::get_if<AttentionSpec>(&spec->layers[l].mixer)) attn->window = windows[l];
  }
}

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
