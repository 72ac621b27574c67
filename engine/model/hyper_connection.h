// A residual of several streams (HyperSpec): the decoder's rows are then [streams * H] wide, and every block reads one
// row of H made of them and is added to each.
#ifndef MOE_ENGINE_MODEL_HYPER_CONNECTION_H_
#define MOE_ENGINE_MODEL_HYPER_CONNECTION_H_

#include "engine/model/packed_model.h"
#include "engine/moe/moe_runner.h"

namespace moe {

// What a block reads, and how its output is added; all in the arena.
struct HyperRows {
  float* row = nullptr;   // [rows, H]
  float* post = nullptr;  // [rows, streams]
  float* comb = nullptr;  // [rows, streams, streams] or null
};

class HyperConnection {
 public:
  HyperConnection(const HyperSpec* spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}
  int64_t width() const { return spec_->streams * hidden_; }

  // REQUIRES for all: rows > 0.
  // streams [rows, width()] of embedding rows [rows, H]: each stream is the embedding.
  void Spread(const float* rows_in, int64_t rows, float* streams) const;
  HyperRows Read(const ForwardContext& context, const PackedHyper& weights, const float* streams, int64_t rows) const;
  void Write(const ForwardContext& context, const HyperRows& read, const float* y, int64_t rows, float* streams) const;
  // out [rows, H], the row behind the last layer.
  void Head(const ForwardContext& context, const PackedHyper& weights, const float* streams, int64_t rows,
            float* out) const;

 private:
  void Collapse(const ForwardContext& context, const PackedHyper& weights, const float* streams, int64_t rows,
                const HyperRows& out) const;
  // kGated: [rows, width()], the gates of the normed streams before their sigmoid.
  const float* Gates(const ForwardContext& context, const PackedHyper& weights, const std::byte* normed,
                     int64_t rows) const;

  const HyperSpec* spec_;
  int64_t hidden_;
};

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_HYPER_CONNECTION_H_
