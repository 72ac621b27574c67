// Mamba2 of every path against the reference; slices cut anywhere, batches and threads give the same bits and states.
#include <cmath>

#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

Mamba2Spec MakeSpec(int64_t heads, int64_t head_dim, int64_t state, int64_t groups, int64_t kernel) {
  Mamba2Spec s;
  s.num_heads = heads;
  s.head_dim = head_dim;
  s.state_size = state;
  s.num_groups = groups;
  s.conv_kernel = kernel;
  return s;
}

std::vector<Mamba2Spec> Specs() {
  std::vector<Mamba2Spec> specs = {MakeSpec(8, 16, 128, 2, 4), MakeSpec(4, 64, 64, 1, 4), MakeSpec(6, 8, 16, 3, 2),
                                   MakeSpec(4, 10, 32, 2, 4),  MakeSpec(2, 5, 7, 1, 3),   MakeSpec(3, 12, 40, 1, 1)};
  specs[1].dt_min = 0.5f;
  specs[1].dt_max = 0.9f;
  return specs;
}

struct Inputs {
  Mamba2Spec spec;
  int64_t tokens;
  std::vector<float> proj, conv_weight, conv_bias, dt_bias, a_log, d, norm;  // proj: [sequences, tokens, in_proj_rows]
  Inputs(const Mamba2Spec& s, int64_t sequences, int64_t num_tokens) : spec(s), tokens(num_tokens) {
    Random random(51);
    proj = random.Floats(sequences * tokens * s.in_proj_rows());
    conv_weight = random.Floats(s.conv_dim() * s.conv_kernel, 0.5f);
    conv_bias = random.Floats(s.conv_dim(), 0.1f);
    dt_bias = random.Floats(s.num_heads);
    a_log = random.Floats(s.num_heads, 0.5f);
    d = random.Floats(s.num_heads);
    norm = random.Floats(s.inner());
  }
};

struct States {
  std::vector<std::vector<float>> all;  // of each sequence: the convolution's window, then the scan's state
  int64_t window;
  States(const Mamba2Spec& s, int64_t sequences)
      : all(sequences, std::vector<float>(CacheOf(s).state)), window(s.conv_dim() * (s.conv_kernel - 1)) {}
  std::vector<float> conv(size_t i) const { return {all[i].begin(), all[i].begin() + window}; }
  std::vector<float> ssm(size_t i) const { return {all[i].begin() + window, all[i].end()}; }
};

struct SliceOf {
  int64_t sequence, first, count;
};

std::vector<float> RunStep(Backend& backend, const Inputs& in, States& states, const std::vector<SliceOf>& parts) {
  std::vector<float> proj;
  std::vector<MixerSlice> slices;
  int64_t rows = 0;
  const int64_t width = in.spec.in_proj_rows();
  for (const SliceOf& p : parts) {
    const auto begin = in.proj.begin() + (p.sequence * in.tokens + p.first) * width;
    proj.insert(proj.end(), begin, begin + p.count * width);
    MixerSlice s;
    s.row0 = rows;
    s.first_pos = p.first;
    s.count = p.count;
    s.state = states.all[p.sequence].data();
    slices.push_back(s);
    rows += p.count;
  }
  const DType act = backend.act_dtype();
  std::vector<std::byte> out(static_cast<size_t>(rows * in.spec.inner()) * DTypeSize(act));
  Mamba2Op op;
  op.spec = &in.spec;
  op.proj = proj.data();
  op.rows = rows;
  op.conv_weight = in.conv_weight.data();
  op.conv_bias = in.conv_bias.data();
  op.dt_bias = in.dt_bias.data();
  op.a_log = in.a_log.data();
  op.d = in.d.data();
  op.norm = in.norm.data();
  op.slices = slices;
  op.out_act = out.data();
  backend.Mamba2(op);
  return ToFloats(act, out);
}

// Relative to the largest magnitude of its kind, one evaluation errs by at most, per position, what its longest chain
// of roundings gives; the recurrence adds the errors of the positions before, damped by decay ≤ 1. Chains: the
// convolution (kernel + 1) and silu 8; dt and decay: dt's softplus 16, times |dt·A| ≤ 12 here, exp 4; a state update 3;
// the sum over the state; the gated norm (group + 12).
double RelativeBound(const Mamba2Spec& s, int64_t tokens) {
  const double conv = static_cast<double>(s.conv_kernel + 9);
  const double step = 2 * conv + 16 * 12 + 4 + 3;
  const double sum = static_cast<double>(s.state_size + 3);
  const double norm = static_cast<double>(s.inner() / s.num_groups + 12);
  return 2 * kU * (static_cast<double>(tokens) * step + sum + conv + norm);
}

