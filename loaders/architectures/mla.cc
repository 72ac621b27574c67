#include "loaders/architectures/mla.h"

#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// transformers multiplies whenever the rotation is of any type but the default one.
double MagnitudeSquared(ConfigReader* config) {
  ConfigReader settings = config->Object("rope_parameters");
  if (!settings.exists()) settings = config->Object("rope_scaling");
  if (!settings.exists()) return 1;
  const std::string type = settings.StringOr("rope_type", settings.StringOr("type", "default"));
  const double mscale_all_dim = settings.FloatOr("mscale_all_dim", 0, 0, 1e6);
  if (type == "default" || mscale_all_dim == 0) return 1;
  const double magnitude = YarnMagnitude(settings.Float("factor", 1, 1e6), mscale_all_dim);
  return magnitude * magnitude;
}

RopeSpec ReadMlaRope(ConfigReader* config, const ModelSpec& spec, const MlaSpec& mla, const MlaDefaults& defaults) {
  const int64_t head_dim = defaults.whole_head_partial ? mla.nope_dim + mla.rope_dim : mla.rope_dim;
  const bool interleaved = !defaults.reads_interleave || config->BoolOr("rope_interleave", true);
  if (!defaults.reads_interleave) config->ExpectBool("rope_interleave", true);
  RopeSpec rope =
      ReadRope(config, {.head_dim = head_dim,
                        .theta = defaults.theta,
                        .partial_rotary_factor = static_cast<double>(mla.rope_dim) / static_cast<double>(head_dim),
                        .layout = interleaved ? RopeSpec::Layout::kInterleaved : RopeSpec::Layout::kHalfSplit,
                        .max_positions = spec.max_positions,
                        .ignore_partial = defaults.ignore_partial,
                        .theta_field = defaults.theta_field});
  if (config->ok() && rope.rotary_dim != mla.rope_dim) {
    config->Invalid("partial_rotary_factor",
                    Cat("rotates ", rope.rotary_dim, " dimensions, but qk_rope_head_dim is ", mla.rope_dim));
  }
  return rope;
}

}  // namespace

MlaSpec ReadMla(ConfigReader* config, const ModelSpec& spec, const MlaDefaults& defaults) {
  MlaSpec mla;
  mla.num_heads = config->Int("num_attention_heads", 1, limits::kMaxHeads);
  mla.q_lora = config->IntOr("q_lora_rank", defaults.q_lora, 1, limits::kMaxWidth);
  mla.kv_lora = config->IntOr("kv_lora_rank", defaults.kv_lora, 1, limits::kMaxHeadDim);
  mla.nope_dim = config->IntOr("qk_nope_head_dim", defaults.nope_dim, 1, limits::kMaxHeadDim);
  mla.rope_dim = config->IntOr("qk_rope_head_dim", defaults.rope_dim, 1, limits::kMaxHeadDim);
  mla.v_dim = config->IntOr("v_head_dim", defaults.v_dim, 1, limits::kMaxHeadDim);
  mla.q_norm = mla.kv_norm = {NormKind::kRms, defaults.latent_norm_eps, false};
  const bool bias = config->BoolOr("attention_bias", false);
  mla.q_a_bias = bias && mla.q_lora > 0;
  mla.kv_a_bias = mla.output_bias = bias;
  double scale = 1 / std::sqrt(static_cast<double>(mla.nope_dim + mla.rope_dim));
  if (defaults.rope) {
    mla.rope = ReadMlaRope(config, spec, mla, defaults);
    scale *= MagnitudeSquared(config);
  }
  mla.scale = static_cast<float>(scale);
  return mla;
}

IndexerSpec ReadIndexer(ConfigReader* config, const MlaSpec& mla, const IndexerDefaults& defaults) {
  IndexerSpec indexer;
  indexer.num_heads = config->IntOr("index_n_heads", defaults.num_heads, 1, limits::kMaxHeads);
  indexer.head_dim = config->IntOr("index_head_dim", defaults.head_dim, 1, limits::kMaxHeadDim);
  indexer.top_k = config->IntOr("index_topk", 2048, 1, limits::kMaxPositions);
  indexer.key_norm = {.kind = NormKind::kLayer, .eps = defaults.norm_eps, .bias = true};
  indexer.rope = mla.rope;
  if (indexer.rope) indexer.rope->layout = defaults.layout;
  if (config->ok() && indexer.head_dim < mla.rope_dim) {
    config->Invalid("index_head_dim",
                    Cat("is ", indexer.head_dim, ", less than qk_rope_head_dim (", mla.rope_dim, ")"));
  }
  return indexer;
}

void AddMlaNames(TensorRules* rules, const std::string& in, const MlaSpec& mla, const std::string& output,
                 const std::string& out) {
  rules->AddLinear(out + "q_a", in + "q_a_proj");
  rules->Add(out + "q_a_norm", in + "q_a_layernorm.weight");
  // A gate that reads the q latent has its rows behind each head's in the same matrix.
  const int64_t head_dim = mla.nope_dim + mla.rope_dim;
  if (mla.gate_from_q_lora) {
    for (const char* name : {"q_b_proj.weight", "q_gate_proj.weight"}) {
      rules->Add(out + "q_b", in + name, HeadSlice(0, head_dim, head_dim + mla.v_dim));
      rules->Add(out + "gate", in + name, HeadSlice(head_dim, mla.v_dim, head_dim + mla.v_dim));
    }
  } else {
    rules->Add(out + "q_b", in + "q_b_proj.weight");
  }
  rules->Add(out + "q", in + "q_proj.weight");
  rules->AddLinear(out + "kv_a", in + "kv_a_proj_with_mqa");
  rules->Add(out + "kv_a_norm", in + "kv_a_layernorm.weight");
  // Per head its rows for the key's part without rotation, then those for the value.
  const int64_t total = mla.nope_dim + mla.v_dim;
  rules->Add(out + "k_up", in + "kv_b_proj.weight", HeadSlice(0, mla.nope_dim, total));
  rules->Add(out + "v_up", in + "kv_b_proj.weight", HeadSlice(mla.nope_dim, mla.v_dim, total));
  rules->AddLinear(out + "o", in + output);
}

void AddIndexerNames(TensorRules* rules, const std::string& in) {
  const std::string out = "layers.{l}.mla.indexer.";
  rules->Add(out + "q", in + "indexer.wq_b.weight");
  rules->Add(out + "k", in + "indexer.wk.weight");
  rules->AddLinear(out + "k_norm", in + "indexer.k_norm");
  rules->Add(out + "weights", in + "indexer.weights_proj.weight");
}

void AddMlaLayers(ConfigReader* config, ModelSpec* spec, const MlaSpec& mla, const MoeSpec& moe,
                  const std::vector<bool>& sparse) {
  for (size_t l = 0; config->ok() && l < sparse.size(); ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = mla;
    layer.mixer_norm = layer.ffn_norm = spec->final_norm;
    layer.ffn = moe;
    if (!sparse[l]) {
      layer.ffn = MlpSpec{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                          .activation = moe.expert.activation};
    }
  }
}

void AddDeepseekNames(TensorRules* rules, ConfigReader* config, const MlaSpec& mla, int64_t num_experts,
                      int64_t num_layers) {
  AddLlamaNames(rules);
  AddMlaNames(rules, "model.layers.{l}.self_attn.", mla);
  AddDeepseekMoeNames(rules, "model.layers.{l}.mlp.", num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
