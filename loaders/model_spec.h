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
  kNone,       // no norm: the row itself
  kRms,        // x * rsqrt(mean(x²) + eps) * w
  kRmsOffset,  // … * (1 + w)
  kLayer,      // (x - mean) * rsqrt(var + eps) * w + b
};

struct NormSpec {
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  bool bias = false;   // kLayer only
  bool weight = true;  // false: w = 1, no tensor
  int64_t groups = 1;  // the mean is taken over each of so many equal slices of the row
  bool present() const { return kind != NormKind::kNone; }
};
inline constexpr NormSpec kNoNorm{.kind = NormKind::kNone, .weight = false};

enum class Activation {
  kSilu,        // gated: silu(gate) * up; with a limit L: silu(min(gate, L)) * clamp(up, -L, L)
  kGeluTanh,    // gated: gelu_tanh(gate) * up
  kGeluErf,     // gated: gelu(gate) * up
  kRelu2,       // not gated: max(up, 0)²
  kSwigluOai,   // gated: g = min(gate, L), u = clamp(up, -L, L); (u + 1) * g * sigmoid(alpha * g)
  kSwigluStep,  // gated: min(silu(gate), L) * clamp(up, -L, L)
};

// Rotary position embedding with its scaling already folded into the frequencies (loaders/rope.h).
struct RopeSpec {
  enum class Layout { kHalfSplit, kInterleaved };  // pairs (i, i + d/2) or (2i, 2i + 1)
  Layout layout = Layout::kHalfSplit;
  int64_t rotary_dim = 0;        // first dims of each head that are rotated; even
  std::vector<double> inv_freq;  // [rotary_dim / 2], radians per position
  double cos_sin_scale = 1.0;    // multiplies cos and sin (YaRN's attention factor)
  int64_t max_positions = 0;     // > 0: the frequencies are for contexts up to this length only (LongRoPE)
};

enum class QkNorm {
  kNone,
  kPerHead,   // weight [head_dim], one norm a head
  kFullWidth  // weight [heads * head_dim], one norm over all heads
};

// What multiplies the attention output before the output projection: gate(W x), or nothing.
enum class AttentionGate {
  kNone,
  kElementSigmoid,  // attn.gate [heads * v_head_dim, H]
  kHeadSigmoid,     // attn.gate [heads, H]
  kHeadSoftplus,
  kElementSoftplus,  // attn.gate [heads * v_head_dim, H]
};
inline bool PerElement(AttentionGate gate) {
  return gate == AttentionGate::kElementSigmoid || gate == AttentionGate::kElementSoftplus;
}

// A factor of the query that depends on its position p.
struct PositionScale {
  enum class Kind {
    kNone,
    kLog,       // 1 + beta * ln(1 + floor((p + offset) / period))    (Llama-4: offset 1; Mistral-4: offset 0)
    kPower,     // (1 + (p + offset) / period) ^ beta                 (scalable softmax)
    kLogAbove,  // 1 + beta * ln(max(1, (p + offset) / period))    (Inkling)
  };
  Kind kind = Kind::kNone;
  double beta = 0;
  double period = 1;
  int64_t offset = 0;
};
float PositionScaleAt(const PositionScale& scale, int64_t position);

// Block-sparse attention: a small scorer chooses which blocks of block_size consecutive keys a query may read. Its
// queries and keys are normed head by head and rotated as the attention's are. Equal scores go to the lowest block.
struct BlockIndexerSpec {
  enum class Pooling {
    // MiniMax-M3: score_h(t, b) = max q_h(t)·k(s) over the keys s ≤ t of block b. Each scorer head h chooses the best
    // top_blocks for its run of query heads, first of all t's own block and the local_blocks - 1 before it.
    kMaxScore,
    // Qwen4-Exp (QSA): score(t, b) = Σ_h relu(q_h(t)·k_b), where k_b is the mean of the block's keys, then normed and
    // rotated by its first position. Only whole blocks compete, for all heads alike; the keys behind the last whole
    // one are always read.
    kMeanKey,
  };
  Pooling pooling = Pooling::kMaxScore;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t block_size = 0;
  int64_t top_blocks = 0;
  int64_t local_blocks = 0;  // kMaxScore
  NormSpec norm;             // of q and k heads
  // Choices per query: one for each of so many runs of query heads.
  int64_t groups() const { return pooling == Pooling::kMaxScore ? num_heads : 1; }
  // Most keys of a choice.
  int64_t width() const { return top_blocks * block_size + (pooling == Pooling::kMeanKey ? block_size - 1 : 0); }
  // The first position that has more keys than may be read.
  int64_t first_choice() const { return width(); }
};

