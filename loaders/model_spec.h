// ModelSpec: what a model is, as data. One Decoder (engine/model) runs every spec; a family is a mapping from
// config.json and tensor names to this (loaders/architectures), never a forward pass of its own.
//
// Shapes are written [rows, cols] = [out, in]; H is `hidden_size`.
#ifndef MOE_LOADERS_MODEL_SPEC_H_
#define MOE_LOADERS_MODEL_SPEC_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

enum class NormKind {
  kRms,        // x * rsqrt(mean(x²) + eps) * w
  kRmsOffset,  // … * (1 + w)
  kLayer,      // (x - mean) * rsqrt(var + eps) * w + b
};

struct NormSpec {
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  bool bias = false;  // kLayer only
};

enum class Activation {
  kSilu,      // gated: silu(gate) * up
  kGeluTanh,  // gated: gelu_tanh(gate) * up
  kGeluErf,   // gated: gelu(gate) * up
  kRelu2,     // not gated: max(up, 0)²
};

// Rotary position embedding with its scaling already folded into the frequencies (loaders/rope.h).
struct RopeSpec {
  enum class Layout { kHalfSplit, kInterleaved };  // pairs (i, i + d/2) or (2i, 2i + 1)
  Layout layout = Layout::kHalfSplit;
  int64_t rotary_dim = 0;        // first dims of each head that are rotated; even
  std::vector<double> inv_freq;  // [rotary_dim / 2], radians per position
  double cos_sin_scale = 1.0;    // multiplies cos and sin (YaRN's attention factor)
};

enum class QkNorm {
  kNone,
  kPerHead,   // weight [head_dim], one norm a head
  kFullWidth  // weight [heads * head_dim], one norm over all heads
};

// Grouped-query softmax attention, causal.
struct AttentionSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;    // of q and k
  int64_t v_head_dim = 0;  // of v
  float scale = 0;         // multiplies q·k
  std::optional<RopeSpec> rope;
  QkNorm qk_norm = QkNorm::kNone;
  NormSpec qk_norm_spec;
  bool qkv_bias = false;
  bool output_bias = false;
  int64_t window = 0;  // key j is visible to query i iff i - j < window; 0: all
};

// Mamba-2 as in Nemotron-H: in_proj → [z | x B C | dt], causal convolution and silu over [x B C], selective scan,
// grouped gated RMSNorm, out_proj. (Dao and Gu, arXiv:2405.21060.)
struct Mamba2Spec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t state_size = 0;
  int64_t num_groups = 0;  // B and C are shared by num_heads / num_groups heads; also the groups of the gated norm
  int64_t conv_kernel = 0;
  bool conv_bias = false;
  bool proj_bias = false;
  static constexpr int64_t kMaxConvKernel = 16;
  float norm_eps = 1e-5f;
  float dt_min = 0.0f;  // time_step_limit
  float dt_max = std::numeric_limits<float>::infinity();
  int64_t inner() const { return num_heads * head_dim; }
  int64_t conv_dim() const { return inner() + 2 * num_groups * state_size; }
  int64_t in_proj_rows() const { return inner() + conv_dim() + num_heads; }
};

using MixerSpec = std::variant<std::monostate, AttentionSpec, Mamba2Spec>;

struct MlpSpec {
  int64_t intermediate_size = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool bias = false;
};

// The routers of the supported families as values (formulas: RouteRow in engine/device/reference/route_row.h).
struct RouterSpec {
  enum class Score { kSoftmax, kSigmoid };
  // How the chosen k weights are normalised. kSoftmaxOverChosen: softmax of the chosen logits alone (needs kSoftmax);
  // equal to kSum after a full softmax in exact arithmetic.
  enum class Normalize { kNone, kSum, kSoftmaxOverChosen };
  Score score = Score::kSoftmax;
  bool select_bias = false;  // moe.router.select_bias [E] moves the selection, never the weights
  bool logit_bias = false;   // moe.router.bias [E] is added to the logits
  Normalize normalize = Normalize::kNone;
  float normalize_eps = 0.0f;  // weights / (sum + eps)
  float scale = 1.0f;          // multiplies the routed part once
  int64_t num_groups = 1;      // group-limited selection: only experts of the best top_groups groups
  int64_t top_groups = 1;
  enum class GroupScore { kSumOfTopTwo, kMax };
  GroupScore group_score = GroupScore::kSumOfTopTwo;
};

