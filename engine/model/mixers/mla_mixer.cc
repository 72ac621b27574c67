#include "engine/model/mixers/mixers.h"
#include "engine/model/mixers/project.h"

namespace moe {
namespace {

// One step of one layer: the buffers that its parts hand to each other.
class MlaStep {
 public:
  MlaStep(const MlaSpec& spec, const PackedMla& weights, const ForwardContext& context, const HiddenRows& h,
          std::span<const MixerSlice> slices, const KvLayer& kv)
      : spec_(spec),
        weights_(weights),
        backend_(*context.backend),
        arena_(context.arena),
        act_(context.backend->act_dtype()),
        h_(h),
        slices_(slices),
        kv_(kv) {
    attention_.num_heads = spec.num_heads;
    attention_.num_kv_heads = 1;
    attention_.head_dim = spec.kv_lora + spec.rope_dim;
    attention_.v_head_dim = spec.kv_lora;
    attention_.scale = spec.scale;
    attention_.sinks = spec.sinks;
    attention_.window = spec.window;
  }

  void Keys(const RopeTable& rope) {
    const float* kv_a = Linear(Hidden(), weights_.kv_a.matrix.get(), weights_.kv_a.bias_or_null());
    backend_.MlaKeys({.spec = &spec_,
                      .kv_a = kv_a,
                      .rows = h_.rows,
                      .kv_norm = DataOrNull(weights_.kv_a_norm),
                      .k_rope_norm = DataOrNull(weights_.k_rope_norm),
                      .cos = rope.cos,
                      .sin = rope.sin,
                      .slices = slices_,
                      .kv = kv_});
  }

  // q with its nope part taken through k_upᵀ, so that it can be compared with latents.
  void Queries(const RopeTable& rope) {
    q_input_ = Hidden();
    if (spec_.q_lora > 0) {
      const float* q_a = Linear(Hidden(), weights_.q_a.matrix.get(), weights_.q_a.bias_or_null());
      std::byte* latent = ActRows(spec_.q_lora);
      auto* exact = weights_.indexer == nullptr ? nullptr : arena_->Allocate<float>(h_.rows * spec_.q_lora);
      backend_.Norm({.x = q_a,
                     .rows = h_.rows,
                     .dim = spec_.q_lora,
                     .stride = spec_.q_lora,
                     .spec = spec_.q_norm,
                     .weight = DataOrNull(weights_.q_a_norm),
                     .out_f32 = exact,
                     .out_act = latent});
      q_input_ = View(latent, spec_.q_lora, spec_.q_lora);
      if (exact != nullptr) latent_ = FloatView(exact, spec_.q_lora);
      if (spec_.q_reads_raw_latent) q_input_ = SideBySide(latent, Round(q_a, spec_.q_lora), spec_.q_lora);
    }
    const int64_t head_dim = spec_.nope_dim + spec_.rope_dim;
    const int64_t width = spec_.num_heads * head_dim;
    const float* q = Linear(q_input_, weights_.q.get(), nullptr);
    std::byte* rounded = Round(q, width);
    auto* absorbed = arena_->Allocate<float>(h_.rows * spec_.num_heads * spec_.kv_lora);
    EachHead(weights_.k_up, rounded, head_dim, width, absorbed, spec_.kv_lora);
    q_ = ActRows(spec_.num_heads * attention_.head_dim);
    backend_.MlaQueries({.spec = &spec_,
                         .q = q,
                         .absorbed = absorbed,
                         .rows = h_.rows,
                         .cos = rope.cos,
                         .sin = rope.sin,
                         .slices = slices_,
                         .q_out = q_});
  }

  // Index keys to the cache and, if some row has more keys than may be read, the choice among them to `selection`.
  void Select(const RopeTable& rope, const KeySelection& selection) {
    const IndexerSpec& indexer = *spec_.indexer;
    const PackedIndexer& weights = *weights_.indexer;
    const bool choose = !SplitAt(arena_, slices_, indexer.top_k).from.empty();
    // What chooses keys is computed in float32 from unrounded rows, as a router is.
    const RowsView hidden = FloatView(h_.f32, weights.k->cols());
    const float* keys = Linear(hidden, weights.k.get(), nullptr);
    const float* q = choose ? Linear(spec_.q_lora > 0 ? latent_ : hidden, weights.q.get(), nullptr) : nullptr;
    const float* head_weights = choose ? Linear(hidden, weights.weights.get(), nullptr) : nullptr;
    backend_.Indexer({.spec = &indexer,
                      .q = q,
                      .k = keys,
                      .weights = head_weights,
                      .rows = h_.rows,
                      .key_norm = DataOrNull(weights.k_norm),
                      .key_norm_bias = DataOrNull(weights.k_norm_bias),
                      .cos = rope.cos,
                      .sin = rope.sin,
                      .slices = slices_,
                      .kv = kv_,
                      .positions = choose ? selection.positions : nullptr});
  }

  // Positions up to the selection's width read everything before them, whatever was chosen; whether one does depends
  // on the position alone, so both ways of computing attention can be used side by side.
  void Attend(const KeySelection* selection) {
    mixed_ = ActRows(spec_.num_heads * spec_.kv_lora);
    AttentionOp op{.spec = &attention_,
                   .q = q_,
                   .sinks = DataOrNull(weights_.sinks),
                   .slices = slices_,
                   .kv = kv_,
                   .out_act = mixed_};
    if (selection == nullptr) {
      backend_.Attention(op);
      return;
    }
    const SplitSlices split = SplitAt(arena_, slices_, selection->width);
    op.slices = split.below;
    if (!op.slices.empty()) backend_.Attention(op);
    op.slices = split.from;
    op.selection = selection;
    if (!op.slices.empty()) backend_.Attention(op);
  }