// A learnt bias of the scores by distance (Inkling): the score of keys i - j = d < extent gets Σ_r x_r(i) w[r, d] more,
// x = attn.r · h with `dim` values a head. The query's position scale multiplies it too.
struct RelativeBiasSpec {
  int64_t dim = 0;
  int64_t extent = 0;
};

// Compressed convolutional attention (CCA, arXiv:2510.04476). [q | k] as projected pass a causal depthwise convolution,
// then one that mixes the channels of each head; the means of q and k are added and the sums brought to length √d:
//   m_h = (q_h + k_g) / 2 for head h of K/V head g;   q'_h = conv_h + m_h;   k'_g = conv_g + mean of g's m_h
//   q_h = √d q'_h / |q'_h|;   k_g = key_scale_g √d k'_g / |k'_g|
// The first half of v is projected from the token's row, the second from that of the token before.
struct CcaSpec {
  int64_t depthwise_taps = 0;
  int64_t grouped_taps = 0;
};

// Mixture of attention heads (MoA, arXiv:2210.05144): a token's queries and the projection of its outputs are those of
// the top_k experts of largest logit, weighted by a softmax over these. Each has a query head for every K/V head, so
// num_heads = top_k * num_kv_heads: head g * top_k + s belongs to the s-th choice and reads K/V head g.
struct HeadExpertsSpec {
  int64_t num_experts = 0;
  int64_t top_k = 0;
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
  bool qk_norm_after_rope = false;
  NormSpec v_norm = kNoNorm;  // over each head of v
  bool qkv_bias = false;
  bool output_bias = false;
  int64_t q_lora = 0;  // > 0: q = attn.q · norm(attn.q_a · h), a latent of so many values (Step-3)
  NormSpec q_lora_norm;
  float clip_qkv = 0;               // > 0: q, k and v are clamped to ± this before anything else
  bool clip_after_qk_norm = false;  // … but q and k after their norm (before RoPE)
  float value_scale = 1;            // multiplies v
  float logit_cap = 0;              // > 0: scores are cap * tanh(score / cap)
  bool sinks = false;               // attn.sinks [heads]: a logit without a value in every softmax
  int64_t window = 0;               // key j is visible to query i iff i - j < window; 0: all
  int64_t chunk = 0;                // … iff i / chunk == j / chunk; 0: all
  PositionScale query_scale;
  bool query_scale_after_cap = false;  // query_scale multiplies the capped scores, not q (Grok-2)
  AttentionGate gate = AttentionGate::kNone;
  bool gate_bias = false;            // attn.gate.bias, of the gate's projection
  bool gate_head_bias = false;       // attn.gate.head_bias [heads], added to every gate value of a head
  int64_t share_kv_with_layer = -1;  // ≥ 0: no k and v of its own, reads that (earlier) layer's cache
  std::optional<BlockIndexerSpec> block_indexer;
  int64_t kv_conv = 0;  // > 0: k and v as projected get their causal depthwise convolution of so many taps added
  std::optional<RelativeBiasSpec> relative_bias;
  std::optional<CcaSpec> cca;
  std::optional<HeadExpertsSpec> head_experts;
};

