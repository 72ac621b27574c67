// Experts of every path against the reference; batches, groups and threads change no bit.
#include <algorithm>
#include <cmath>

#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

struct ExpertsCase {
  DType act, weights;
  int64_t experts, width, intermediate;
  bool gated;
  Activation activation;
  DType out;
  float limit = 0;
  float alpha = 0;
  bool bias = false;
};

struct ExpertsInputs {
  std::vector<Values> gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;
  std::vector<ExpertSource> sources;
  ExpertsInputs(const ExpertsCase& c, uint32_t seed) {
    Random random(seed);
    const float in_scale = 1.0f / std::sqrt(static_cast<float>(c.width));
    const float out_scale = 1.0f / std::sqrt(static_cast<float>(c.intermediate));
    for (int64_t e = 0; e < c.experts; ++e) {
      gate.push_back(random.Make(c.weights, c.intermediate * c.width, in_scale));
      up.push_back(random.Make(c.weights, c.intermediate * c.width, in_scale));
      down.push_back(random.Make(c.weights, c.width * c.intermediate, out_scale));
    }
    for (int64_t e = 0; e < c.experts; ++e) {
      ExpertSource s;
      if (c.gated) s.gate = Source(gate[e], c.intermediate, c.width);
      s.up = Source(up[e], c.intermediate, c.width);
      s.down = Source(down[e], c.width, c.intermediate);
      sources.push_back(s);
    }
    if (!c.bias) return;
    gate_bias = random.Floats(c.experts * c.intermediate);
    up_bias = random.Floats(c.experts * c.intermediate);
    down_bias = random.Floats(c.experts * c.width);
  }
};

// Rows per expert → groups over consecutive rows; experts without rows have no group.
std::vector<ExpertGroup> Groups(const std::vector<int64_t>& rows_of_expert) {
  std::vector<ExpertGroup> groups;
  int64_t row = 0;
  for (size_t e = 0; e < rows_of_expert.size(); ++e) {
    if (rows_of_expert[e] == 0) continue;
    groups.push_back(
        {static_cast<int32_t>(e), static_cast<int32_t>(row), static_cast<int32_t>(row + rows_of_expert[e])});
    row += rows_of_expert[e];
  }
  return groups;
}

std::vector<float> RunExperts(Backend& backend, const PackedExperts& packed, const ExpertsCase& c,
                              const ExpertsInputs& in, const Values& x, const std::vector<ExpertGroup>& groups) {
  const int64_t rows = x.size() / c.width;
  std::vector<const std::byte*> pointers;
  for (int64_t r = 0; r < rows; ++r) pointers.push_back(x.at(r * c.width));
  std::vector<std::byte> out(static_cast<size_t>(rows * c.width) * DTypeSize(c.out));
  ExpertsOp op;
  op.experts = &packed;
  op.activation = c.activation;
  op.limit = c.limit;
  op.alpha = c.alpha;
  if (c.bias) {
    op.gate_bias = c.gated ? in.gate_bias.data() : nullptr;
    op.up_bias = in.up_bias.data();
    op.down_bias = in.down_bias.data();
  }
  op.rows = pointers;
  op.groups = groups;
  op.out_dtype = c.out;
  op.out = out.data();
  backend.Experts(op);
  return ToFloats(c.out, out);
}