struct SharedExpertSpec {
  MlpSpec mlp;
  int64_t count = 1;           // what the config says; the weights are one MLP of mlp.intermediate_size
  bool sigmoid_gated = false;  // moe.shared_gate [1, H]: sigmoid(g·x) multiplies its output
};

struct MoeSpec {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  MlpSpec expert;           // in/out width: expert_width(H)
  RouterSpec router;        // reads the hidden row, never the latent one
  int64_t latent_size = 0;  // > 0: experts work on latent_down·x [latent], their sum goes through latent_up
  std::optional<SharedExpertSpec> shared;
  int64_t expert_width(int64_t hidden) const { return latent_size > 0 ? latent_size : hidden; }
};

using FfnSpec = std::variant<std::monostate, MlpSpec, MoeSpec>;

// x += mixer(mixer_norm(x)); x += ffn(ffn_norm(x)); an absent part is skipped with its norm. A hybrid model is a list
// of layers of different kinds.
struct LayerSpec {
  MixerSpec mixer;
  NormSpec mixer_norm;
  FfnSpec ffn;
  NormSpec ffn_norm;
};

struct ModelSpec {
  std::string architecture;  // "Qwen3MoeForCausalLM"
  std::string family;        // the table entry of loaders/architectures.cc, e.g. "qwen3_moe"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_positions = 0;  // longest context the checkpoint states
  bool tied_head = false;     // lm_head is the embedding matrix
  float embedding_scale = 1.0f;
  float logit_scale = 1.0f;
  NormSpec final_norm;
  std::vector<LayerSpec> layers;
  std::vector<int32_t> eos_token_ids;  // config.json's; generation_config.json's replace them
  std::optional<int32_t> bos_token_id;

  std::vector<int64_t> MoeLayers() const;  // indices, ascending
  bool HasRecurrentState() const;          // any Mamba2 mixer
  int64_t MaxTopK() const;                 // over the MoE layers; 0 without one
  int64_t MaxExperts() const;
};

// Canonical weight names, what Decoder asks WeightStore for. l: layer, e: expert.
//   embed [V,H]   final_norm [H]   lm_head [V,H] (absent when tied)
//   layers.l.mixer_norm(.bias) [H]   layers.l.ffn_norm(.bias) [H]
//   layers.l.attn.{q,k,v}(.bias)   layers.l.attn.o(.bias)   layers.l.attn.{q_norm,k_norm}
//   layers.l.mamba.{in_proj(.bias),conv (conv_dim × kernel),conv.bias,dt_bias,a_log,d,norm,out_proj(.bias)}
//   layers.l.mlp.{gate,up,down}(.bias)
//   layers.l.moe.router [E,H]  layers.l.moe.router.bias [E]  layers.l.moe.router.select_bias [E]
//   layers.l.moe.experts.e.{gate,up,down}(.bias)
//   layers.l.moe.shared.{gate,up,down}(.bias)  layers.l.moe.shared_gate [1,H]
//   layers.l.moe.latent_down [L,H]  layers.l.moe.latent_up [H,L]
struct TensorNeed {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;     // 1 for vectors
  bool vector = false;  // rank 1 (or with extra dims of size 1)
};

// Every tensor the spec needs, in the order of use.
std::vector<TensorNeed> RequiredTensors(const ModelSpec& spec);
void ForEachRequiredTensor(const ModelSpec& spec, const std::function<void(const TensorNeed&)>& visit);

// Bound on their number; ValidateSpec refuses a spec with more.
int64_t MaxRequiredTensors();

// Rules that hold for every family: positive counts, top_k ≤ experts, groups that divide, even rotary dims, …
// INVALID names the field of config.json as far as it is known.
Status ValidateSpec(const ModelSpec& spec);

}  // namespace moe

#endif  // MOE_LOADERS_MODEL_SPEC_H_