// Which keys a query may read, chosen by a small scorer (DeepSeek-V3.2's lightning indexer):
//   score(t, s) = Σ_h w_h(t) · relu(q_h(t) · k(s)), the best top_k of s ≤ t.
struct IndexerSpec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t top_k = 0;
  std::optional<RopeSpec> rope;  // of the first dims of q and k heads
  bool rope_last = false;        // … of the last ones
  NormSpec key_norm;
  int64_t share_with_layer = -1;  // ≥ 0: no scorer of its own, reads that (earlier) layer's selection
};

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434), computed in its absorbed form: one K/V head of
// kv_lora + rope dims, whose first kv_lora dims are also the value.
struct MlaSpec {
  int64_t num_heads = 0;
  int64_t q_lora = 0;  // 0: q straight from the hidden row
  int64_t kv_lora = 0;
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t v_dim = 0;
  float scale = 0;
  std::optional<RopeSpec> rope;  // absent: the rope dims are used as they are
  NormSpec q_norm;
  NormSpec kv_norm;
  NormSpec k_rope_norm = kNoNorm;  // of the key's rope dims, before their rotation (Dots-3)
  float q_scale = 1;               // multiplies q (LongCat)
  float kv_scale = 1;              // multiplies the normed latent
  bool q_a_bias = false;
  bool kv_a_bias = false;
  bool output_bias = false;
  bool sinks = false;
  int64_t window = 0;
  PositionScale query_scale;
  AttentionGate gate = AttentionGate::kNone;
  bool gate_from_q_lora = false;    // the gate reads what q is projected from, not the hidden row
  bool q_reads_raw_latent = false;  // q is projected from [normed latent | latent] (A.X-K2)
  std::optional<IndexerSpec> indexer;
};

// Softmax attention over a window and a compressed history (DeepSeek-V4's CSA and HCA). Queries come from a normed
// latent and are normed per head; one K/V head, whose key is also its value. Every complete block w of `rate` tokens
// adds one entry, readable from the block's last position on:
//   entry = norm(Σ_j softmax_j(gate_j + bias[j mod rate]) * kv_j), a softmax for each of the head's dims, rotated at
// position w * rate; j runs over the block's tokens, with `overlap` over those of the block before too, for which the
// first half of kv and gate counts and for the block's own the second. The last dims of q, key and entries are rotated,
// and the output is rotated back at the query's position. The output projection is o_b over o_a of each head group.
struct CompressedAttentionSpec {
  struct Compressor {
    int64_t rate = 0;
    bool overlap = false;
  };
  struct Indexer {  // chooses top_k entries by Σ_h w_h · relu(q_h · k), with keys compressed as the entries are
    int64_t num_heads = 0;
    int64_t head_dim = 0;
    int64_t top_k = 0;
  };
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t q_lora = 0;
  int64_t window = 0;
  float scale = 0;
  RopeSpec rope;  // of the last rotary_dim dims of every head
  NormSpec norm;  // of the q latent, keys, entries; of q heads without weight
  int64_t output_groups = 1;
  int64_t output_rank = 0;  // of each group
  std::optional<Compressor> compressor;
  std::optional<Indexer> indexer;  // needs a compressor; without one every entry is read
  int64_t series() const { return compressor && compressor->overlap ? 2 : 1; }
};

// Mamba-2 as in Nemotron-H: in_proj → [z | x B C | dt], causal convolution and silu over [x B C], selective scan,
// grouped gated RMSNorm, out_proj. (Dao and Gu, arXiv:2405.21060.)
struct Mamba2Spec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t state_size = 0;
  int64_t num_groups = 0;   // B and C are shared by num_heads / num_groups heads; also the groups of the gated norm
  int64_t norm_groups = 0;  // groups of the gated norm; 0: num_groups
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

