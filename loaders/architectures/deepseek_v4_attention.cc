// DeepSeek-V4's attention: over a window in all layers, with compressed history in most, of which an indexer chooses in
// some.
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/deepseek_v4.h"
#include "loaders/rope.h"

namespace moe {
namespace {

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

// qk_rope_head_dim gives way to partial_rotary_factor, which should not be another.
void CheckRotated(ConfigReader* config, const Ropes& ropes) {
  const auto dim = config->OptionalInt("qk_rope_head_dim", 1, limits::kMaxHeadDim);
  if (!config->ok() || !dim) return;
  for (const RopeSpec& rope : {ropes.window, ropes.compressed}) {
    if (rope.rotary_dim == *dim + *dim % 2) continue;
    config->Invalid("qk_rope_head_dim",
                    Cat("is ", *dim, ", but partial_rotary_factor rotates ", rope.rotary_dim, " dimensions"));
  }
}

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
    CheckRotated(config, ropes);
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
  CheckRotated(config, ropes);
  return ropes;
}

// What all layers have alike.
CompressedAttentionSpec ReadShared(ConfigReader* config, const NormSpec& norm) {
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

}  // namespace

std::vector<CompressedAttentionSpec> ReadDeepseekV4Attention(ConfigReader* config, const ModelSpec& spec,
                                                             const NormSpec& norm, int64_t num_layers) {
  const CompressedAttentionSpec attn = ReadShared(config, norm);
  const Ropes ropes = ReadRopes(config, spec, attn.head_dim);
  const int64_t sparse_rate = ReadRate(config, kV4Sparse, "compress_rate_csa", 4);
  const int64_t heavy_rate = ReadRate(config, kV4Heavy, "compress_rate_hca", 128);
  const CompressedAttentionSpec::Indexer indexer{
      .num_heads = config->IntOr("index_n_heads", 64, 1, limits::kMaxHeads),
      .head_dim = config->IntOr("index_head_dim", 128, 1, limits::kMaxHeadDim),
      .top_k = config->IntOr("index_topk", 512, 1, limits::kMaxPositions)};
  std::vector<CompressedAttentionSpec> layers;
  for (const std::string& type : ReadDeepseekV4Types(config, num_layers)) {
    CompressedAttentionSpec& own = layers.emplace_back(attn);
    own.rope = type == kV4Window ? ropes.window : ropes.compressed;
    if (type == kV4Heavy) own.compressor = {.rate = heavy_rate};
    if (type == kV4Sparse) {
      own.compressor = {.rate = sparse_rate, .overlap = true};
      own.indexer = indexer;
    }
  }
  return layers;
}

}  // namespace moe
