// Qwen4-Exp: gated delta nets between layers of block-sparse softmax attention, as Qwen3.5-MoE has them; a residual of
// several streams that gated connections read and write, in place of norms; hashed n-gram embeddings in front of some
// layers.
#include <algorithm>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/hashed_ngrams.h"
#include "loaders/architectures/qwen_hybrid.h"

namespace moe {
namespace {

constexpr char kLinear[] = "linear_attention";
constexpr char kFull[] = "full_attention";  // of old files, where it means:
constexpr char kIndexed[] = "indexed_attention";

BlockIndexerSpec ReadBlockIndexer(ConfigReader* config, const NormSpec& norm) {
  BlockIndexerSpec indexer;
  indexer.pooling = BlockIndexerSpec::Pooling::kMeanKey;
  indexer.num_heads = config->Int("indexer_n_heads", 1, limits::kMaxHeads);
  indexer.head_dim = config->Int("indexer_head_dim", 1, limits::kMaxHeadDim);
  indexer.block_size = config->Int("indexer_compress_ratio", 1, limits::kMaxPositions);
  const int64_t budget = config->Int("indexer_budget", 1, limits::kMaxPositions);
  if (config->ok() && budget % indexer.block_size != 0) {
    config->Invalid("indexer_budget",
                    Cat("is ", budget, ", not a multiple of indexer_compress_ratio (", indexer.block_size, ")"));
  }
  indexer.top_blocks = budget / indexer.block_size;
  indexer.norm = norm;
  if (config->ok() && config->Int("indexer_kv_heads", 1, limits::kMaxHeads) != 1) {
    config->Unsupported("indexer_kv_heads", "is not 1");
  }
  return indexer;
}

GatedDeltaSpec ReadDelta(ConfigReader* config, float norm_eps) {
  GatedDeltaSpec delta = ReadGatedDelta(config, 16, 32, norm_eps);
  config->ExpectString("output_gate_type", {"silu", "sigmoid"});
  if (config->StringOr("output_gate_type", "silu") == "sigmoid") {
    delta.output_gate = GatedDeltaSpec::OutputGate::kSigmoid;
  }
  return delta;
}

// The layers with n-gram embeddings, counted from 0, ascending.
std::vector<int64_t> ReadNgramLayers(ConfigReader* config, const std::vector<std::string>& kinds) {
  std::vector<int64_t> layers;
  for (const int64_t number : config->IntList("ple_layer_ids", 1, static_cast<int64_t>(kinds.size()))) {
    layers.push_back(number - 1);
  }
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  for (const int64_t l : layers) {
    if (kinds[static_cast<size_t>(l)] != kLinear) {
      config->Unsupported("ple_layer_ids", Cat("has ", l + 1, ", whose layer_types is not ", kLinear));
    }
  }
  return layers;
}

// `prefix` is that of the text model.
void AddNames(TensorRules* rules, const std::string& prefix, const GatedDeltaSpec& delta, const AttentionSpec& attn,
              const MoeSpec& moe, const BlockIndexerSpec& indexer) {
  const std::string layer = prefix + "layers.{l}.";
  AddGatedQueryNames(rules, layer, attn);
  AddLlamaNames(rules, prefix);
  AddQwenHybridNames(rules, layer, delta, moe);
  AddSplitProjections(rules, layer + "linear_attn.", delta);

  const std::string out = "layers.{l}.attn.block_indexer.";
  const std::string in = layer + "self_attn.indexer.";
  const int64_t queries = indexer.num_heads * indexer.head_dim;
  const int64_t total = queries + indexer.head_dim;
  rules->Add(out + "q", in + "index_qk_proj.weight", RowSlice(0, total));
  rules->Add(out + "k", in + "index_qk_proj.weight", RowSlice(queries, total));
  rules->Add(out + "q_norm", in + "q_layernorm.weight");
  rules->Add(out + "k_norm", in + "k_layernorm.weight");

  const std::pair<std::string, std::string> connections[] = {
      {"layers.{l}.mixer_hyper.", layer + "attn_hyper_connection."},
      {"layers.{l}.ffn_hyper.", layer + "mlp_hyper_connection."},
      {"hyper_head.", prefix + "hyper_connection_mixer."}};
  for (const auto& [to, from] : connections) {
    rules->Add(to + "norm", from + "hc_norm.weight");
    rules->Add(to + "down", from + "input_mix_weight_down.weight");
    rules->Add(to + "up", from + "input_mix_weight_up.weight");
    rules->Add(to + "inject", from + "block_inject_weight.weight");
  }
}

}  // namespace

void ReadQwen4Exp(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 248320},
                  {"hidden_size", 2048},
                  {"num_hidden_layers", 40},
                  {"num_attention_heads", 16},
                  {"num_key_value_heads", 2},
                  {"head_dim", 256},
                  {"max_position_embeddings", 32768},
                  {"moe_intermediate_size", 512},
                  {"shared_expert_intermediate_size", 512},
                  {"num_experts_per_tok", 10},
                  {"num_experts", 512}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  const NormSpec norm = ReadOffsetNorm(config);
  spec->final_norm = kNoNorm;  // the streams' last connection has one

  HyperSpec hyper;
  hyper.kind = HyperSpec::Kind::kGated;
  hyper.streams = config->IntOr("hc_count", 4, 2, HyperSpec::kMaxStreams);
  hyper.rank = config->IntOr("hc_lowrank", 320, 1, limits::kMaxWidth);
  hyper.norm = norm;
  hyper.norm.groups = hyper.streams;
  spec->hyper = hyper;

  const GatedDeltaSpec delta = ReadDelta(config, norm.eps);
  AttentionSpec attn = ReadGatedAttention(config, *spec, norm, /*rotated=*/1.0);
  const MoeSpec moe = ReadQwenMoe(config, config->BoolOr("norm_topk_prob", true), /*gated_shared=*/true);
  const int64_t interval = config->IntOr("full_attention_interval", 4, 1, limits::kMaxLayers);
  const std::vector<std::string> kinds =
      ReadLayerTypes(config, num_layers, {kLinear, kFull, kIndexed},
                     [interval](int64_t l) { return (l + 1) % interval == 0 ? kIndexed : kLinear; });
  if (std::any_of(kinds.begin(), kinds.end(), [](const std::string& kind) { return kind != kLinear; })) {
    attn.block_indexer = ReadBlockIndexer(config, norm);
  }
  const std::vector<int64_t> ngram_layers = ReadNgramLayers(config, kinds);
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = kNoNorm;
    layer.mixer = attn;
    if (kinds[static_cast<size_t>(l)] == kLinear) layer.mixer = delta;
    layer.ffn = moe;
  }
  if (config->ok()) ReadHashedNgrams(config, ngram_layers, spec, hyper.norm);

  // The whole model's names, and those of its text part saved alone.
  for (const std::string prefix : {"model.language_model.", "model."}) {
    AddNames(rules, prefix, delta, attn, moe, attn.block_indexer.value_or(BlockIndexerSpec{}));
    AddHashedNgramNames(rules, prefix, *spec, ngram_layers);
    IgnoreCommon(rules, config, prefix, num_layers);
  }
  rules->Ignore("model.visual.*", "vision");
  rules->Ignore("mtp.*", "multi-token prediction");
}

}  // namespace moe
