// DeepSeek-V4: a residual of several streams (manifold-constrained hyper-connections), attention over a window and
// compressed history, experts behind a sqrt-softplus router, of which the first layers choose by token id.
#include <algorithm>
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/json_text.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr const char* kWindow = "sliding_attention";
constexpr const char* kSparse = "compressed_sparse_attention";
constexpr const char* kHeavy = "heavily_compressed_attention";

// A list with an entry for each layer; what it says of layers behind the last one (drafts) is left out.
std::vector<std::string> LayerList(ConfigReader* config, const char* field, std::vector<std::string> list,
                                   int64_t num_layers, std::initializer_list<const char*> allowed) {
  if (config->ok() && static_cast<int64_t>(list.size()) < num_layers) {
    config->Invalid(field, Cat("has ", list.size(), " entries, expected one for each of the ", num_layers, " layers"));
  }
  list.resize(static_cast<size_t>(num_layers));
  for (const std::string& kind : list) {
    if (!config->ok() || std::find(allowed.begin(), allowed.end(), kind) != allowed.end()) continue;
    config->Unsupported(field, Cat("has the layer kind ", Quoted(kind), ", which this architecture does not know"));
  }
  return list;
}

// layer_types, or compress_ratios with a number for each kind; else two heavily compressed layers, then by turns.
std::vector<std::string> ReadAttentionTypes(ConfigReader* config, int64_t num_layers) {
  const char* field = config->Has("layer_types") ? "layer_types" : "compress_ratios";
  std::vector<std::string> types = config->StringList("layer_types");
  if (config->Has("compress_ratios") && types.empty()) {
    for (const int64_t ratio : config->IntList("compress_ratios", 0, limits::kMaxPositions)) {
      types.push_back(ratio == 0 ? kWindow : ratio == 4 ? kSparse : ratio == 128 ? kHeavy : Cat("ratio ", ratio));
    }
  } else if (types.empty()) {
    for (int64_t l = 0; l < num_layers; ++l) types.push_back(l >= 2 && l % 2 != 0 ? kSparse : kHeavy);
  }
  return LayerList(config, field, std::move(types), num_layers, {kWindow, kSparse, kHeavy});
}

// Whether each layer's experts are given by the token id: mlp_layer_types, or the first num_hash_layers.
std::vector<bool> ReadHashLayers(ConfigReader* config, int64_t num_layers) {
  std::vector<std::string> types = config->StringList("mlp_layer_types");
  const int64_t first = config->IntOr("num_hash_layers", 3, 0, limits::kMaxLayers);
  for (int64_t l = 0; l < num_layers && !config->Has("mlp_layer_types"); ++l) {
    types.push_back(l < first ? "hash_moe" : "moe");
  }
  std::vector<bool> hash;
  for (const std::string& type : LayerList(config, "mlp_layer_types", types, num_layers, {"hash_moe", "moe"})) {
    hash.push_back(type == "hash_moe");
  }
  return hash;
}

// Tokens in an entry: compress_rates, or a field for each kind of layer.
int64_t ReadRate(ConfigReader* config, const char* kind, const char* own_field, int64_t fallback) {
  ConfigReader rates = config->Object("compress_rates");
  if (const auto rate = config->OptionalInt(own_field, 1, limits::kMaxPositions)) return *rate;
  return rates.exists() ? rates.Int(kind, 1, limits::kMaxPositions) : fallback;
}

struct Ropes {
  RopeSpec window;      // of layers without compressor
  RopeSpec compressed;  // of those with
};

// rope_parameters has an object for each, or one that scales the compressed layers' rotation alone, whose base is
// compress_rope_theta; YaRN's magnitude is then left out of it.
Ropes ReadRopes(ConfigReader* config, const ModelSpec& spec, int64_t head_dim) {
  ConfigReader parameters = config->Object("rope_parameters");
  RopeDefaults defaults{
      .head_dim = head_dim, .layout = RopeSpec::Layout::kInterleaved, .max_positions = spec.max_positions};
  Ropes ropes;
  if (parameters.Object("main").exists() && parameters.Object("compress").exists()) {
    defaults.layer_type = "main";
    ropes.window = ReadRope(config, defaults);
    defaults.layer_type = "compress";
    ropes.compressed = ReadRope(config, defaults);
    return ropes;
  }
  const double otherwise =
      config->Has("qk_rope_head_dim")
          ? static_cast<double>(config->Int("qk_rope_head_dim", 1, limits::kMaxHeadDim)) / static_cast<double>(head_dim)
          : 64.0 / 512.0;
  const double part = config->FloatOr("partial_rotary_factor", otherwise, 0, 1);
  const auto rotated = static_cast<int64_t>(static_cast<double>(head_dim) * part);
  if (config->ok() && rotated < 1) config->Invalid("partial_rotary_factor", "leaves no dimension to rotate");
  if (!config->ok()) return ropes;
  ropes.window = PlainRope(config->FloatOr("rope_theta", 10000.0, 1e-30, 1e30), rotated, defaults.layout);
  defaults.ignore_partial = true;
  defaults.partial_rotary_factor = part;
  defaults.fixed_theta = config->FloatOr("compress_rope_theta", 160000.0, 1e-30, 1e30);
  ropes.compressed = ReadRope(config, defaults);
  ConfigReader settings = RopeSettings(config, defaults);
  const bool yarn = settings.exists() && settings.StringOr({"rope_type"}, settings.StringOr({"type"}, "")) == "yarn";
  if (yarn && !settings.Has("attention_factor")) ropes.compressed.cos_sin_scale = 1;
  return ropes;
}