double Largest(const std::vector<float>& x) {
  double m = 0;
  for (float v : x) m = std::max(m, std::fabs(static_cast<double>(v)));
  return m;
}

TEST(Mamba2, MatchesTheReference) {
  for (CpuIsa isa : AvailableIsas()) {
    WorkerPool pool(2);
    for (DType act : {DType::kF32, DType::kBF16}) {
      auto cpu = MakeCpu(isa, act, &pool);
      auto reference = CreateReferenceBackend(act);
      for (const Mamba2Spec& spec : Specs()) {
        const int64_t tokens = 40;
        const Inputs in(spec, 2, tokens);
        States got_states(spec, 2), want_states(spec, 2);
        const std::vector<SliceOf> parts = {{0, 0, 40}, {1, 0, 3}};
        const std::vector<float> got = RunStep(*cpu, in, got_states, parts);
        const std::vector<float> want = RunStep(*reference, in, want_states, parts);
        const std::string what = Cat(CpuIsaName(isa), " state ", spec.state_size, " head_dim ", spec.head_dim);
        const double relative = RelativeBound(spec, tokens);
        std::vector<double> bound;
        const double largest = Largest(want);
        for (float x : want) {
          bound.push_back(relative * largest +
                          (act == DType::kBF16 ? 2 * kUBf16 * (std::fabs(x) + relative * largest) : 0));
        }
        ExpectNear(what, got, want, bound, spec.inner());
        for (int s = 0; s < 2; ++s) {
          ExpectSameBits(what, got_states.conv(s), want_states.conv(s), spec.conv_kernel - 1);
          ExpectNear(what, got_states.ssm(s), want_states.ssm(s),
                     std::vector<double>(got_states.ssm(s).size(), relative * Largest(want_states.ssm(s))),
                     spec.state_size);
        }
      }
    }
  }
}

TEST(Mamba2, ASliceCutAnywhereGivesTheSameBits) {
  for (CpuIsa isa : AvailableIsas()) {
    WorkerPool pool(2);
    auto cpu = MakeCpu(isa, DType::kBF16, &pool);
    for (const Mamba2Spec& spec : Specs()) {
      const int64_t tokens = 530;  // more than one pass
      const Inputs in(spec, 1, tokens);
      States want_states(spec, 1);
      const std::vector<float> want = RunStep(*cpu, in, want_states, {{0, 0, tokens}});
      for (const std::vector<int64_t>& cuts :
           {std::vector<int64_t>{1, 2, 3, 530}, {255, 256, 257, 530}, {16, 100, 530}}) {
        States states(spec, 1);
        std::vector<float> got;
        int64_t first = 0;
        for (int64_t cut : cuts) {
          const std::vector<float> part = RunStep(*cpu, in, states, {{0, first, cut - first}});
          got.insert(got.end(), part.begin(), part.end());
          first = cut;
        }
        ExpectSameBits(CpuIsaName(isa), got, want, spec.inner());
        ExpectSameBits(CpuIsaName(isa), states.ssm(0), want_states.ssm(0), spec.state_size);
        ExpectSameBits(CpuIsaName(isa), states.conv(0), want_states.conv(0), spec.conv_kernel - 1);
      }
    }
  }
}

TEST(Mamba2, BatchAndThreadsChangeNoBit) {
  const Mamba2Spec spec = MakeSpec(8, 16, 128, 2, 4);
  const Inputs in(spec, 4, 60);
  for (CpuIsa isa : AvailableIsas()) {
    std::vector<float> want;
    for (int threads : {1, 2, 3}) {
      WorkerPool pool(threads);
      auto cpu = MakeCpu(isa, DType::kBF16, &pool);
      States states(spec, 4);
      const std::vector<float> alone = RunStep(*cpu, in, states, {{2, 0, 50}});
      if (threads == 1) want = alone;
      ExpectSameBits(Cat(CpuIsaName(isa), " threads ", threads), alone, want, spec.inner());
      States others(spec, 4);
      const std::vector<float> batch = RunStep(*cpu, in, others, {{0, 0, 1}, {1, 0, 30}, {2, 0, 50}, {3, 0, 2}});
      ExpectSameBits(Cat(CpuIsaName(isa), " in a batch"),
                     {batch.begin() + 31 * spec.inner(), batch.begin() + 81 * spec.inner()}, want, spec.inner());
      ExpectSameBits(CpuIsaName(isa), others.ssm(2), states.ssm(2), spec.state_size);
    }
  }
}

}  // namespace
}  // namespace moe::device_test