// Gated delta rule: Gated DeltaNet (arXiv:2412.06464) and Kimi delta attention (arXiv:2510.26692). Per value head,
// state M [k_head_dim, v_head_dim]:  M *= a;  d = sigmoid(b) (v - Mᵀk);  M += k dᵀ;  o = Mᵀ q, with q and k
// l2-normalised and q / sqrt(k_head_dim). q, k and v pass a causal depthwise convolution and silu first.
struct GatedDeltaSpec {
  int64_t num_k_heads = 0;
  int64_t num_v_heads = 0;  // a multiple; key head h serves value heads [h r, (h + 1) r)
  int64_t k_head_dim = 0;
  int64_t v_head_dim = 0;
  int64_t conv_kernel = 0;
  bool conv_bias = false;
  enum class Decay {
    kHead,         // a = exp(-exp(a_log) softplus(W_a x + dt_bias)), one a value head
    kChannel,      // … one a key channel, W_a in two factors f_a, f_b (decay_rank); num_k_heads == num_v_heads
    kSafeChannel,  // a = exp(decay_lower_bound * sigmoid(exp(a_log) (W_a x + dt_bias)))
  };
  Decay decay = Decay::kHead;
  float decay_lower_bound = -5.0f;
  int64_t decay_rank = 0;  // > 0: W_a = f_b f_a
  int64_t gate_rank = 0;   // > 0: W_z = g_b g_a
  bool gate_bias = false;  // of g_b
  enum class OutputGate { kSilu, kSigmoid };
  OutputGate output_gate = OutputGate::kSilu;
  NormSpec norm;  // over each value head of o, before the gate
  float l2_eps = 1e-6f;
  int64_t k_dim() const { return num_k_heads * k_head_dim; }
  int64_t v_dim() const { return num_v_heads * v_head_dim; }
  int64_t conv_dim() const { return 2 * k_dim() + v_dim(); }
};

// Mamba-1 (arXiv:2312.00752) with Jamba's norms of dt, B and C.
struct Mamba1Spec {
  int64_t inner = 0;
  int64_t state_size = 0;
  int64_t dt_rank = 0;
  int64_t conv_kernel = 0;
  bool conv_bias = false;
  bool proj_bias = false;
  NormSpec inner_norm;  // of dt, B and C; kNone without
};

// Lightning attention: M = r M + k vᵀ, o = Mᵀ q, r = exp(-slope) fixed per head (arXiv:2401.04658). qkv = act(W x).
struct LightningSpec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  std::vector<double> slopes;  // [heads], ≥ 0
  bool silu_qkv = false;
  float query_scale = 1;
  QkNorm qk_norm = QkNorm::kNone;
  NormSpec qk_norm_spec;
  std::optional<RopeSpec> rope;
  NormSpec norm;  // over all heads of o, before the sigmoid gate
};

// Gated short convolution (LFM2): [B | C | x] = W h;  y = C * conv(B * x);  W_o y.
struct ShortConvSpec {
  int64_t channels = 0;  // H
  int64_t kernel = 0;
  bool bias = false;       // of the convolution
  bool proj_bias = false;  // of both projections
};

using MixerSpec = std::variant<std::monostate, AttentionSpec, MlaSpec, Mamba2Spec, GatedDeltaSpec, Mamba1Spec,
                               LightningSpec, ShortConvSpec, CompressedAttentionSpec>;

struct MlpSpec {
  int64_t intermediate_size = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool bias = false;
  float limit = 0;       // of the clamped activations; 0: none
  float alpha = 1.702f;  // kSwigluOai
};

// A router of several layers (ZAYA): logits = router · gelu(fc2 gelu(fc1 norm(r))) with r = down · h, and with
// `carries` + carry * r of the MoE layer before, element by element.
struct RouterMlpSpec {
  int64_t width = 0;
  NormSpec norm;
  bool carries = false;
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
  float scale = 1.0f;          // multiplies the routed part once; with sinks the weights, the sinks' too
  int64_t num_groups = 1;      // group-limited selection: only experts of the best top_groups groups
  int64_t top_groups = 1;
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
};

struct SharedExpertSpec {
  MlpSpec mlp;
  int64_t count = 1;             // what the config says; the weights are one MLP of mlp.intermediate_size
  bool sigmoid_gated = false;    // moe.shared_gate [1, H]: sigmoid(g·x) multiplies its output
  bool router_weighted = false;  // `count` separate MLPs, weighted by the router's sinks
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
  bool output_bias = false;      // moe.output_bias [H] is added to the routed part
  std::optional<SharedExpertSpec> shared;
  int64_t expert_width(int64_t hidden) const { return latent_size > 0 ? latent_size : hidden; }
  int64_t num_choices() const { return num_experts + zero_experts + skip_experts; }
};

