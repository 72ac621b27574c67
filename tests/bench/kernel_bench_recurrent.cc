// The recurrent mixers at model shapes: Qwen3-Next's gated delta rule and its convolution, lightning attention,
// Jamba's Mamba-1. Decoding moves a float32 state through memory once in each direction; a prompt keeps it in cache.
#include <algorithm>

#include "tests/bench/kernel_bench.h"

namespace moe::bench {
namespace {

using Floats = std::shared_ptr<std::vector<float>>;

Floats SharedFloats(int64_t n, uint32_t seed) {
  return std::make_shared<std::vector<float>>(RandomFloats(n, seed));
}

// The slices of a step of `sequences` × `rows` positions, with states of enough layers that none stays in cache.
class Steps {
 public:
  Steps(int64_t sequences, int64_t rows, int64_t state)
      : sequences_(sequences),
        state_(state),
        layers_(rows > 1 ? 1 : std::max<int64_t>(1, (int64_t{64} << 20) / (sequences * state))),
        states_(static_cast<size_t>(layers_ * sequences * state)),
        slices_(static_cast<size_t>(sequences)) {
    for (int64_t s = 0; s < sequences; ++s) {
      slices_[static_cast<size_t>(s)].row0 = s * rows;
      slices_[static_cast<size_t>(s)].count = rows;
    }
  }
  std::span<const MixerSlice> Next() {
    const int64_t layer = next_++ % layers_;
    for (int64_t s = 0; s < sequences_; ++s) {
      slices_[static_cast<size_t>(s)].state = states_.data() + (layer * sequences_ + s) * state_;
    }
    return slices_;
  }

