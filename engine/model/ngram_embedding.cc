#include "engine/model/ngram_embedding.h"

#include "engine/model/mixers/project.h"

namespace moe {

void HashNgrams(const NgramSpec& spec, std::span<const int32_t> tokens, int64_t first_pos, int64_t count,
                int32_t* ids) {
  for (int64_t t = first_pos; t < first_pos + count; ++t) {
    int64_t mixed = tokens[static_cast<size_t>(t)] * spec.multipliers[0];
    int64_t first_row = 0;
    size_t head = 0;
    bool reached = false;  // the boundary before t
    for (int64_t i = 1; i < spec.max_n; ++i) {
      reached = reached || t - i < 0 || tokens[static_cast<size_t>(t - i)] == spec.boundary;
      const int64_t token = reached ? spec.boundary : tokens[static_cast<size_t>(t - i)];
      mixed ^= token * spec.multipliers[static_cast<size_t>(i)];
      for (int64_t h = 0; h < spec.heads_per_n; ++h, ++head) {
        *ids++ = static_cast<int32_t>(first_row + mixed % spec.head_rows[head]);
        first_row += spec.head_rows[head];
      }
    }
  }
}

void HashNgramMean(const NgramMeanSpec& spec, int64_t vocab_size, std::span<const int32_t> tokens, int64_t first_pos,
                   int64_t count, std::vector<int32_t>* ids) {
  for (int64_t t = first_pos; t < first_pos + count; ++t) {
    std::vector<int64_t> gram = {tokens[static_cast<size_t>(t)]};
    bool reached = false;  // the boundary before t
    for (int64_t i = 1; i < spec.max_n; ++i) {
      reached = reached || t - i < 0 || tokens[static_cast<size_t>(t - i)] == spec.boundary;
      gram.push_back(reached ? 0 : tokens[static_cast<size_t>(t - i)]);
      for (int64_t h = 0; h < spec.heads_per_n; ++h) {
        const int64_t rows = spec.head_rows[static_cast<size_t>((i - 1) * spec.heads_per_n + h)];
        int64_t hash = 0;
        int64_t power = 1;
        for (const int64_t token : gram) {
          hash += token * power;
          power = power * vocab_size % rows;
        }
        ids->push_back(static_cast<int32_t>(hash % rows));
      }
    }
  }
}

void AverageNgrams(const ForwardContext& context, const NgramMeanSpec& spec, const PackedNgramMean& weights,
                   std::span<const int32_t> ids, int64_t rows, int64_t hidden, float* x) {
  const Arena::Scope scope(context.arena);
  auto* embedded = context.arena->Allocate<float>(rows * spec.dim);
  std::vector<int32_t> own(static_cast<size_t>(rows));
  for (int64_t h = 0; h < spec.heads(); ++h) {
    for (int64_t r = 0; r < rows; ++r) own[static_cast<size_t>(r)] = ids[static_cast<size_t>(r * spec.heads() + h)];
    context.backend->Embed({.table = weights.tables[static_cast<size_t>(h)], .ids = own, .out = embedded});
    context.backend->Gemm({.a = {RoundRows(context, embedded, rows, spec.dim, spec.dim), context.backend->act_dtype(),
                                 rows, spec.dim, spec.dim},
                           .w = weights.projections[static_cast<size_t>(h)].get(),
                           .out = x,
                           .out_stride = hidden,
                           .accumulate = true});
  }
  const auto count = static_cast<float>(1 + spec.heads());
  for (int64_t i = 0; i < rows * hidden; ++i) x[i] /= count;
}

void NgramEmbedding::Forward(const ForwardContext& context, std::span<const int32_t> ids,
                             std::span<const MixerSlice> slices, int64_t state_offset, int64_t rows, int64_t hidden,
                             float* x) const {
  Backend& backend = *context.backend;
  const int64_t width = spec_->streams * hidden;
  const auto norm = [&](const float* in, const std::vector<float>& weight) {
    auto* out = context.arena->Allocate<float>(rows * width);
    backend.Norm({.x = in,
                  .rows = rows,
                  .dim = width,
                  .stride = width,
                  .spec = spec_->norm,
                  .weight = DataOrNull(weight),
                  .out_f32 = out});
    return out;
  };
  auto* embedded = context.arena->Allocate<float>(rows * spec_->embed_dim);
  backend.Embed({.table = weights_->table, .ids = ids, .out = embedded});
  const std::byte* input = RoundRows(context, embedded, rows, spec_->embed_dim, spec_->embed_dim);
  const float* key = norm(Project(context, input, rows, *weights_->key, nullptr), weights_->key_norm);
  const float* query = norm(x, weights_->query_norm);
  auto* gated = context.arena->Allocate<float>(rows * width);
  backend.StreamGate({.key = key,
                      .query = query,
                      .value = Project(context, input, rows, *weights_->value, nullptr),
                      .rows = rows,
                      .streams = spec_->streams,
                      .dim = hidden,
                      .out = gated});
  auto* local = context.arena->Allocate<float>(rows * width);
  backend.Conv({.x = norm(gated, weights_->conv_norm),
                .stride = width,
                .channels = width,
                .kernel = spec_->conv_kernel,
                .dilation = spec_->max_n,
                .weight = weights_->conv_weight.data(),
                .silu = true,
                .state_offset = state_offset,
                .slices = slices,
                .out = local});
  for (const float* part : {gated, local}) backend.AddRows({.dst = x, .src = part, .rows = rows, .dim = width});
}

}  // namespace moe