using FfnSpec = std::variant<std::monostate, MlpSpec, MoeSpec>;

// How a block's output y joins the residual x: x = skip * x + branch * y, or with `skip_normed` the block's normed
// input in place of x.
struct ResidualSpec {
  float skip = 1;
  float branch = 1;
  bool skip_normed = false;
  bool learnt = false;  // x = (x + skip_bias) * skip + (y + branch_bias) * branch, vectors (ZAYA)
};

// A dense MLP next to the layer's main ffn, reading the same residual row: x += post(main + beside).
struct BesideSpec {
  MlpSpec mlp;
  bool after_mixer = false;      // in a parallel layer: reads the residual row from after the mixer (Arctic)
  NormSpec norm;                 // beside.norm, of its input
  NormSpec post_norm = kNoNorm;  // beside.post_norm, of its output
};

// Hyper-connections (arXiv:2409.19606): the residual is `streams` rows x_i a token, all the embedding at first. A block
// reads one row made of them and its output y is added to each: x_k = post_k y + (Σ_i comb_ik x_i or x_k).
struct HyperSpec {
  enum class Kind {
    // Of m = fn norm(x_0 … x_n-1) * scale + base, in three parts with a scale each: row Σ sigmoid(m_i) x_i (+ eps
    // inside),
    // post = post_scale * sigmoid(m), comb = softmax(m) + eps by rows, then `sinkhorn` times normalised by columns and,
    // before each but the first, by rows (manifold-constrained: arXiv:2512.24880; DeepSeek-V4).
    kManifold,
    kIndependent,  // the same without comb, post with eps too (HY-V4)
    // n = norm(x_0 … x_n-1), a norm for each stream; row = mean_i(sigmoid(up silu(down n / streams))_i * n_i),
    // post = post_scale * sigmoid(inject n / streams) (Qwen4-Exp's gated residual)
    kGated,
  };
  Kind kind = Kind::kManifold;
  int64_t streams = 1;
  static constexpr int64_t kMaxStreams = 16;
  NormSpec norm;
  float eps = 0;
  float post_scale = 2;
  int64_t sinkhorn = 1;
  int64_t rank = 0;  // kGated: of down and up
  // How many values a block projects from the streams' norm (pre, post, comb; kGated: post alone), and the head.
  int64_t mixes() const {
    return kind == Kind::kGated ? streams : kind == Kind::kManifold ? streams * (streams + 2) : 2 * streams;
  }
};

// Hashed n-gram embeddings (Qwen4-Exp's per-layer embeddings), added to the residual streams x_s in front of a layer.
// For each n of 2 … max_n, heads_per_n hashes of the last n tokens choose a row of a table each; e is all of them side
// by side. Head h of n has row (⊕_{i<n} token(t - i) · multipliers[i]) mod head_rows[h], behind the rows of the heads
// before it; token(t - i) is `boundary` from the last boundary token before t, or the beginning, on backwards. Then
//     g_s = norm(W_k e)_s · norm(x)_s / √H;   u_s = sigmoid(sign(g_s) √max(|g_s|, 1e-6)) · W_v e
//     x_s += u_s + silu(conv(norm(u)))_s
// with a causal depthwise convolution whose taps are max_n positions apart.
struct NgramSpec {
  static constexpr int64_t kMaxN = 8;
  int64_t max_n = 0;
  int64_t heads_per_n = 0;
  int64_t embed_dim = 0;             // of e
  std::vector<int64_t> multipliers;  // [max_n], odd and so small that token · multiplier is below 2^63
  std::vector<int64_t> head_rows;    // [heads()]
  std::vector<int64_t> part_rows;    // the table as it is stored: parts of so many rows, one below the other
  int32_t boundary = 0;
  int64_t streams = 1;  // of the residual
  int64_t conv_kernel = 0;
  NormSpec norm;  // of keys, queries and what the convolution reads: each stream by itself (groups == streams)
  int64_t heads() const { return (max_n - 1) * heads_per_n; }
  int64_t conv_window() const { return (conv_kernel - 1) * max_n; }
};

