// MLPs, routers and the MoE block as data.
#ifndef MOE_LOADERS_MOE_SPEC_H_
#define MOE_LOADERS_MOE_SPEC_H_

#include <cstdint>
#include <optional>

#include "loaders/norm_spec.h"

namespace moe {

enum class Activation {
  kSilu,        // gated: silu(gate) * up; with a limit L: silu(min(gate, L)) * clamp(up, -L, L)
  kGeluTanh,    // gated: gelu_tanh(gate) * up
  kGeluErf,     // gated: gelu(gate) * up
  kRelu2,       // not gated: max(up, 0)²
  kSwigluOai,   // gated: g = min(gate, L), u = clamp(up, -L, L); (u + 1) * g * sigmoid(alpha * g)
  kSwigluStep,  // gated: min(silu(gate), L) * clamp(up, -L, L)
};

struct MlpSpec {
  int64_t intermediate_size = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool bias = false;
  float limit = 0;       // of the clamped activations; 0: none
  float alpha = 1.702f;  // kSwigluOai
  bool operator==(const MlpSpec&) const = default;
};

// A router of several layers (ZAYA): logits = router · gelu(fc2 gelu(fc1 norm(r))) with r = down · h, and with
// `carries` + carry * r of the MoE layer before, element by element.
struct RouterMlpSpec {
  int64_t width = 0;
  NormSpec norm;
  bool carries = false;
  bool operator==(const RouterMlpSpec&) const = default;
};

// The routers of the supported families as values (formulas: RouteRow in engine/device/reference/route_row.h).
struct RouterSpec {
  enum class Score {
    kSoftmax,
    kSigmoid,
    kSqrtSoftplus,
    kSparseMixer,  // Phi-3.5-MoE: masked softmaxes, one a pick (arXiv:2310.00811, at inference)
  };
  // How the chosen k weights are normalised. kSoftmaxOverChosen: softmax of the chosen logits alone (needs kSoftmax);
  // equal to kSum after a full softmax in exact arithmetic.
  enum class Normalize { kNone, kSum, kSoftmaxOverChosen };
  Score score = Score::kSoftmax;
  float logit_cap = 0;           // > 0: logits become cap * tanh(logit / cap)
  float jitter = 0.01f;          // kSparseMixer
  bool select_bias = false;      // moe.router.select_bias [E + zero experts] moves the selection, never the weights
  bool select_by_logit = false;  // the selection is by logit (+ bias), not by score
  bool logit_bias = false;       // moe.router.bias [E] is added to the logits
  Normalize normalize = Normalize::kNone;
  float normalize_eps = 0.0f;  // weights / (sum + eps)
  float normalize_min = 0.0f;  // weights / max(sum, min)
  // kSum: weights / (Σ|w|^order)^(1/order), positive; infinite: / the largest |w|. Other orders than 1 have neither eps
  // nor min.
  float normalize_order = 1.0f;
  float scale = 1.0f;      // multiplies the routed part once; with sinks the weights, the sinks' too
  int64_t num_groups = 1;  // group-limited selection: only experts of the best top_groups groups
  int64_t top_groups = 1;
  bool others_weigh_zero = false;  // top_k may be more than those have: what is chosen beyond has the weight 0
  bool others_score_zero = false;  // experts of the other groups score 0 and beat negative ones (A.X-K2)
  enum class GroupScore { kSumOfTopTwo, kMax };
  GroupScore group_score = GroupScore::kSumOfTopTwo;
  bool expert_scale = false;      // moe.router.expert_scale [E] multiplies the chosen weights
  NormSpec input_norm = kNoNorm;  // of the row the router reads; its weight is moe.router.norm [H]
  float input_scale = 1;          // multiplies that row
  bool reads_residual = false;    // the router reads the residual row, not the block's normed input
  std::optional<RouterMlpSpec> mlp;
  // > 0: logits moe.router.sinks · h that choose nobody but share in the weights: each of the chosen experts and the
  // sinks gets sigmoid(z) / Σ sigmoid(z), and the sinks' are those of the shared experts (Inkling).
  int64_t sinks = 0;
  bool weight_scale = false;  // moe.router.weight_scale [1] multiplies the weights, the sinks' too
  bool by_token = false;      // moe.router.table [V, top_k]: a token's experts are given, its scores only weight them
  bool operator==(const RouterSpec&) const = default;
};

struct SharedExpertSpec {
  MlpSpec mlp;
  int64_t count = 1;             // what the config says; the weights are one MLP of mlp.intermediate_size
  bool sigmoid_gated = false;    // moe.shared_gate [1, H]: sigmoid(g·x) multiplies its output
  bool router_weighted = false;  // `count` separate MLPs, weighted by the router's sinks
  bool operator==(const SharedExpertSpec&) const = default;
};

struct MoeSpec {
  int64_t num_experts = 0;
  int64_t zero_experts = 0;  // ids [num_experts, num_experts + zero_experts): return their input
  int64_t skip_experts = 0;  // ids behind those: return nothing; a choice of one is given out as expert 0 of weight 0
  int64_t top_k = 0;
  MlpSpec expert;                // in/out width: expert_width(H)
  RouterSpec router;             // reads the hidden row, never the latent one
  bool weight_on_input = false;  // experts see weight * x and their outputs are added as they are (Llama-4)
  int64_t latent_size = 0;       // > 0: experts work on latent_down·x [latent], their sum goes through latent_up
  bool latent_bias = false;      // … with moe.latent_down.bias [latent] and moe.latent_up.bias [H]
  bool output_bias = false;      // moe.output_bias [H] is added to the routed part
  std::optional<SharedExpertSpec> shared;
  int64_t expert_width(int64_t hidden) const { return latent_size > 0 ? latent_size : hidden; }
  int64_t num_choices() const { return num_experts + zero_experts + skip_experts; }
  bool operator==(const MoeSpec&) const = default;
};

}  // namespace moe

#endif  // MOE_LOADERS_MOE_SPEC_H_
