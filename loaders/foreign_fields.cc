#include "loaders/foreign_fields.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include "loaders/json_text.h"

namespace moe {
namespace {

using nlohmann::json;

// What the layers of a spec do, as far as the fields ask.
struct Facts {
  std::set<Activation> activations;
  std::set<RouterSpec::Score> scores;
  std::set<float> router_scales;
  std::set<int64_t> groups;
  std::set<bool> normalizes;  // the chosen experts' weights
  std::set<int64_t> windows;
  std::set<float> attention_caps;
  std::set<bool> head_norms;  // of q and k
  float logit_cap = 0;
  bool select_bias = false;
  bool shared = false;
  bool rotates = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool layer_types = false;  // the config says of each layer what it is
  bool windows_off = false;  // … or that none has a window

  void Add(const MlpSpec& mlp) {
    activations.insert(mlp.activation);
    mlp_bias = mlp_bias || mlp.bias;
  }
  void Add(const MoeSpec& moe) {
    Add(moe.expert);
    if (moe.shared) Add(moe.shared->mlp);
    scores.insert(moe.router.score);
    router_scales.insert(moe.router.scale);
    groups.insert(moe.router.num_groups);
    normalizes.insert(moe.router.normalize != RouterSpec::Normalize::kNone || moe.router.sinks > 0);
    select_bias = select_bias || moe.router.select_bias;
    shared = shared || moe.shared;
  }
  void Add(const AttentionSpec& attn) {
    windows.insert(attn.window);
    attention_caps.insert(attn.logit_cap);
    head_norms.insert(attn.qk_norm != QkNorm::kNone);
    rotates = rotates || attn.rope;
    attention_bias = attention_bias || attn.qkv_bias || attn.output_bias;
  }
  void Add(const MlaSpec& mla) {
    windows.insert(mla.window);
    rotates = rotates || mla.rope;
    attention_bias = attention_bias || mla.q_a_bias || mla.kv_a_bias || mla.output_bias;
  }
  void Add(const CompressedAttentionSpec& attn) {
    windows.insert(attn.window);
    rotates = true;
  }
  void Add(const LightningSpec& lightning) { rotates = rotates || lightning.rope; }
  template <typename Other>
  void Add(const Other&) {}
};

Facts FactsOf(const ModelSpec& spec) {
  Facts facts;
  facts.logit_cap = spec.logit_cap;
  for (const LayerSpec& layer : spec.layers) {
    std::visit([&facts](const auto& mixer) { facts.Add(mixer); }, layer.mixer);
    std::visit([&facts](const auto& ffn) { facts.Add(ffn); }, layer.ffn);
    if (!layer.beside) continue;
    facts.Add(layer.beside->mlp);
    facts.shared = true;
  }
  return facts;
}

bool Has(const std::set<Activation>& all, std::initializer_list<Activation> some) {
  return std::any_of(some.begin(), some.end(), [&all](Activation one) { return all.contains(one); });
}

bool ActivationAgrees(const Facts& facts, const json& value) {
  if (value == "silu" || value == "swish") {
    return Has(facts.activations, {Activation::kSilu, Activation::kSwigluOai, Activation::kSwigluStep});
  }
  if (value == "gelu") return Has(facts.activations, {Activation::kGeluErf});
  if (value == "gelu_pytorch_tanh") return Has(facts.activations, {Activation::kGeluTanh});
  return value == "relu2" && Has(facts.activations, {Activation::kRelu2});
}

bool ScoreAgrees(const Facts& facts, const json& value) {
  if (value == "softmax") return facts.scores.contains(RouterSpec::Score::kSoftmax);
  if (value == "sigmoid") return facts.scores.contains(RouterSpec::Score::kSigmoid);
  return value == "sqrtsoftplus" && facts.scores.contains(RouterSpec::Score::kSqrtSoftplus);
}

bool TopKAgrees(const Facts& facts, const json& value) {
  if (value == "noaux_tc") return facts.select_bias;
  return (value == "greedy" || value == "group_limited_greedy") && !facts.select_bias &&
         (value != "greedy" || facts.groups == std::set<int64_t>{1});
}

bool PositionsAgree(const Facts& facts, const json& value) {
  if (value == "rope" || value == "rotary" || value == "rope_gptj") return facts.rotates;
  return (value == "nope" || value == "none") && !facts.rotates;
}

bool WindowAgrees(const Facts& facts, const json& value) {
  if (!value.is_number_integer()) return false;
  return value <= 0 || facts.layer_types || facts.windows_off || facts.windows.contains(value.get<int64_t>());
}

// 0 says none.
bool CapAgrees(float cap, const json& value) {
  return value.is_number() && value.get<float>() == cap;
}

struct ForeignField {
  const char* name;
  bool (*agrees)(const Facts& facts, const json& value);
};

constexpr ForeignField kForeignFields[] = {
    {"hidden_act", ActivationAgrees},
    {"hidden_activation", ActivationAgrees},
    // What has biases by itself has them in the file.
    {"attention_bias", [](const Facts& f, const json& v) { return v == false || (v == true && f.attention_bias); }},
    {"mlp_bias", [](const Facts& f, const json& v) { return v == false || (v == true && f.mlp_bias); }},
    {"norm_topk_prob",
     [](const Facts& f, const json& v) { return v.is_boolean() && f.normalizes.contains(v.get<bool>()); }},
    // How wide they are, other fields say.
    {"n_shared_experts", [](const Facts& f, const json& v) { return v.is_number_integer() && (v > 0) == f.shared; }},
    {"scoring_func", ScoreAgrees},
    {"topk_method", TopKAgrees},
    {"n_group",
     [](const Facts& f, const json& v) {
       return v.is_number_integer() && f.groups.contains(std::max<int64_t>(1, v.get<int64_t>()));
     }},
    {"routed_scaling_factor",
     [](const Facts& f, const json& v) { return v.is_number() && f.router_scales.contains(v.get<float>()); }},
    {"position_embedding_type", PositionsAgree},
    {"sliding_window", WindowAgrees},
    // Norms of latents go by this name too.
    {"use_qk_norm",
     [](const Facts& f, const json& v) {
       return v.is_boolean() && (f.head_norms.empty() || f.head_norms.contains(v.get<bool>()));
     }},
    {"final_logit_softcapping", [](const Facts& f, const json& v) { return CapAgrees(f.logit_cap, v); }},
    {"attn_logit_softcapping",
     [](const Facts& f, const json& v) {
       return std::any_of(f.attention_caps.begin(), f.attention_caps.end(),
                          [&v](float c) { return CapAgrees(c, v); }) ||
              v == 0;
     }},
};

// Of a field that routers have, in a model without any.
bool NeedsExperts(const std::string& name) {
  for (const char* one :
       {"norm_topk_prob", "n_shared_experts", "scoring_func", "topk_method", "n_group", "routed_scaling_factor"}) {
    if (name == one) return true;
  }
  return false;
}

}  // namespace

void CheckForeignFields(ConfigReader* config, const ModelSpec& spec) {
  Facts facts = FactsOf(spec);
  for (const ForeignField& field : kForeignFields) {
    const json* value = config->Unread(field.name);
    if (value == nullptr || (NeedsExperts(field.name) && facts.scores.empty())) continue;
    facts.layer_types = config->Has("layer_types");
    facts.windows_off = !config->BoolOr("use_sliding_window", true);
    if (!config->ok()) return;
    if (field.agrees(facts, *value)) continue;
    const std::string shown = value->is_structured() ? value->type_name()
                              : value->is_string()   ? Quoted(value->get_ref<const std::string&>())
                                                     : value->dump();
    config->Unsupported(field.name,
                        Cat("is ", shown, ", but this architecture computes something else whatever it says"));
  }
}

}  // namespace moe