// An input of each layer's own, for every token (Gemma-4 E2B): of the embedded rows h and a second embedding table,
//   e = scale * (norm(layer_input.projection · h) + table_scale * layer_input.table[t]), cut into `dim` values a layer,
// with a norm of each layer's cut. Behind layer l's ffn
//   x += norm(layers.l.layer_input.projection · (activation(layers.l.layer_input.gate · x) * e_l))
struct LayerInputSpec {
  int64_t dim = 0;
  float table_scale = 1;
  float scale = 1;
  NormSpec projection_norm;
  NormSpec norm;
  Activation activation = Activation::kGeluTanh;  // without its gate
};

// Embeddings averaged with those of hashed n-grams (LongCat-Flash-Lite): for each n of 2 … max_n, heads_per_n tables,
//   x = (embed[t] + Σ_h projection_h · table_h[hash_h]) / (1 + heads)
// with hash_h = (Σ_{i<n} token(t - i) · (V^i mod rows_h)) mod rows_h; token(t - i) is 0 from the last boundary token
// before t, or the beginning, on backwards.
struct NgramMeanSpec {
  int64_t max_n = 0;
  int64_t heads_per_n = 0;
  int64_t dim = 0;                 // of a row of each table
  std::vector<int64_t> head_rows;  // [heads()]
  int32_t boundary = 0;
  int64_t heads() const { return (max_n - 1) * heads_per_n; }
};

// The general layer. With the defaults it is the usual pre-norm pair
//     x += mixer(mixer_norm(x));  x += ffn(ffn_norm(x));
// An absent part is skipped with its norms. A hybrid model is a list of layers of different kinds.
struct LayerSpec {
  MixerSpec mixer;
  NormSpec mixer_norm;
  NormSpec mixer_post_norm = kNoNorm;  // of the mixer's output
  ResidualSpec mixer_residual;
  FfnSpec ffn;
  NormSpec ffn_norm;
  NormSpec ffn_own_post_norm = kNoNorm;  // of the main ffn's output, before `beside` is added
  NormSpec ffn_post_norm = kNoNorm;      // of the whole branch
  ResidualSpec ffn_residual;
  std::optional<BesideSpec> beside;
  // > 0: the branch's normed input y becomes y * sigmoid(gate_up silu(gate_down y)), of so low a rank (A.X-K2).
  int64_t mixer_norm_gate = 0;
  int64_t ffn_norm_gate = 0;
  bool parallel = false;     // the ffn reads the residual from before the mixer (Cohere)
  bool defer_ffn = false;    // the main ffn's output is added at the end of the next layer (LongCat's shortcut)
  bool layer_scale = false;  // layer_scale [1] multiplies x at the end
  bool ffn_scale = false;    // ffn_scale [1] multiplies the main ffn's output
  // > 0: the branch's output, before its norm, gets its causal depthwise convolution of so many taps added (Inkling).
  int64_t mixer_conv = 0;
  int64_t ffn_conv = 0;
  std::optional<NgramSpec> ngram;  // before the mixer
};