 private:
  int64_t sequences_;
  int64_t state_;
  int64_t layers_;
  int64_t next_ = 0;
  std::vector<float> states_;
  std::vector<MixerSlice> slices_;
};

// Name, bytes (the state moves in and out) and flops of a case; its `run` is the caller's.
Case NewCase(const std::string& kind, int64_t sequences, int64_t rows, double state, double flops_per_row) {
  Case c;
  c.name = Cat(kind, " ", sequences, "×", rows);
  c.fma = true;
  c.bytes = 2.0 * 4 * static_cast<double>(sequences) * state;
  c.flops = static_cast<double>(sequences * rows) * flops_per_row;
  return c;
}

void AddGatedDelta(const std::shared_ptr<Backend>& backend, std::vector<Case>& cases, int64_t sequences, int64_t rows) {
  auto spec = std::make_shared<GatedDeltaSpec>();
  spec->num_k_heads = 16;
  spec->num_v_heads = 32;
  spec->k_head_dim = spec->v_head_dim = 128;
  spec->conv_kernel = 4;
  const int64_t all = sequences * rows;
  const int64_t state = spec->v_dim() * spec->k_head_dim;
  auto steps = std::make_shared<Steps>(sequences, rows, spec->conv_dim() * 3 + state);
  auto qkv = SharedFloats(all * spec->conv_dim(), 21), z = SharedFloats(all * spec->v_dim(), 22);
  auto heads = SharedFloats(all * 32, 23), norm = SharedFloats(128, 24);
  auto out = std::make_shared<std::vector<uint16_t>>(static_cast<size_t>(all * spec->v_dim()));
  // Per element of the state: decay, k·M, q·M and the update.
  Case c = NewCase("gated delta", sequences, rows, static_cast<double>(state), 7.0 * static_cast<double>(state));
  c.run = [=] {
    backend->GatedDelta({.spec = spec.get(),
                         .qkv = qkv->data(),
                         .decay = heads->data(),
                         .beta = heads->data(),
                         .z = z->data(),
                         .decay_stride = 32,
                         .beta_stride = 32,
                         .z_stride = spec->v_dim(),
                         .rows = all,
                         .a_log = heads->data(),
                         .dt_bias = heads->data(),
                         .norm = norm->data(),
                         .slices = steps->Next(),
                         .out_act = reinterpret_cast<std::byte*>(out->data())});
  };
  cases.push_back(std::move(c));
}

void AddConv(const std::shared_ptr<Backend>& backend, std::vector<Case>& cases, int64_t sequences, int64_t rows) {
  constexpr int64_t kChannels = 8192;
  constexpr int64_t kKernel = 4;
  const int64_t all = sequences * rows;
  auto steps = std::make_shared<Steps>(sequences, rows, kChannels * (kKernel - 1));
  auto x = SharedFloats(all * kChannels, 25), weight = SharedFloats(kChannels * kKernel, 26);
  auto out = SharedFloats(all * kChannels, 27);
  Case c = NewCase("convolution", sequences, rows, kChannels * (kKernel - 1), 0);
  c.bytes += 2.0 * 4 * static_cast<double>(all * kChannels);
  c.flops = static_cast<double>(all * kChannels) * (2 * kKernel + 25);  // silu: some 25
  c.run = [=] {
    backend->Conv({.x = x->data(),
                   .stride = kChannels,
                   .channels = kChannels,
                   .kernel = kKernel,
                   .weight = weight->data(),
                   .silu = true,
                   .slices = steps->Next(),
                   .out = out->data()});
  };
  cases.push_back(std::move(c));
}

void AddLightning(const std::shared_ptr<Backend>& backend, std::vector<Case>& cases, int64_t sequences, int64_t rows) {
  auto spec = std::make_shared<LightningSpec>();
  spec->num_heads = 64;
  spec->head_dim = 128;
  spec->slopes.assign(64, 0.1);
  spec->silu_qkv = true;
  const int64_t width = spec->num_heads * spec->head_dim;
  const int64_t all = sequences * rows;
  const int64_t state = width * spec->head_dim;
  auto steps = std::make_shared<Steps>(sequences, rows, state);
  auto qkv = SharedFloats(all * 3 * width, 28), gate = SharedFloats(all * width, 29), norm = SharedFloats(width, 30);
  auto out = std::make_shared<std::vector<uint16_t>>(static_cast<size_t>(all * width));
  Case c = NewCase("lightning", sequences, rows, static_cast<double>(state), 5.0 * static_cast<double>(state));
  c.run = [=] {
    backend->Lightning({.spec = spec.get(),
                        .qkv = qkv->data(),
                        .gate = gate->data(),
                        .qkv_stride = 3 * width,
                        .gate_stride = width,
                        .rows = all,
                        .norm = norm->data(),
                        .slices = steps->Next(),
                        .out_act = reinterpret_cast<std::byte*>(out->data())});
  };
  cases.push_back(std::move(c));
}

void AddMamba1(const std::shared_ptr<Backend>& backend, std::vector<Case>& cases, int64_t sequences, int64_t rows) {
  auto spec = std::make_shared<Mamba1Spec>();
  spec->inner = 8192;
  spec->state_size = 16;
  spec->conv_kernel = 4;
  const int64_t all = sequences * rows;
  const int64_t state = spec->inner * spec->state_size;
  auto steps = std::make_shared<Steps>(sequences, rows, spec->inner * 3 + state);
  auto x = SharedFloats(all * spec->inner, 31), dt = SharedFloats(all * spec->inner, 32);
  auto bc = SharedFloats(all * 16, 33), a_log = SharedFloats(state, 34), d = SharedFloats(spec->inner, 35);
  auto out = std::make_shared<std::vector<uint16_t>>(static_cast<size_t>(all * spec->inner));
  // An exponential, some 20, and six more an element.
  Case c = NewCase("mamba1", sequences, rows, 1.5 * static_cast<double>(state), 26.0 * static_cast<double>(state));
  c.run = [=] {
    backend->Mamba1({.spec = spec.get(),
                     .x = x->data(),
                     .z = x->data(),
                     .z_stride = spec->inner,
                     .dt = dt->data(),
                     .b = bc->data(),
                     .c = bc->data(),
                     .bc_stride = 16,
                     .rows = all,
                     .a_log = a_log->data(),
                     .d = d->data(),
                     .slices = steps->Next(),
                     .out_act = reinterpret_cast<std::byte*>(out->data())});
  };
  cases.push_back(std::move(c));
}

}  // namespace

void AddRecurrences(const std::shared_ptr<Backend>& backend, const std::string& filter, std::vector<Case>& cases) {
  const auto wanted = [&](const std::string& kind) {
    return filter.empty() || kind.find(filter) != std::string::npos || filter.find(kind) != std::string::npos;
  };
  const struct {
    const char* name;
    void (*add)(const std::shared_ptr<Backend>&, std::vector<Case>&, int64_t sequences, int64_t rows);
  } kinds[] = {
      {"gated delta", AddGatedDelta}, {"convolution", AddConv}, {"lightning", AddLightning}, {"mamba1", AddMamba1}};
  for (const auto& kind : kinds) {
    if (!wanted(kind.name)) continue;
    kind.add(backend, cases, 1, 1);
    kind.add(backend, cases, 32, 1);
    kind.add(backend, cases, 1, 512);
  }
}

}  // namespace moe::bench