  // Each head's latent to its values, gate, output projection; x += the result.
  void Output(float* x) {
    const int64_t latents = spec_.num_heads * spec_.kv_lora;
    const int64_t width = spec_.num_heads * spec_.v_dim;
    auto* values = arena_->Allocate<float>(h_.rows * width);
    EachHead(weights_.v_up, mixed_, spec_.kv_lora, latents, values, spec_.v_dim);
    std::byte* rounded = Round(values, width);
    if (weights_.gate != nullptr) {
      const float* gate = Linear(spec_.gate_from_q_lora ? q_input_ : Hidden(), weights_.gate.get(), nullptr);
      backend_.Gate({.kind = spec_.gate,
                     .rows = h_.rows,
                     .heads = spec_.num_heads,
                     .head_dim = spec_.v_dim,
                     .gate = gate,
                     .gate_stride = weights_.gate->rows(),
                     .act = rounded});
    }
    backend_.Gemm({.a = View(rounded, width, width),
                   .w = weights_.output.matrix.get(),
                   .bias = weights_.output.bias_or_null(),
                   .out = x,
                   .out_stride = weights_.output.matrix->rows(),
                   .accumulate = true});
  }

 private:
  int64_t ElementSize() const { return static_cast<int64_t>(DTypeSize(act_)); }
  std::byte* ActRows(int64_t width) {
    return arena_->AllocateBytes(static_cast<size_t>(h_.rows * width * ElementSize()));
  }
  RowsView View(const std::byte* data, int64_t cols, int64_t stride) const {
    return {data, act_, h_.rows, cols, stride};
  }
  // Rows [a | b].
  RowsView SideBySide(const std::byte* a, const std::byte* b, int64_t width) {
    std::byte* out = ActRows(2 * width);
    const int64_t bytes = width * ElementSize();
    for (int64_t r = 0; r < h_.rows; ++r) {
      std::copy_n(a + r * bytes, bytes, out + 2 * r * bytes);
      std::copy_n(b + r * bytes, bytes, out + (2 * r + 1) * bytes);
    }
    return View(out, 2 * width, 2 * width);
  }
  RowsView Hidden() const {
    const int64_t hidden = weights_.kv_a.matrix->cols();
    return View(h_.act, hidden, hidden);
  }
  RowsView FloatView(const float* data, int64_t cols) const {
    return {reinterpret_cast<const std::byte*>(data), DType::kF32, h_.rows, cols, cols};
  }

  // Each head's part of the rows of `in` (heads in_step, rows in_stride elements apart) by its own matrix, to its
  // out_dim columns of `out`. One call, since each product alone is too small to share between threads.
  void EachHead(const std::vector<std::unique_ptr<PackedMatrix>>& w, const std::byte* in, int64_t in_step,
                int64_t in_stride, float* out, int64_t out_dim) {
    auto* rows = arena_->Allocate<const std::byte*>(spec_.num_heads * h_.rows);
    auto* heads = arena_->Allocate<ExpertGroup>(spec_.num_heads);
    for (int64_t head = 0; head < spec_.num_heads; ++head) {
      const int64_t first = head * h_.rows;
      heads[head] = {static_cast<int32_t>(head), static_cast<int32_t>(first), static_cast<int32_t>(first + h_.rows)};
      for (int64_t r = 0; r < h_.rows; ++r) rows[first + r] = in + (r * in_stride + head * in_step) * ElementSize();
    }
    const auto count = static_cast<size_t>(spec_.num_heads);
    backend_.GroupedGemm({.w = w,
                          .rows = {rows, count * static_cast<size_t>(h_.rows)},
                          .groups = {heads, count},
                          .out = out,
                          .group_step = out_dim,
                          .out_stride = spec_.num_heads * out_dim});
  }

  float* Linear(const RowsView& a, const PackedMatrix* w, const float* bias) {
    auto* out = arena_->Allocate<float>(h_.rows * w->rows());
    backend_.Gemm({.a = a, .w = w, .bias = bias, .out = out, .out_stride = w->rows()});
    return out;
  }

  std::byte* Round(const float* x, int64_t width) {
    std::byte* out = ActRows(width);
    backend_.Round({.x = x, .rows = h_.rows, .dim = width, .stride = width, .out_act = out});
    return out;
  }

  const MlaSpec& spec_;
  const PackedMla& weights_;
  Backend& backend_;
  Arena* arena_;
  DType act_;
  HiddenRows h_;
  std::span<const MixerSlice> slices_;
  KvLayer kv_;
  AttentionSpec attention_;     // over latents
  RowsView latent_;             // the normed q latent in float32, for the indexer's q
  RowsView q_input_;            // what q is projected from
  std::byte* q_ = nullptr;      // [rows, heads * (kv_lora + rope)]
  std::byte* mixed_ = nullptr;  // [rows, heads * kv_lora]
};

}  // namespace

void MlaMixer::Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
                       const KvLayer& kv, const RopeTable& rope, const RopeTable& indexer_rope, int64_t layer,
                       StepState* state, float* x) const {
  MlaStep step(*spec_, *weights_, context, h, slices, kv);
  step.Keys(rope);
  step.Queries(rope);
  const KeySelection* selection = nullptr;
  if (spec_->indexer) {
    const int64_t source = spec_->indexer->share_with_layer;
    selection = &state->selections[static_cast<size_t>(source < 0 ? layer : source)];
    if (source < 0) step.Select(indexer_rope, *selection);
  }
  step.Attend(selection);
  step.Output(x);
}

}  // namespace moe