struct ModelSpec {
  std::string architecture;  // "Qwen3MoeForCausalLM"
  std::string family;        // the table entry of loaders/architectures.cc, e.g. "qwen3_moe"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_positions = 0;       // longest context the checkpoint states
  bool tied_head = false;          // lm_head is the embedding matrix
  bool head_bias = false;          // lm_head.bias [V]
  bool unit_head_columns = false;  // the columns of the head are divided by their L2 norms (Ling 1)
  float embedding_scale = 1.0f;
  float logit_scale = 1.0f;
  float logit_cap = 0;  // > 0: logits become cap * tanh(logit / cap), after the scale
  NormSpec embedding_norm = kNoNorm;
  bool embedding_affine = false;  // (embedding + embed_bias) * embed_scale, vectors
  std::optional<NgramMeanSpec> ngram_mean;
  std::optional<LayerInputSpec> layer_input;
  int64_t head_rows = 0;  // > 0: the head has only the first so many ids; the others never come out
  NormSpec final_norm;
  std::optional<HyperSpec> hyper;  // its head makes one row of the streams before final_norm
  std::vector<LayerSpec> layers;
  std::vector<int32_t> eos_token_ids;  // config.json's; generation_config.json's replace them
  std::optional<int32_t> bos_token_id;

  std::vector<int64_t> MoeLayers() const;  // indices, ascending
  bool HasRecurrentState() const;          // any mixer with a state per sequence
  int64_t MaxTopK() const;                 // over the MoE layers; 0 without one
  int64_t MaxExperts() const;
};

// What a mixer keeps of a sequence.
struct CacheShape {
  int64_t k_heads = 0;  // K/V heads; 0: no K/V
  int64_t k_dim = 0;    // of a head of K
  int64_t v_dim = 0;    // of a head of V
  int64_t plane = 0;    // float32 values per token beside K and V (keys of an indexer)
  int64_t state = 0;    // float32 values per sequence
  int64_t tail = 0;     // float32 values per block: what tokens need of those before them (WindowOp)
  bool has_kv() const { return k_heads > 0; }
};
CacheShape CacheOf(const MixerSpec& mixer);
// … and a layer: the state of its n-gram convolution, [streams * H, conv_window()], is behind the mixer's, the tails of
// mixer_conv and ffn_conv are behind the mixer's tail.
CacheShape CacheOf(const LayerSpec& layer, int64_t hidden_size);

