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
};

class Router {
 public:
  Router(const MoeSpec* spec, const PackedMoe* weights) : spec_(spec), weights_(weights) {}
  // Valid until the arena's scope ends.
  Routing Forward(const ForwardContext& context, const HiddenRows& h) const;

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
  bool present() const { return weights_->shared != nullptr; }
  // out [rows, H] += gate(h) · shared(h).
  void Forward(const ForwardContext& context, const HiddenRows& h, float* out) const;

 private:
  const MoeSpec* spec_;
  const PackedMoe* weights_;
};

// out [rows, H] += mlp(h) for an MLP packed as a set of one.
void ForwardMlp(const ForwardContext& context, const PackedExperts& mlp, Activation activation, const HiddenRows& h,
                const float* gate_logits, float* out);

class MoERunner {
 public:
  // `layer` names the exchanges in errors. spec, weights and placement outlive this.
  MoERunner(const MoeSpec* spec, const PackedMoe* weights, int64_t layer);

  // out [rows, H] += MoE(h). All ranks call this, also with no rows. The routing is handed to `on_routing` if set.
  Status Forward(const ForwardContext& context, const ExpertPlacement& placement, const HiddenRows& h, int64_t hidden,
                 float* out, const std::function<void(const Routing&)>& on_routing) const;

 private:
  const MoeSpec* spec_;
  int64_t layer_;
  Router router_;
  LatentProjection latent_;
  RoutedExperts routed_;
  SharedExperts shared_;
};

}  // namespace moe

#endif  // MOE_ENGINE_MOE_MOE_RUNNER_H_
