// MoERunner: the sparse block of a layer, owning its Router, RoutedExperts, SharedExperts and LatentProjection.
//
//     route = Router(h)                     logits in float32 from the hidden row, never from the latent one
//     x     = LatentProjection.Down(h)      or h itself
//     rows  = dispatcher: x to the ranks of the chosen experts
//     y     = RoutedExperts(rows)           one row in the activation dtype per (token, slot)
//     back  = dispatcher: y to the owners
//     r     = scale * Σ_slot weight · back  float32, slot order;  LatentProjection.Up(r)
//     out  += r + gate(h) · SharedExperts(h)
#ifndef MOE_ENGINE_MOE_MOE_RUNNER_H_
#define MOE_ENGINE_MOE_MOE_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "engine/device/backend.h"
#include "engine/moe/packed_moe.h"
#include "engine/tensor/arena.h"
#include "parallel/dispatcher.h"

namespace moe {

// The rank's tools for one forward pass; all outlive it.
struct ForwardContext {
  Backend* backend = nullptr;
  Dispatcher* dispatcher = nullptr;
  Arena* arena = nullptr;
  std::atomic<uint64_t>* heartbeat = nullptr;  // grows with every layer; may be null
  int64_t most_rows = 0;                       // RankPlan::most_rows
};

// Rows of hidden states in the two forms a block reads.
struct HiddenRows {
  const float* f32 = nullptr;      // [rows, H]
  const std::byte* act = nullptr;  // [rows, H] in the activation dtype
  int64_t rows = 0;
};

// Which experts a layer chose, in slot order; also what quantisation and coverage reports read.
struct Routing {
  const int32_t* ids = nullptr;    // [rows, top_k]
  const float* weights = nullptr;  // [rows, top_k]
  int64_t rows = 0;
  int64_t top_k = 0;
  const float* sink_weights = nullptr;  // [sinks, rows], or null
};

class Router {
 public:
  Router(const MoeSpec* spec, const PackedMoe* weights) : spec_(spec), weights_(weights) {}
  // `residual` [rows, H]: what a router that reads the residual stream gets; `tokens`: the rows' token ids, for one
  // that goes by them; `carry`: what the router before left for this one, and then this one's. Valid until the arena's
  // scope ends.
  Routing Forward(const ForwardContext& context, const HiddenRows& h, const float* residual,
                  std::span<const int32_t> tokens, float* carry) const;

 private:
  const MoeSpec* spec_;
  const PackedMoe* weights_;
};

class LatentProjection {
 public:
  LatentProjection(const PackedMoe* weights) : weights_(weights) {}
  bool present() const { return weights_->latent_down != nullptr; }
  // [rows, latent] in act.
  const std::byte* Down(const ForwardContext& context, const HiddenRows& h) const;
  // out [rows, H] += up · latent.
  void Up(const ForwardContext& context, const std::byte* latent, int64_t rows, float* out) const;

 private:
  const PackedMoe* weights_;
};

class RoutedExperts {
 public:
  RoutedExperts(const MoeSpec* spec, const PackedMoe* weights) : spec_(spec), weights_(weights) {}
  // One result row in act for each row of the work.
  const std::byte* Forward(const ForwardContext& context, const Dispatcher::Work& work) const;

 private:
  const MoeSpec* spec_;
  const PackedMoe* weights_;
};

class SharedExperts {
 public:
  SharedExperts(const MoeSpec* spec, const PackedMoe* weights) : spec_(spec), weights_(weights) {}
  bool present() const { return weights_->shared.experts != nullptr; }
  // out [rows, H] += gate(h) · shared(h), or Σ_s weight_s · shared_s(h).
  void Forward(const ForwardContext& context, const HiddenRows& h, const float* sink_weights, float* out) const;

 private:
  void AddWeighted(const ForwardContext& context, const HiddenRows& h, const float* weights, float* out) const;

  const MoeSpec* spec_;
  const PackedMoe* weights_;
};

// out [rows, H] += mlp(h) for an MLP packed as a set of one; times sigmoid(gate_logits) [rows] if not null.
void ForwardMlp(const ForwardContext& context, const PackedMlp& mlp, const MlpSpec& spec, const HiddenRows& h,
                const float* gate_logits, float* out);

class MoERunner {
 public:
  // `layer` names the exchanges in errors. spec, weights and placement outlive this.
  MoERunner(const MoeSpec* spec, const PackedMoe* weights, int64_t layer);

  // out [rows, H] += MoE(h). All ranks call this, also with no rows. `residual`: what the block's norm read; `tokens`:
  // the rows' ids. The routing is handed to `on_routing` if set.
  Status Forward(const ForwardContext& context, const ExpertPlacement& placement, const HiddenRows& h,
                 const float* residual, std::span<const int32_t> tokens, float* carry, int64_t hidden, float* out,
                 const std::function<void(const Routing&)>& on_routing) const;

 private:
  // Rows for the experts: x or, where the router weight multiplies the input, one weighted row for each slot.
  Status ForwardExperts(const ForwardContext& context, const ExpertPlacement& placement, const HiddenRows& h,
                        const Routing& route, int64_t width, float* out) const;

  const MoeSpec* spec_;
  const PackedMoe* weights_;
  int64_t layer_;
  Router router_;
  LatentProjection latent_;
  RoutedExperts routed_;
  SharedExperts shared_;
};

}  // namespace moe

#endif  // MOE_ENGINE_MOE_MOE_RUNNER_H_