// Canonical weight names, what Decoder asks WeightStore for. l: layer, e: expert.
//   embed [V,H]   embed_norm [H]   embed_{bias,scale} [H]   final_norm [H]   lm_head [V,H] (absent when tied)
//   lm_head.bias [V] layers.l.{mixer,ffn}_norm.{gate_down [rank,H],gate_up [H,rank]}
//   layers.l.{mixer,mixer_post,ffn,ffn_own_post,ffn_post}_norm(.bias) [H]   layers.l.layer_scale [1]
//   ngram_mean.h.{table [rows_h, dim],projection [H, dim]}
//   layer_input.{table [V, layers * dim],projection [layers * dim, H],norm [dim]}
//   layers.l.layer_input.{gate [dim, H],projection [H, dim],norm [H]}
//   layers.l.attn.{q_a [q_lora, H],q_a_norm [q_lora]}, q is [heads * d, q_lora]
//   layers.l.attn.{q,k,v}(.bias)   layers.l.attn.o(.bias)   layers.l.attn.{q_norm,k_norm,v_norm}
//   layers.l.attn.gate(.bias)   layers.l.attn.gate.head_bias [heads]   layers.l.attn.sinks [heads]
//   layers.l.attn.block_indexer.{q [heads * d, H],k [d, H],q_norm [d],k_norm [d]}
//   layers.l.attn.conv_{k,v} (kv_heads * d × taps)
//   layers.l.attn.r [heads * dim, H]   layers.l.attn.relative [dim, extent]
//   layers.l.attn.{v,v_delayed}(.bias) [kv_heads * d / 2, H]
//   layers.l.attn.conv_depthwise (q and k dims × taps)(.bias)
//   layers.l.attn.conv_grouped (q and k dims × d * taps)(.bias)   layers.l.attn.key_scale [kv_heads] (cca)
//   layers.l.attn.router [E, H]   layers.l.attn.experts.e.{q [kv_heads * d, H],o [H, kv_heads * d]} (head_experts)
//   layers.l.{mixer,ffn}.conv (H × taps)   layers.l.ffn_scale [1]
//   layers.l.{mixer,ffn}_residual.{skip,skip_bias,branch,branch_bias} [H]
//   layers.l.mla.{q_a(.bias),q_a_norm,q_b | q}   layers.l.mla.kv_a(.bias) [kv_lora + rope, H]   layers.l.mla.kv_a_norm
//   layers.l.mla.k_up [heads * nope, kv_lora]   layers.l.mla.v_up [heads * v, kv_lora]   layers.l.mla.o(.bias)
//   layers.l.mla.{gate,sinks,k_rope_norm}   layers.l.mla.indexer.{q [heads * d, q_lora or H],k [d,H],k_norm(.bias)
//   [d],weights [heads,H]} layers.l.cattn.{q_a,q_a_norm,q_b,kv,kv_norm,sinks [heads]}   layers.l.cattn.o_a [groups *
//   rank, heads * d / groups] layers.l.cattn.o_b [H, groups * rank]   layers.l.cattn.compressor.{kv,gate [series * d,
//   H],bias [rate, series * d],norm} layers.l.cattn.indexer.{kv,gate,bias,norm} likewise   layers.l.cattn.indexer.{q
//   [heads * d, q_lora],weights [heads, H]} layers.l.{mixer,ffn}_hyper.{fn [mixes, n * H],base [mixes],scale [3 or 2]}
//   hyper_head.{fn [n, n * H],base [n],scale [1]} layers.l.{mixer,ffn}_hyper.{norm,down,up,inject [n, n * H]}
//   hyper_head.{norm,down,up} (kGated) layers.l.mamba.{in_proj(.bias),conv (conv_dim ×
//   kernel),conv.bias,dt_bias,a_log,d,norm,out_proj(.bias)} layers.l.delta.{q,k,v}   layers.l.delta.conv_{q,k,v}(.bias)
//   layers.l.delta.{a | f_a,f_b}   layers.l.delta.b layers.l.delta.{z | g_a,g_b(.bias)}
//   layers.l.delta.{a_log,dt_bias,norm,o}
//   layers.l.mamba1.{in_proj(.bias),conv(.bias),x_proj,dt_proj,dt_proj.bias,dt_norm,b_norm,c_norm,a_log,d,out_proj(.bias)}
//   layers.l.lightning.{q,k,v,q_norm,k_norm,norm,gate,o}
//   layers.l.short_conv.{in_proj(.bias),conv(.bias),out_proj(.bias)}
//   layers.l.ngram.table.p [part_rows[p], embed_dim / heads]   layers.l.ngram.{key [streams * H, embed_dim],value [H,
//   embed_dim]} layers.l.ngram.{key_norm,query_norm,conv_norm} [streams * H]   layers.l.ngram.conv (streams * H ×
//   kernel) layers.l.mlp.{gate,up,down}(.bias)   layers.l.beside.{gate,up,down}(.bias) layers.l.beside.{norm,post_norm}
//   layers.l.moe.router [E,H]  layers.l.moe.router.bias [E]  layers.l.moe.router.select_bias [E]
//   layers.l.moe.router.{down(.bias) [W,H],carry [W],mlp_norm [W],fc1(.bias) [W,W],fc2(.bias) [W,W]}, router is [E,W]
//   layers.l.moe.router.{sinks [sinks,H],weight_scale [1]}   layers.l.moe.shared.e.{gate,up,down} (router_weighted)
//   layers.l.moe.router.{norm [H],expert_scale [E]}   layers.l.moe.router.table [V,top_k], whole numbers
//   layers.l.moe.experts.e.{gate,up,down}(.bias)   layers.l.moe.output_bias [H]
//   layers.l.moe.shared.{gate,up,down}(.bias)  layers.l.moe.shared_gate [1,H]
//   layers.l.moe.latent_down [L,H]  layers.l.moe.latent_up [H,L]
struct TensorNeed {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;      // 1 for vectors
  bool vector = false;   // rank 1 (or with extra dims of size 1)
  bool float32 = false;  // kept in float32 in every mode: vectors, convolutions, what decides
  int64_t below = 0;     // > 0: not floats but whole numbers in [0, below), stored as I64 or I32
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