CompressedAttentionSpec ReadAttention(ConfigReader* config, const NormSpec& norm) {
  CompressedAttentionSpec attn;
  attn.num_heads = config->IntOr("num_attention_heads", 64, 1, limits::kMaxHeads);
  if (config->IntOr("num_key_value_heads", 1, 1, limits::kMaxHeads) != 1) {
    config->Unsupported("num_key_value_heads", "is not 1, all that this architecture has");
  }
  attn.head_dim = config->IntOr("head_dim", 512, 1, limits::kMaxHeadDim);
  attn.q_lora = config->IntOr("q_lora_rank", 1024, 1, limits::kMaxWidth);
  attn.window = config->IntOr("sliding_window", 128, 1, limits::kMaxPositions);
  attn.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(attn.head_dim)));
  attn.norm = norm;
  attn.output_groups = config->IntOr("o_groups", 8, 1, limits::kMaxHeads);
  attn.output_rank = config->IntOr("o_lora_rank", 1024, 1, limits::kMaxWidth);
  return attn;
}

MoeSpec ReadMoe(ConfigReader* config) {
  config->ExpectString("hidden_act", {"silu", "swish"});
  config->ExpectString("scoring_func", {"sqrtsoftplus", "sigmoid"});
  MoeSpec moe;
  moe.num_experts =
      config->IntOr({"n_routed_experts", "num_local_experts", "num_experts"}, 256, 1, limits::kMaxExperts);
  moe.top_k = config->IntOr("num_experts_per_tok", 6, 1, limits::kMaxExperts);
  moe.expert.intermediate_size =
      config->IntOr({"moe_intermediate_size", "intermediate_size"}, 2048, 1, limits::kMaxInner);
  moe.expert.limit = static_cast<float>(config->FloatOr("swiglu_limit", 10.0, 1e-6, 1e30));
  const bool sigmoid = config->StringOr("scoring_func", "sqrtsoftplus") == "sigmoid";
  moe.router.score = sigmoid ? RouterSpec::Score::kSigmoid : RouterSpec::Score::kSqrtSoftplus;
  // The weights are normalised whatever norm_topk_prob says, and there is one shared expert whatever n_shared_experts.
  moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.router.normalize_eps = 1e-20f;
  moe.router.scale = static_cast<float>(config->FloatOr("routed_scaling_factor", 1.5, -1e30, 1e30));
  moe.shared = SharedExpertSpec{.mlp = moe.expert};
  moe.shared->mlp.bias = config->BoolOr("mlp_bias", false);
  return moe;
}

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

// DeepSeek's own names, those that transformers gives the tensors in memory, and what it saves: its prefix with
// DeepSeek's names.
void AddNames(TensorRules* rules, int64_t num_experts) {
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

}  // namespace

void ReadDeepseekV4(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 129280},
                  {"hidden_size", 4096},
                  {"num_hidden_layers", 43},
                  {"max_position_embeddings", 1048576},
                  {"bos_token_id", 0},
                  {"eos_token_id", 1}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;
  spec->hyper = HyperSpec{.kind = HyperSpec::Kind::kManifold,
                          .streams = config->IntOr("hc_mult", 4, 1, HyperSpec::kMaxStreams),
                          .norm = {.kind = NormKind::kRms, .eps = norm.eps, .weight = false},
                          .eps = static_cast<float>(config->FloatOr("hc_eps", 1e-6, 0, 1)),
                          .sinkhorn = config->IntOr("hc_sinkhorn_iters", 20, 0, 1000)};

  const CompressedAttentionSpec attn = ReadAttention(config, norm);
  const Ropes ropes = ReadRopes(config, *spec, attn.head_dim);
  const int64_t sparse_rate = ReadRate(config, kSparse, "compress_rate_csa", 4);
  const int64_t heavy_rate = ReadRate(config, kHeavy, "compress_rate_hca", 128);
  const CompressedAttentionSpec::Indexer indexer{
      .num_heads = config->IntOr("index_n_heads", 64, 1, limits::kMaxHeads),
      .head_dim = config->IntOr("index_head_dim", 128, 1, limits::kMaxHeadDim),
      .top_k = config->IntOr("index_topk", 512, 1, limits::kMaxPositions)};
  const MoeSpec moe = ReadMoe(config);
  const std::vector<std::string> types = ReadAttentionTypes(config, num_layers);
  const std::vector<bool> hash = ReadHashLayers(config, num_layers);
  for (size_t l = 0; config->ok() && l < types.size(); ++l) {
    CompressedAttentionSpec own = attn;
    own.rope = types[l] == kWindow ? ropes.window : ropes.compressed;
    if (types[l] == kHeavy) own.compressor = {.rate = heavy_rate};
    if (types[l] == kSparse) {
      own.compressor = {.rate = sparse_rate, .overlap = true};
      own.indexer = indexer;
    }
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.mixer = own;
    MoeSpec own_moe = moe;
    own_moe.router.by_token = hash[l];
    own_moe.router.select_bias = !hash[l];
    layer.ffn = own_moe;
  }
  AddNames(rules, moe.num_experts);
}

}  // namespace moe
