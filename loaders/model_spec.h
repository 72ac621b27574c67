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

#include "loaders/attention_spec.h"
#include "loaders/moe_spec.h"
#include "loaders/norm_spec.h"
#include "loaders/recurrent_spec.h"
#include "parallel/base/status.h"

namespace moe {

using MixerSpec = std::variant<std::monostate, AttentionSpec, MlaSpec, Mamba2Spec, GatedDeltaSpec, Mamba1Spec,
                               LightningSpec, ShortConvSpec, CompressedAttentionSpec>;

using FfnSpec = std::variant<std::monostate, MlpSpec, MoeSpec>;

// How a block's output y joins the residual x: x = skip * x + branch * y, or with `skip_normed` the block's normed
// input in place of x.
struct ResidualSpec {
  float skip = 1;
  float branch = 1;
  bool skip_normed = false;
  bool learnt = false;  // x = (x + skip_bias) * skip + (y + branch_bias) * branch, vectors (ZAYA)
  bool operator==(const ResidualSpec&) const = default;
};

// A dense MLP next to the layer's main ffn, reading the same residual row: x += post(main + beside).
struct BesideSpec {
  MlpSpec mlp;
  bool after_mixer = false;      // in a parallel layer: reads the residual row from after the mixer (Arctic)
  NormSpec norm;                 // beside.norm, of its input
  NormSpec post_norm = kNoNorm;  // beside.post_norm, of its output
  bool operator==(const BesideSpec&) const = default;
};

// Hyper-connections (arXiv:2409.19606): the residual is `streams` rows x_i a token, all the embedding at first. A block
// reads one row made of them and its output y is added to each: x_k = post_k y + (Σ_i comb_ik x_i or x_k).
struct HyperSpec {
  enum class Kind {
    // Of m = fn norm(x_0 … x_n-1) * scale + base, in three parts with a scale each: row Σ (sigmoid(m_i) + eps) x_i,
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
  bool operator==(const HyperSpec&) const = default;
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
  bool operator==(const NgramSpec&) const = default;
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
  bool operator==(const LayerInputSpec&) const = default;
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
  bool operator==(const NgramMeanSpec&) const = default;
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
  bool operator==(const LayerSpec&) const = default;
};

// Specs are values: two that are equal describe the same computation.
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
  // Sequences that may become longer than so many tokens are computed with the long factors of LongRoPE; 0: none are.
  int64_t LongContextBorder() const;
  bool operator==(const ModelSpec&) const = default;
};

// The rotations of a mixer: its own and its indexer's, null where there is none.
struct MixerRopes {
  const RopeSpec* own = nullptr;
  const RopeSpec* indexer = nullptr;
};
MixerRopes RopesOf(const MixerSpec& mixer);

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
