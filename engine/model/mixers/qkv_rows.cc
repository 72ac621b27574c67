#include "engine/model/mixers/qkv_rows.h"

#include "engine/model/mixers/project.h"

namespace moe {

namespace {

// AttentionSpec::q_lora: q from the norm of its latent.
QkvRows FactoredQkv(const ForwardContext& context, const AttentionSpec& spec, const PackedAttention& weights,
                    const HiddenRows& h) {
  const int64_t q_dim = spec.num_heads * spec.head_dim;
  const int64_t kv_dim = spec.num_kv_heads * (spec.head_dim + spec.v_head_dim);
  const int64_t stride = q_dim + kv_dim;
  const int64_t latent_stride = spec.q_lora + kv_dim;
  const float* latent = Project(context, h.act, h.rows, *weights.qkv.matrix, nullptr);
  std::byte* normed = AllocateAct(context, h.rows, spec.q_lora);
  context.backend->Norm({.x = latent,
                         .rows = h.rows,
                         .dim = spec.q_lora,
                         .stride = latent_stride,
                         .spec = spec.q_lora_norm,
                         .weight = DataOrNull(weights.q_a_norm),
                         .out_act = normed});
  auto* qkv = context.arena->Allocate<float>(h.rows * stride);
  context.backend->Gemm({.a = {normed, context.backend->act_dtype(), h.rows, spec.q_lora, spec.q_lora},
                         .w = weights.q_up.get(),
                         .out = qkv,
                         .out_stride = stride});
  for (int64_t r = 0; r < h.rows; ++r) {
    std::copy_n(latent + r * latent_stride + spec.q_lora, kv_dim, qkv + r * stride + q_dim);
  }
  return {.data = qkv, .stride = stride};
}

}  // namespace

QkvRows ProjectQkv(const ForwardContext& context, const AttentionSpec& spec, const PackedAttention& weights,
                   const HiddenRows& h, std::span<const MixerSlice> slices, const KvLayer& kv) {
  if (spec.q_lora > 0) return FactoredQkv(context, spec, weights, h);
  const int64_t stride = weights.qkv.matrix->rows();
  const int64_t q_dim = spec.num_heads * spec.head_dim;
  const int64_t kv_dim = spec.num_kv_heads * (spec.head_dim + spec.v_head_dim);
  float* qkv = Project(context, h.act, h.rows, *weights.qkv.matrix, weights.qkv.bias_or_null());
  QkvRows rows{.data = qkv, .stride = stride};
  if (spec.kv_conv > 0) {
    float* k_and_v = qkv + q_dim;
    const std::span<const MixerSlice> with_windows = WithWindows(
        context,
        {.x = k_and_v, .stride = stride, .channels = kv_dim, .window = spec.kv_conv - 1, .slices = slices, .kv = kv});
    context.backend->Conv({.x = k_and_v,
                           .stride = stride,
                           .channels = kv_dim,
                           .kernel = spec.kv_conv,
                           .weight = weights.kv_conv.data(),
                           .slices = with_windows,
                           .residual = true,
                           .out = k_and_v,
                           .out_stride = stride});
  }
  if (spec.relative_bias) {
    float* relative = qkv + q_dim + kv_dim;
    rows.relative = relative;
    const int64_t width = spec.num_heads * spec.relative_bias->dim;
    for (const MixerSlice& slice : slices) {
      if (spec.query_scale.kind == PositionScale::Kind::kNone) break;
      for (int64_t i = 0; i < slice.count; ++i) {
        const float scale = PositionScaleAt(spec.query_scale, slice.first_pos + i);
        float* row = relative + (slice.row0 + i) * stride;
        for (int64_t d = 0; d < width; ++d) row[d] *= scale;
      }
    }
  }
  return rows;
}

QkvRows CcaQkv(const ForwardContext& context, const AttentionSpec& spec, const PackedAttention& weights,
               const HiddenRows& h, std::span<const MixerSlice> slices, const KvLayer& kv) {
  const PackedCca& cca = *weights.cca;
  Backend& backend = *context.backend;
  const int64_t heads = spec.num_heads + spec.num_kv_heads;
  const int64_t q_dim = spec.num_heads * spec.head_dim;
  const int64_t k_dim = spec.num_kv_heads * spec.head_dim;
  const int64_t channels = q_dim + k_dim;
  const int64_t depthwise = spec.cca->depthwise_taps;
  const int64_t grouped = spec.cca->grouped_taps;
  // [q | k | v_delayed | v]
  const int64_t stride = weights.qkv.matrix->rows();
  const float* proj = Project(context, h.act, h.rows, *weights.qkv.matrix, weights.qkv.bias_or_null());

  auto* mixed = context.arena->Allocate<float>(h.rows * channels);
  backend.Conv(
      {.x = proj,
       .stride = stride,
       .channels = channels,
       .kernel = depthwise,
       .weight = cca.depthwise.data(),
       .bias = cca.depthwise_bias.data(),
       .slices = WithWindows(
           context,
           {.x = proj, .stride = stride, .channels = channels, .window = depthwise - 1, .slices = slices, .kv = kv}),
       .out = mixed});

  // The second convolution sees the first one's output before position 0 too: of rows of zeros, its bias.
  auto* unfolded = context.arena->Allocate<float>(h.rows * channels * grouped);
  backend.Unfold({.x = mixed,
                  .stride = channels,
                  .channels = channels,
                  .taps = grouped,
                  .slices = WithWindows(context, {.x = mixed,
                                                  .stride = channels,
                                                  .channels = channels,
                                                  .window = grouped - 1,
                                                  .before = cca.depthwise_bias.data(),
                                                  .tail_offset = (depthwise - 1) * channels,
                                                  .slices = slices,
                                                  .kv = kv}),
                  .out = unfolded});
  auto* conv = context.arena->Allocate<float>(h.rows * channels);
  const int64_t taps_of_head = spec.head_dim * grouped;
  for (int64_t head = 0; head < heads; ++head) {
    const float* in = unfolded + head * taps_of_head;
    backend.Gemm({.a = {reinterpret_cast<const std::byte*>(in), DType::kF32, h.rows, taps_of_head, channels * grouped},
                  .w = cca.grouped[static_cast<size_t>(head)].get(),
                  .bias = cca.grouped_bias.data() + head * spec.head_dim,
                  .out = conv + head * spec.head_dim,
                  .out_stride = channels});
  }

  const float* v_delayed = proj + channels;
  auto* out = context.arena->Allocate<float>(h.rows * (channels + k_dim));
  backend.Cca({.spec = &spec,
               .q = proj,
               .k = proj + q_dim,
               .v = v_delayed + k_dim / 2,
               .v_delayed = v_delayed,
               .stride = stride,
               .conv = conv,
               .key_scale = cca.key_scale.data(),
               .slices = WithWindows(context, {.x = v_delayed,
                                               .stride = stride,
                                               .channels = k_dim / 2,
                                               .window = 1,
                                               .before = DataOrNull(cca.v_delayed_bias),
                                               .tail_offset = (depthwise + grouped - 2) * channels,
                                               .slices = slices,
                                               .kv = kv}),
               .out = out});
  return {.data = out, .stride = channels + k_dim};
}

}  // namespace moe
