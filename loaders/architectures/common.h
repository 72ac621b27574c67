// Pieces that many families' config files and tensor names share.
#ifndef MOE_LOADERS_ARCHITECTURES_COMMON_H_
#define MOE_LOADERS_ARCHITECTURES_COMMON_H_

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// vocab_size, hidden_size, max_position_embeddings, tie_word_embeddings and the special token ids.
void ReadBasics(ConfigReader* config, ModelSpec* spec, bool tied_by_default = false);

// The ids among them: eos_token_id and bos_token_id.
void ReadSpecialTokens(ConfigReader* config, ModelSpec* spec);

// num_hidden_layers, in range. For families whose layers per_layer_config cannot change (ConfigReader::PerLayer).
int64_t ReadLayerCount(ConfigReader* config);

// The activation of gated MLPs: silu or gelu in its two forms.
Activation ReadGatedActivation(ConfigReader* config, const char* field = "hidden_act");

// RMS norm with rms_norm_eps.
NormSpec ReadRmsNorm(ConfigReader* config, double default_eps);

// num_attention_heads, num_key_value_heads (default: as many), head_dim, scale head_dim^-1/2. Without head_dim:
// default_head_dim, or hidden_size / heads where that is 0.
AttentionSpec ReadGroupedQueryAttention(ConfigReader* config, const ModelSpec& spec, int64_t default_head_dim = 0);

// Qwen's way to say which layers have experts and which an ordinary MLP: decoder_sparse_step and mlp_only_layers.
std::vector<bool> ReadSparseLayers(ConfigReader* config, int64_t num_layers);

// layer_types, one for each layer and each one of `allowed` (else UNSUPPORTED), in transformers' newer spelling
// ("attention" → "full_attention", "mamba" → "linear_attention", …). Absent: otherwise(l) for every layer l.
std::vector<std::string> ReadLayerTypes(ConfigReader* config, int64_t num_layers,
                                        std::initializer_list<const char*> allowed,
                                        const std::function<std::string(int64_t)>& otherwise);
// The attention window of each layer, 0: all positions. layer_types says which layers slide, sliding_window how far
// (absent: default_window; null: not at all).
std::vector<int64_t> ReadWindows(ConfigReader* config, int64_t num_layers, int64_t default_window,
                                 const std::function<std::string(int64_t)>& otherwise);

// mlp_layer_types ("dense" or "sparse"); absent: the first first_k_dense_replace layers are dense. True: has experts.
std::vector<bool> ReadMlpLayerTypes(ConfigReader* config, int64_t num_layers, int64_t dense_by_default);

// A list of layers' numbers, which may be written as one string, "3,4,5".
std::vector<int64_t> ReadLayerNumbers(ConfigReader* config, const char* field);

// What a family assumes about the fields of ReadDeepseekMoe that are absent.
struct DeepseekMoeDefaults {
  RouterSpec::Score score = RouterSpec::Score::kSigmoid;  // sigmoid: with a selection bias
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1.0;
  int64_t n_group = 1;
  int64_t topk_group = 1;
  int64_t n_shared_experts = 1;
};
// DeepSeek-V3's router, which many families took over: norm_topk_prob (sum + 1e-20), routed_scaling_factor, n_group,
// topk_group (groups by their two best), under any of their spellings. scoring_func and topk_method must agree with
// `defaults.score`.
RouterSpec ReadDeepseekRouter(ConfigReader* config, const DeepseekMoeDefaults& defaults);
// … with the experts (moe_intermediate_size) and the shared ones: one MLP, n_shared_experts times as wide.
MoeSpec ReadDeepseekMoe(ConfigReader* config, const DeepseekMoeDefaults& defaults);

// The number of routed experts under any of its spellings, and how many a token gets.
int64_t ReadExpertCount(ConfigReader* config);
int64_t ReadTopK(ConfigReader* config);

// Layers of the usual pre-norm kind, all with `attn`; ffn `moe` where `sparse`, else an MLP of intermediate_size with
// the experts' activation and, as `mlp_bias` says, biases.
void AddPreNormLayers(ConfigReader* config, ModelSpec* spec, const NormSpec& norm, const AttentionSpec& attn,
                      const MoeSpec& moe, const std::vector<bool>& sparse, bool mlp_bias = false);
// windows[l] for the attention of layer l.
void SetWindows(const std::vector<int64_t>& windows, ModelSpec* spec);

// Names of Llama's descendants: PREFIX embed_tokens, norm, layers.{l}.{input,post_attention}_layernorm and
// layers.{l}.self_attn.*; lm_head without the prefix. PREFIX is "model." for most.
void AddLlamaNames(TensorRules* rules, const std::string& prefix = "model.");
// … without post_attention_layernorm, which families with more norms use for another.
void AddLlamaAttentionNames(TensorRules* rules, const std::string& prefix = "model.");

// gate_proj, up_proj and down_proj under IN, to OUT.
void AddGatedMlpNames(TensorRules* rules, const std::string& out, const std::string& in);

// Under BLOCK ("model.layers.{l}.mlp."): gate.weight and the experts, one by one or fused.
void AddMoeNames(TensorRules* rules, const std::string& block, int64_t num_experts);
// … with gate.e_score_correction_bias and shared_experts, and the MLP of the layers without experts.
void AddDeepseekMoeNames(TensorRules* rules, const std::string& block, int64_t num_experts);

// Rotary frequencies that old checkpoints store, and the draft layers the config declares (default_drafts where it says
// nothing).
void IgnoreCommon(TensorRules* rules, ConfigReader* config, const std::string& prefix, int64_t num_layers,
                  int64_t default_drafts = 0);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_COMMON_H_
