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

namespace moe {

struct PackedNorm {
  std::vector<float> weight;  // [H]
  std::vector<float> bias;    // [H] or empty
  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct PackedLinear {
  std::unique_ptr<PackedMatrix> matrix;
  std::vector<float> bias;  // [rows] or empty
  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct PackedAttention {
  PackedLinear qkv;  // q rows, then k, then v
  PackedLinear output;
  std::vector<float> q_norm;  // [head_dim] or [heads * head_dim], or empty
  std::vector<float> k_norm;
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

struct PackedLayer {
  PackedNorm mixer_norm;
  PackedNorm ffn_norm;
  std::unique_ptr<PackedAttention> attention;
  std::unique_ptr<PackedMamba2> mamba2;
  std::unique_ptr<PackedExperts> mlp;  // a set of one
  std::unique_ptr<PackedMoe> moe;
};

struct PackedModel {
  DType format = DType::kF32;
  // [V, H], a copy in the checkpoint's own dtype: after loading nothing depends on the mapped files any more, so a
  // checkpoint that is replaced or truncated on disk cannot hurt a running server.
  std::vector<std::byte> embed_data;
  WeightSource embed;  // of embed_data
  PackedNorm final_norm;
  std::unique_ptr<PackedMatrix> head;  // [V, H]
  std::vector<PackedLayer> layers;
  size_t bytes = 0;  // of all packed matrices
};

// Packs layer by layer, giving each tensor's source pages back as soon as it is packed, so that memory peaks at about
// the size of the weights. `progress(fraction)` may be empty.
std::unique_ptr<PackedModel> PackModel(const ModelSpec& spec, const WeightStore& store, DType format, Backend* backend,
                                       const std::function<void(double)>& progress);

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_PACKED_MODEL_H_
