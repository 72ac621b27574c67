// The softmax attention mixers as data: grouped-query, latent (MLA) and compressed attention, with their options.
#ifndef MOE_LOADERS_ATTENTION_SPEC_H_
#define MOE_LOADERS_ATTENTION_SPEC_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "loaders/norm_spec.h"

namespace moe {

// Rotary position embedding with its scaling already folded into the frequencies (loaders/rope.h).
struct RopeSpec {
  enum class Layout { kHalfSplit, kInterleaved };  // pairs (i, i + d/2) or (2i, 2i + 1)
  Layout layout = Layout::kHalfSplit;
  int64_t rotary_dim = 0;        // first dims of each head that are rotated; even
  std::vector<double> inv_freq;  // [rotary_dim / 2], radians per position
  double cos_sin_scale = 1.0;    // multiplies cos and sin (YaRN's attention factor)
  // LongRoPE, original_positions > 0: a sequence that may become longer than that (SequenceInit::long_context) is
  // rotated by these instead, from its first position on.
  int64_t original_positions = 0;
  std::vector<double> long_inv_freq;
  double long_cos_sin_scale = 1.0;
  bool operator==(const RopeSpec&) const = default;
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
  bool operator==(const PositionScale&) const = default;
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
  bool operator==(const BlockIndexerSpec&) const = default;
};

// A learnt bias of the scores by distance (Inkling): the score of keys i - j = d < extent gets Σ_r x_r(i) w[r, d] more,
// x = attn.r · h with `dim` values a head. The query's position scale multiplies it too.
struct RelativeBiasSpec {
  int64_t dim = 0;
  int64_t extent = 0;
  bool operator==(const RelativeBiasSpec&) const = default;
};

// Compressed convolutional attention (CCA, arXiv:2510.04476). [q | k] as projected pass a causal depthwise convolution,
// then one that mixes the channels of each head; the means of q and k are added and the sums brought to length √d:
//   m_h = (q_h + k_g) / 2 for head h of K/V head g;   q'_h = conv_h + m_h;   k'_g = conv_g + mean of g's m_h
//   q_h = √d q'_h / |q'_h|;   k_g = key_scale_g √d k'_g / |k'_g|
// The first half of v is projected from the token's row, the second from that of the token before.
struct CcaSpec {
  int64_t depthwise_taps = 0;
  int64_t grouped_taps = 0;
  bool operator==(const CcaSpec&) const = default;
};

// Mixture of attention heads (MoA, arXiv:2210.05144): a token's queries and the projection of its outputs are those of
// the top_k experts of largest logit, weighted by a softmax over these. Each has a query head for every K/V head, so
// num_heads = top_k * num_kv_heads: head g * top_k + s belongs to the s-th choice and reads K/V head g.
struct HeadExpertsSpec {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  bool operator==(const HeadExpertsSpec&) const = default;
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
  bool operator==(const AttentionSpec&) const = default;
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
  bool operator==(const IndexerSpec&) const = default;
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
  bool operator==(const MlaSpec&) const = default;
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
    bool operator==(const Compressor&) const = default;
  };
  struct Indexer {  // chooses top_k entries by Σ_h w_h · relu(q_h · k), with keys compressed as the entries are
    int64_t num_heads = 0;
    int64_t head_dim = 0;
    int64_t top_k = 0;
    bool operator==(const Indexer&) const = default;
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
  bool operator==(const CompressedAttentionSpec&) const = default;
};

}  // namespace moe

#endif  // MOE_LOADERS_ATTENTION_SPEC_H_
