// Multi-head latent attention and its indexer as DeepSeek's descendants write them in config.json and name them.
#ifndef MOE_LOADERS_ARCHITECTURES_MLA_H_
#define MOE_LOADERS_ARCHITECTURES_MLA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// What a family assumes about absent fields, and what it does differently.
struct MlaDefaults {
  int64_t q_lora = 0;  // 0: without q_lora_rank (absent or null) q is projected from the hidden row
  int64_t kv_lora = 512;
  int64_t nope_dim = 128;
  int64_t rope_dim = 64;
  int64_t v_dim = 128;
  double theta = 10000.0;
  std::string theta_field = "rope_theta";  // as RopeDefaults has it
  bool rope = true;                        // false: the rope dims are not rotated
  bool reads_interleave = false;           // rope_interleave chooses the layout; without it the pairs are interleaved
  bool ignore_partial = false;      // partial_rotary_factor is not that of the rope dims, all of which are rotated
  bool whole_head_partial = false;  // partial_rotary_factor is rope_dim / (nope_dim + rope_dim), not 1
  float latent_norm_eps = 1e-6f;    // of both latent norms: not rms_norm_eps, as transformers has it
};

// num_attention_heads, q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, attention_bias and
// the rotation; the softmax scale is (nope + rope)^-1/2, times YaRN's magnitude squared where mscale_all_dim says so.
MlaSpec ReadMla(ConfigReader* config, const ModelSpec& spec, const MlaDefaults& defaults);

struct IndexerDefaults {
  int64_t num_heads = 64;
  int64_t head_dim = 128;
  RopeSpec::Layout layout = RopeSpec::Layout::kHalfSplit;
  float norm_eps = 1e-6f;
};
// index_n_heads, index_head_dim, index_topk; the first rope dims of its heads are rotated as those of `mla`.
IndexerSpec ReadIndexer(ConfigReader* config, const MlaSpec& mla, const IndexerDefaults& defaults);

// Under IN ("model.layers.{l}.self_attn."): DeepSeek's names of a layer's latent attention; `output` is "o_proj" but
// for few.
void AddMlaNames(TensorRules* rules, const std::string& in, const MlaSpec& mla, const std::string& output = "o_proj",
                 const std::string& out = "layers.{l}.mla.");
void AddIndexerNames(TensorRules* rules, const std::string& in);

// Llama's pre-norm layers around `mla`, each with `moe` where `sparse` says so and an MLP elsewhere.
void AddMlaLayers(ConfigReader* config, ModelSpec* spec, const MlaSpec& mla, const MoeSpec& moe,
                  const std::vector<bool>& sparse);

// Everything that a DeepSeek-V3 checkpoint holds, under "model.".
void AddDeepseekNames(TensorRules* rules, ConfigReader* config, const MlaSpec& mla, int64_t num_experts,
                      int64_t num_layers);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_MLA_H_
