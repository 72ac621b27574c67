// PackedModel: a model's weights in a backend's layout, read-only, shared by the ranks of a process.
//
// Matrices take the model's format (kF32, kBF16 or kF16); what decides or is small stays float32 in every mode:
// routers, norms, biases, convolutions, A_log, D, dt_bias.
#ifndef MOE_ENGINE_MODEL_PACKED_MODEL_H_
#define MOE_ENGINE_MODEL_PACKED_MODEL_H_

#include <functional>
#include <memory>
#include <vector>

#include "engine/device/backend.h"
#include "engine/moe/packed_moe.h"
#include "loaders/model_spec.h"
#include "loaders/weight_store.h"
#include "parallel/placement.h"

namespace moe {

struct PackedNorm {
  std::vector<float> weight;  // [H], or empty
  std::vector<float> bias;    // [H], or empty
  const float* weight_or_null() const { return weight.empty() ? nullptr : weight.data(); }
  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct PackedLinear {
  std::unique_ptr<PackedMatrix> matrix;
  std::vector<float> bias;  // [rows] or empty
  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct PackedBlockIndexer {
  std::unique_ptr<PackedMatrix> qk;  // [heads * head_dim + head_dim, H]: q, then k
  std::vector<float> q_norm;
  std::vector<float> k_norm;
};

// CcaSpec; the attention's qkv has the rows q, k, v_delayed, v.
struct PackedCca {
  std::vector<float> depthwise;  // [q and k dims, taps]
  std::vector<float> depthwise_bias;
  std::vector<std::unique_ptr<PackedMatrix>> grouped;  // by head of q, then k: [head_dim, head_dim * taps], float32
  std::vector<float> grouped_bias;
  std::vector<float> v_delayed_bias;  // or empty
  std::vector<float> key_scale;
};

// HeadExpertsSpec; the attention's qkv has the rows of k and v alone, its output only a bias.
struct PackedHeadExperts {
  std::unique_ptr<PackedMatrix> router;          // [E, H], float32
  std::vector<std::unique_ptr<PackedMatrix>> q;  // by expert: [kv_heads * head_dim, H]
  std::vector<std::unique_ptr<PackedMatrix>> o;  // by expert: [H, kv_heads * v_head_dim]
};

struct PackedAttention {
  PackedLinear qkv;                    // q (or q_a) rows, then k, then v; q alone where another layer's K/V is read
  std::unique_ptr<PackedMatrix> q_up;  // [heads * head_dim, q_lora] or null
  std::vector<float> q_a_norm;         // [q_lora] or empty
  PackedLinear output;
  std::vector<float> q_norm;  // [head_dim] or [heads * head_dim], or empty
  std::vector<float> k_norm;
  std::vector<float> v_norm;           // [v_head_dim] or empty
  std::vector<float> sinks;            // [heads] or empty
  std::unique_ptr<PackedMatrix> gate;  // [heads * v_head_dim or heads, H] or null
  std::vector<float> gate_bias;        // [gate rows] or empty
  std::vector<float> gate_head_bias;   // [heads] or empty
  std::vector<float> kv_conv;          // [2 * kv_heads * head_dim, taps] or empty
  std::vector<float> relative_bias;    // as AttentionOp has it, or empty; qkv has rows for x behind those of v
  std::unique_ptr<PackedCca> cca;
  std::unique_ptr<PackedHeadExperts> head_experts;
  std::unique_ptr<PackedBlockIndexer> block_indexer;
};

struct PackedIndexer {
  std::unique_ptr<PackedMatrix> q;        // [heads * head_dim, q_lora or H]
  std::unique_ptr<PackedMatrix> k;        // [head_dim, H]
  std::unique_ptr<PackedMatrix> weights;  // [heads, H], float32
  std::vector<float> k_norm;
  std::vector<float> k_norm_bias;
};

struct PackedMla {
  PackedLinear q_a;  // empty without q_lora
  std::vector<float> q_a_norm;
  std::unique_ptr<PackedMatrix> q;  // [heads * (nope + rope), q_lora or H]
  PackedLinear kv_a;                // [kv_lora + rope, H]
  std::vector<float> kv_a_norm;
  std::vector<float> k_rope_norm;                   // [rope] or empty
  std::vector<std::unique_ptr<PackedMatrix>> k_up;  // per head [kv_lora, nope]: turned, for absorption into q
  std::vector<std::unique_ptr<PackedMatrix>> v_up;  // per head [v, kv_lora]
  PackedLinear output;
  std::vector<float> sinks;
  std::unique_ptr<PackedMatrix> gate;
  std::unique_ptr<PackedIndexer> indexer;
};

struct PackedCompressedAttention {
  std::unique_ptr<PackedMatrix> in_proj;  // rows q_a, kv, then kv and gate of compressor and indexer
  std::vector<float> q_a_norm, kv_norm;
  std::unique_ptr<PackedMatrix> q_b;               // [heads * d, q_lora]
  std::vector<std::unique_ptr<PackedMatrix>> o_a;  // per group [rank, heads * d / groups]
  PackedLinear o_b;
  std::vector<float> sinks;
  std::vector<float> bias, norm;  // the compressor's
  std::vector<float> index_bias, index_norm;
  std::unique_ptr<PackedMatrix> index_q;        // [heads * d, q_lora] of the indexer
  std::unique_ptr<PackedMatrix> index_weights;  // [heads, H], float32
};

// One hyper-connection, or the head.
struct PackedHyper {
  std::unique_ptr<PackedMatrix> fn;  // [mixes, n * H], float32; kGated: inject, or null
  std::vector<float> base, scale, norm;
  std::unique_ptr<PackedMatrix> down, up;  // kGated
};

struct PackedGatedDelta {
  PackedLinear in_proj;  // rows q, k, v, b, then z and a where they are not factored: GatedDeltaMixer knows the order
  std::unique_ptr<PackedMatrix> f_a;  // [decay_rank, H] or null
  std::unique_ptr<PackedMatrix> f_b;  // [k_dim, decay_rank]
  std::unique_ptr<PackedMatrix> g_a;  // [gate_rank, H] or null
  PackedLinear g_b;                   // [v_dim, gate_rank]
  std::vector<float> conv_weight;     // [conv_dim, kernel], channels q, k, v
  std::vector<float> conv_bias;
  std::vector<float> a_log;
  std::vector<float> dt_bias;
  std::vector<float> norm;
  PackedLinear output;
};

struct PackedMamba1 {
  PackedLinear in_proj;  // [2 inner, H]: x, then z
  std::vector<float> conv_weight;
  std::vector<float> conv_bias;
  std::unique_ptr<PackedMatrix> x_proj;  // [dt_rank + 2 state, inner]
  PackedLinear dt_proj;                  // [inner, dt_rank]
  std::vector<float> dt_norm, b_norm, c_norm;
  std::vector<float> a_log;  // [inner, state]
  std::vector<float> d;
  PackedLinear out_proj;
};

struct PackedLightning {
  PackedLinear in_proj;  // rows q, k, v, gate
  std::vector<float> q_norm, k_norm, norm;
  PackedLinear output;
};

struct PackedShortConv {
  PackedLinear in_proj;  // [3 H, H]: B, C, x
  std::vector<float> conv_weight;
  std::vector<float> conv_bias;
  PackedLinear out_proj;
};

struct PackedMamba2 {
  PackedLinear in_proj;
  PackedLinear out_proj;
  std::vector<float> conv_weight;  // [conv_dim, kernel]
  std::vector<float> conv_bias;    // [conv_dim] or empty
  std::vector<float> dt_bias;      // [heads]
  std::vector<float> a_log;        // [heads]
  std::vector<float> d;            // [heads]
  std::vector<float> norm;         // [inner]
};

// The table is a copy in the checkpoint's own dtype, as that of the token embedding.
struct PackedNgram {
  std::vector<std::byte> table_data;
  WeightSource table;                   // of table_data
  std::unique_ptr<PackedMatrix> key;    // [streams * H, embed_dim]
  std::unique_ptr<PackedMatrix> value;  // [H, embed_dim]
  std::vector<float> key_norm, query_norm, conv_norm;
  std::vector<float> conv_weight;  // [streams * H, kernel]
};

// NgramMeanSpec, by hash; tables as PackedNgram's.
struct PackedNgramMean {
  std::vector<std::vector<std::byte>> table_data;
  std::vector<WeightSource> tables;
  std::vector<std::unique_ptr<PackedMatrix>> projections;  // [H, dim]
};

// LayerInputSpec: what all layers share, and each layer's. The table as PackedNgram's.
struct PackedLayerInputs {
  std::vector<std::byte> table_data;
  WeightSource table;                        // [V, layers * dim]
  std::unique_ptr<PackedMatrix> projection;  // [layers * dim, H]
  std::vector<float> norm;                   // [dim]
};
struct PackedLayerInput {
  std::unique_ptr<PackedMatrix> gate;        // [dim, H]
  std::unique_ptr<PackedMatrix> projection;  // [H, dim]
  std::vector<float> norm;                   // [H]
};

// ResidualSpec::learnt: [H] each, or empty.
struct PackedResidual {
  std::vector<float> skip, skip_bias, branch, branch_bias;
};

// The gate on a normed row: y * sigmoid(up silu(down y)); null without.
struct PackedNormGate {
  std::unique_ptr<PackedMatrix> down;  // [rank, H]
  std::unique_ptr<PackedMatrix> up;    // [H, rank]
};

struct PackedLayer {
  PackedNorm mixer_norm, mixer_post_norm;
  PackedNorm ffn_norm, ffn_own_post_norm, ffn_post_norm;
  PackedNorm beside_norm, beside_post_norm;
  PackedNormGate mixer_norm_gate, ffn_norm_gate;
  std::unique_ptr<PackedAttention> attention;  // one of these, or none
  std::unique_ptr<PackedMla> mla;
  std::unique_ptr<PackedMamba2> mamba2;
  std::unique_ptr<PackedGatedDelta> gated_delta;
  std::unique_ptr<PackedMamba1> mamba1;
  std::unique_ptr<PackedLightning> lightning;
  std::unique_ptr<PackedShortConv> short_conv;
  std::unique_ptr<PackedCompressedAttention> compressed_attention;
  PackedHyper mixer_hyper, ffn_hyper;
  PackedMlp mlp;  // a set of one, or null
  std::unique_ptr<PackedMoe> moe;
  PackedMlp beside;                // a set of one, or null
  std::vector<float> layer_scale;  // [1] or empty
  std::vector<float> ffn_scale;    // [1] or empty
  std::vector<float> mixer_conv;   // [H, taps] or empty
  std::vector<float> ffn_conv;     // [H, taps] or empty
  PackedResidual mixer_residual, ffn_residual;
  std::unique_ptr<PackedNgram> ngram;
  std::unique_ptr<PackedLayerInput> layer_input;
};

struct PackedModel {
  DType format = DType::kF32;
  // [V, H], a copy in the checkpoint's own dtype: after loading nothing depends on the mapped files any more, so a
  // checkpoint that is replaced or truncated on disk cannot hurt a running server.
  std::vector<std::byte> embed_data;
  WeightSource embed;  // of embed_data
  PackedNorm embed_norm;
  std::vector<float> embed_bias, embed_scale;  // [H] or empty
  std::unique_ptr<PackedNgramMean> ngram_mean;
  std::unique_ptr<PackedLayerInputs> layer_inputs;
  PackedNorm final_norm;
  PackedHyper hyper_head;
  PackedLinear head;  // [V, H]
  std::vector<PackedLayer> layers;
  size_t bytes = 0;  // of all packed matrices
};

// Packs layer by layer, giving each tensor's source pages back as soon as it is packed, so that memory peaks at about
// the size of the weights. `pool` is the backend's. `progress(fraction)` may be empty. INVALID, naming file and tensor,
// when a weight is not a finite number (weight_values.h says which infinities mean something). `held`: of the routed
// experts only these are packed (expert_loading.h adds others); null: all.
StatusOr<std::unique_ptr<PackedModel>> PackModel(const ModelSpec& spec, const WeightStore& store, DType format,
                                                 Backend* backend, WorkerPool* pool,
                                                 const std::function<void(double)>& progress,
                                                 const ExpertLists* held = nullptr);

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_PACKED_MODEL_H_