// The function of the gate.
double Act(Activation a, double x, double limit, double alpha) {
  switch (a) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kSwigluStep:
      return std::min(limit, x / (1 + std::exp(-x)));
    case Activation::kSwigluOai:
      return x / (1 + std::exp(-alpha * x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
    case Activation::kRelu2:
      return x > 0 ? x * x : 0;
  }
  return 0;
}

double Slope(Activation a, double x) {
  return a == Activation::kRelu2 ? 2 * std::fabs(x) : 1.13;
}  // silu', gelu' < 1.13

// Propagates the error of one evaluation in float32 (sums: (K + 1) u Σ|terms|; an activation: 16 u of its value plus
// its slope times the error of its argument; rounding to act), for two evaluations.
std::vector<double> ExpertsBound(const ExpertsInputs& in, const ExpertsCase& c, const Values& x,
                                 const std::vector<ExpertGroup>& groups) {
  const double round = c.act == DType::kBF16 ? kUBf16 : 0;
  const double out_round = c.out == DType::kBF16 ? kUBf16 : 0;
  std::vector<double> bound(static_cast<size_t>(x.size()));
  for (const ExpertGroup& g : groups) {
    for (int64_t r = g.begin; r < g.end; ++r) {
      std::vector<double> h(c.intermediate), eh(c.intermediate);
      for (int64_t i = 0; i < c.intermediate; ++i) {
        double gate = 0, up = 0, gate_abs = 0, up_abs = 0;
        if (c.bias) {
          if (c.gated) gate = in.gate_bias[g.expert * c.intermediate + i];
          up = in.up_bias[g.expert * c.intermediate + i];
          gate_abs = std::fabs(gate);
          up_abs = std::fabs(up);
        }
        for (int64_t k = 0; k < c.width; ++k) {
          const double xv = x.floats[r * c.width + k];
          const double gv = xv * in.gate[g.expert].floats[i * c.width + k];
          const double uv = xv * in.up[g.expert].floats[i * c.width + k];
          gate += gv;
          gate_abs += std::fabs(gv);
          up += uv;
          up_abs += std::fabs(uv);
        }
        // A clamp brings no value further from another.
        if (c.limit > 0) {
          if (c.activation != Activation::kSwigluStep) gate = std::min<double>(gate, c.limit);
          up = std::clamp<double>(up, -c.limit, c.limit);
        }
        if (c.activation == Activation::kSwigluOai) up += 1;
        const double terms = static_cast<double>(c.width + 3) * kU;
        const double eg = terms * gate_abs;
        const double eu = terms * up_abs;
        const double inner = c.gated ? gate : up;
        const double ei = c.gated ? eg : eu;
        const double a = Act(c.activation, inner, c.limit, c.alpha);
        const double ea = Slope(c.activation, inner) * ei + 16 * kU * (std::fabs(a) + 0.3 * std::fabs(inner));
        h[i] = c.gated ? a * up : a;
        eh[i] = c.gated ? ea * (std::fabs(up) + eu) + std::fabs(a) * eu + 2 * kU * std::fabs(h[i]) : ea;
        eh[i] += round * (std::fabs(h[i]) + eh[i]);
      }
      for (int64_t o = 0; o < c.width; ++o) {
        double sum = c.bias ? in.down_bias[g.expert * c.width + o] : 0;
        double abs = std::fabs(sum), error = 0;
        for (int64_t i = 0; i < c.intermediate; ++i) {
          const double w = in.down[g.expert].floats[o * c.intermediate + i];
          sum += w * h[i];
          abs += std::fabs(w * h[i]);
          error += std::fabs(w) * eh[i];
        }
        error += static_cast<double>(c.intermediate + 3) * kU * (abs + error);
        error += out_round * (std::fabs(sum) + error);
        bound[r * c.width + o] = 2 * error + 0x1p-120;
      }
    }
  }
  return bound;
}

std::vector<ExpertsCase> Cases() {
  const DType b = DType::kBF16;
  const DType f = DType::kF32;
  return {{b, b, 4, 64, 48, true, Activation::kSilu, b},
          {b, b, 3, 72, 40, true, Activation::kGeluTanh, f},
          {b, b, 2, 33, 17, false, Activation::kRelu2, b},
          {f, f, 3, 50, 70, true, Activation::kGeluErf, f},
          {f, DType::kF16, 3, 40, 96, true, Activation::kSilu, f},
          {b, b, 1, 16, 1, true, Activation::kSilu, b},
          {f, f, 2, 96, 100, false, Activation::kRelu2, f},
          {f, b, 2, 64, 32, true, Activation::kSilu, f},
          // Clamped, where the limit cuts off a good part of both halves; with biases, in sizes that fill no vector.
          {b, b, 3, 64, 48, true, Activation::kSilu, b, 0.7f},
          {f, f, 2, 33, 17, true, Activation::kSilu, f, 0.5f, 0, true},
          {b, b, 4, 64, 40, true, Activation::kSwigluOai, f, 1.0f, 1.702f, true},
          {f, f, 3, 41, 23, true, Activation::kSwigluOai, f, 0.6f, 1.3f, true},
          {b, b, 2, 48, 96, true, Activation::kSwigluStep, b, 0.4f},
          {f, DType::kF16, 2, 50, 30, true, Activation::kSwigluStep, f, 0.3f, 0, true},
          {f, f, 2, 40, 19, false, Activation::kRelu2, f, 0, 0, true},
          {b, b, 3, 72, 50, true, Activation::kGeluErf, f, 0, 0, true}};
}

TEST(Experts, MatchTheReference) {
  WorkerPool pool(2);
  for (CpuIsa isa : AvailableIsas()) {
    for (const ExpertsCase& c : Cases()) {
      auto cpu = MakeCpu(isa, c.act, &pool);
      auto reference = CreateReferenceBackend(c.act);
      const ExpertsInputs in(c, 11);
      std::vector<int64_t> released;
      auto packed = cpu->PackExperts(in.sources, c.gated, c.weights, [&](int64_t e) { released.push_back(e); });
      EXPECT_EQ(static_cast<int64_t>(released.size()), c.experts);
      auto packed_reference = reference->PackExperts(in.sources, c.gated, c.weights, nullptr);
      for (std::vector<int64_t> counts : {std::vector<int64_t>{1}, {5}, {0, 3}, {14, 1, 30}, {40, 0, 2, 1}}) {
        counts.resize(static_cast<size_t>(c.experts));
        const auto groups = Groups(counts);
        const int64_t rows = groups.empty() ? 0 : groups.back().end;
        Random random(12);
        const Values x = random.Make(c.act, rows * c.width);
        ExpectNear(Cat(CpuIsaName(isa), " width ", c.width, " intermediate ", c.intermediate, " rows ", rows),
                   RunExperts(*cpu, *packed, c, in, x, groups),
                   RunExperts(*reference, *packed_reference, c, in, x, groups), ExpertsBound(in, c, x, groups),
                   c.width);
      }
    }
  }
}

void ExpectSameAloneAndInGroups(const ExpertsCase& c) {
  const ExpertsInputs in(c, 13);
  Random random(14);
  const Values x = random.Make(c.act, 240 * c.width);
  const auto groups = Groups({37, 1, 202});
  for (CpuIsa isa : AvailableIsas()) {
    std::vector<float> want;
    for (int threads : {1, 2, 3}) {
      WorkerPool pool(threads);
      auto cpu = MakeCpu(isa, c.act, &pool);
      auto packed = cpu->PackExperts(in.sources, c.gated, c.weights, nullptr);
      const std::vector<float> got = RunExperts(*cpu, *packed, c, in, x, groups);
      if (threads == 1) want = got;
      ExpectSameBits(Cat(CpuIsaName(isa), " threads ", threads), got, want, c.width);
      for (int64_t row : {0, 20, 36, 37, 38, 100, 239}) {
        const int32_t expert = row < 37 ? 0 : row < 38 ? 1 : 2;
        Values one;
        one.dtype = c.act;
        one.floats.assign(x.floats.begin() + row * c.width, x.floats.begin() + (row + 1) * c.width);
        one = ToValues(c.act, one.floats);
        ExpectSameBits(Cat(CpuIsaName(isa), " row ", row, " alone"),
                       RunExperts(*cpu, *packed, c, in, one, {{expert, 0, 1}}),
                       {want.begin() + row * c.width, want.begin() + (row + 1) * c.width}, c.width);
      }
    }
  }
}

TEST(Experts, ARowAloneHasTheBitsItHasInAGroupWithAnyThreads) {
  for (const ExpertsCase& c :
       {ExpertsCase{DType::kBF16, DType::kBF16, 3, 256, 160, true, Activation::kSilu, DType::kBF16},
        {DType::kBF16, DType::kBF16, 3, 256, 150, true, Activation::kSwigluOai, DType::kBF16, 0.8f, 1.702f, true}}) {
    ExpectSameAloneAndInGroups(c);
  }
}

// An output beyond the range of float16, of a model stored in it, is finite and weighed as it is.
TEST(Experts, OutputsBeyondFloat16) {
  WorkerPool pool(1);
  const Values up = ToValues(DType::kF16, {256.0f});
  const Values down = ToValues(DType::kF16, {2.0f});
  const Values x = ToValues(DType::kF32, {1.0f});
  const ExpertSource source{.up = Source(up, 1, 1), .down = Source(down, 1, 1)};
  const ExpertGroup groups[] = {{0, 0, 1}};
  const std::byte* rows[] = {x.bytes.data()};
  const auto run = [&](Backend& backend) {
    const auto packed = backend.PackExperts({&source, 1}, false, DType::kF16, nullptr);
    float out = 0;
    backend.Experts({.experts = packed.get(),
                     .activation = Activation::kRelu2,
                     .rows = rows,
                     .groups = groups,
                     .out = reinterpret_cast<std::byte*>(&out)});
    EXPECT_EQ(out, 131072.0f) << backend.name();
    const float weight = 0.25f;
    const std::byte* slots[] = {reinterpret_cast<const std::byte*>(&out)};
    float sum = 0;
    backend.Combine({.rows = 1, .top_k = 1, .dim = 1, .slot_rows = slots, .weights = &weight, .out_f32 = &sum});
    EXPECT_EQ(sum, 32768.0f) << backend.name();
  };
  run(*CreateReferenceBackend(DType::kF32));
  for (const CpuIsa isa : AvailableIsas()) run(*MakeCpu(isa, DType::kF32, &pool));
}

}  // namespace
}  // namespace moe::device_test
