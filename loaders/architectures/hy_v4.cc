// Tencent Hy4: a residual of several streams (independent hyper-connections); latent attention with sinks, an output
// gate and an indexer whose choice several layers may share; the first layer dense, then experts with clamped
// activations.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/mla.h"
#include "loaders/json_text.h"

namespace moe {
namespace {

// indexer_types: whether each layer has an indexer of its own ("full") or shares the last one's choice. Absent: the
// first layer has, and of those behind it every fourth.
std::vector<bool> ReadOwnIndexers(ConfigReader* config, int64_t num_layers) {
  const char* field = "indexer_types";
  std::vector<bool> own;
  for (const std::string& kind : config->StringList(field)) {
    if (kind != "full" && kind != "shared") {
      config->Unsupported(field, Cat("has the kind ", Quoted(kind), "; supported: full, shared"));
    }
    own.push_back(kind == "full");
  }
  for (int64_t l = 0; l < num_layers && !config->Has(field); ++l) own.push_back(l == 0 || (l - 1) % 4 == 0);
  if (config->ok() && static_cast<int64_t>(own.size()) != num_layers) {
    config->Invalid(field, Cat("has ", own.size(), " entries, expected one for each of the ", num_layers, " layers"));
  }
  if (config->ok() && !own[0]) config->Invalid(field, "layer 0 has no earlier layer to share with");
  return own;
}

void AddHyperNames(TensorRules* rules) {
  for (const char* part : {"fn", "base", "scale"}) {
    const std::string layer = "model.layers.{l}.";
    for (const auto& [ours, stored, loaded] : {std::tuple{"mixer", "attn", "attn"}, std::tuple{"ffn", "mlp", "ffn"}}) {
      const std::string name = Cat("layers.{l}.", ours, "_hyper.", part);
      rules->Add(name, Cat(layer, "hc_pre.hc_", stored, "_layer.hc_", part));
      rules->Add(name, Cat(layer, loaded, "_hc.", part));
    }
    rules->Add(Cat("hyper_head.", part), Cat("model.hc_pre.hc_head.hc_head_", part));
    rules->Add(Cat("hyper_head.", part), Cat("model.hc_head.hc_", part));
  }
}

}  // namespace

void ReadHyV4(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 120832},
                  {"hidden_size", 2816},
                  {"intermediate_size", 6912},
                  {"moe_intermediate_size", 768},
                  {"num_hidden_layers", 34},
                  {"num_attention_heads", 32},
                  {"max_position_embeddings", 262144},
                  {"n_routed_experts", 256},
                  {"num_experts_per_tok", 8},
                  {"bos_token_id", 120000},
                  {"eos_token_id", 120025}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu", "swish"});
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;
  spec->hyper = HyperSpec{.kind = HyperSpec::Kind::kIndependent,
                          .streams = config->IntOr("hc_mult", 4, 1, HyperSpec::kMaxStreams),
                          .norm = {.kind = NormKind::kRms, .eps = norm.eps, .weight = false},
                          .eps = static_cast<float>(config->FloatOr("hc_eps", 1e-6, 0, 1)),
                          .post_scale = static_cast<float>(config->FloatOr("hc_magnitude", 2.0, -1e30, 1e30))};

  MlaSpec mla =
      ReadMla(config, *spec, {.q_lora = 1536, .nope_dim = 192, .rope_dim = 64, .v_dim = 256, .reads_interleave = true});
  if (mla.rope) mla.rope->layout = RopeSpec::Layout::kHalfSplit;
  mla.sinks = true;
  mla.gate = AttentionGate::kElementSigmoid;
  mla.indexer = ReadIndexer(config, mla, {.num_heads = 16, .norm_eps = norm.eps});
  mla.indexer->rope_last = true;

  MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 2.827});
  moe.expert.limit = static_cast<float>(config->FloatOr("swiglu_limit", 10.0, 1e-6, 1e30));
  AddMlaLayers(config, spec, mla, moe, ReadMlpLayerTypes(config, num_layers, 1));
  ReadLayerTypes(config, num_layers, {"indexed_attention"}, [](int64_t) { return "indexed_attention"; });
  const std::vector<bool> own = ReadOwnIndexers(config, num_layers);
  int64_t last = 0;
  for (size_t l = 0; config->ok() && l < spec->layers.size(); ++l) {
    if (own[l]) last = static_cast<int64_t>(l);
    if (!own[l]) std::get<MlaSpec>(spec->layers[l].mixer).indexer->share_with_layer = last;
  }

  AddDeepseekNames(rules, config, mla, moe.num_experts, num_layers);
  const std::string attention = "model.layers.{l}.self_attn.";
  AddIndexerNames(rules, attention);
  for (const char* name : {"learnable_sink_param", "sinks"}) rules->Add("layers.{l}.mla.sinks", attention + name);
  for (const char* name : {"linear_gate", "gate_proj"}) {
    rules->Add("layers.{l}.mla.gate", Cat(attention, name, ".weight"));
  }
  // transformers saves every "gate_proj" under the name of the attention's.
  rules->Add("layers.{l}.mlp.gate", "model.layers.{l}.mlp.linear_gate.weight");
  rules->Add("layers.{l}.moe.shared.gate", "model.layers.{l}.mlp.shared_experts.linear_gate.weight");
  AddHyperNames(rules);
  rules->Ignore("model.mtp_layers.*", "multi-token prediction");
}

}  // namespace moe
