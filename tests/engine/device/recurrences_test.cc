// Convolution, gated delta rule, Mamba-1 and lightning attention against numbers that transformers (Ring's form of
// lightning: its formula in PyTorch) gives for the same inputs; and what the numerics contract asks of them: slices cut
// anywhere, batches, threads and backends give the same bits and states.
#include <cmath>
#include <functional>
#include <tuple>

#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

// The inputs of the numbers below: sin(seed + 1.7 i) · scale.
std::vector<float> Wave(int64_t n, double seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(std::sin(seed + 1.7 * static_cast<double>(i))));
  return values;
}

// One operation over `rows` rows of given inputs, writing `width` values a row. `run` calls it for some slices of them.
struct Case {
  std::string name;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t state = 0;
  std::function<std::vector<float>(Backend&, std::span<const MixerSlice>)> run;
};

struct Result {
  std::vector<float> out;
  std::vector<float> state;
};

// The rows one after another in calls that end at `cuts`.
Result RunInParts(Backend& backend, const Case& test, const std::vector<int64_t>& cuts) {
  Result result;
  result.state.assign(static_cast<size_t>(test.state), 0.0f);
  int64_t first = 0;
  for (const int64_t cut : cuts) {
    const MixerSlice slice{.row0 = first, .first_pos = first, .count = cut - first, .state = result.state.data()};
    const std::vector<float> out = test.run(backend, {&slice, 1});
    result.out.insert(result.out.end(), out.begin() + first * test.width, out.begin() + cut * test.width);
    first = cut;
  }
  return result;
}

void ExpectSame(const std::string& what, const Result& got, const Result& want, int64_t width) {
  ExpectSameBits(what, got.out, want.out, width);
  ExpectSameBits(what + ", state", got.state, want.state, 1);
}

// What no cut, batch, thread or backend may change.
void ExpectInvariant(const Case& test, DType act) {
  const auto reference = CreateReferenceBackend(act);
  const Result want = RunInParts(*reference, test, {test.rows});
  std::vector<int64_t> singly;
  for (int64_t row = 1; row <= test.rows; ++row) singly.push_back(row);
  for (const int threads : {1, 3}) {
    for (const CpuIsa isa : AvailableIsas()) {
      WorkerPool pool(threads);
      const auto cpu = MakeCpu(isa, act, &pool);
      const std::string what = Cat(test.name, " ", CpuIsaName(isa), " threads ", threads);
      ExpectSame(what, RunInParts(*cpu, test, {test.rows}), want, test.width);
      ExpectSame(what + " one by one", RunInParts(*cpu, test, singly), want, test.width);
      ExpectSame(what + " in two", RunInParts(*cpu, test, {2, test.rows}), want, test.width);
      // The rows from the second on as a sequence of their own, alone and beside another.
      Result alone, beside, other;
      for (Result* result : {&alone, &beside, &other}) result->state.assign(static_cast<size_t>(test.state), 0.0f);
      MixerSlice tail{.row0 = 1, .count = test.rows - 1, .state = alone.state.data()};
      const auto begin = [&](const std::vector<float>& rows) { return rows.begin() + test.width; };
      const std::vector<float> lone = test.run(*cpu, {&tail, 1});
      alone.out.assign(begin(lone), lone.end());
      tail.state = beside.state.data();
      const MixerSlice batch[] = {{.row0 = 0, .count = 1, .state = other.state.data()}, tail};
      const std::vector<float> both = test.run(*cpu, batch);
      beside.out.assign(begin(both), both.end());
      ExpectSame(what + " in a batch", beside, alone, test.width);
    }
  }
}

void ExpectValues(const Case& test, const std::vector<float>& want) {
  const auto reference = CreateReferenceBackend(DType::kF32);
  const Result got = RunInParts(*reference, test, {test.rows});
  ExpectNear(test.name, got.out, want, std::vector<double>(want.size(), 1e-5), test.width);
  ExpectInvariant(test, DType::kF32);
}

Case ConvCase(int64_t rows, int64_t channels, int64_t kernel, bool gated) {
  const auto x = Wave(rows * channels, 0.1), weight = Wave(channels * kernel, 0.2), bias = Wave(channels, 0.3);
  const auto in_gate = Wave(rows * channels, 0.4), out_gate = Wave(rows * channels, 0.5);
  Case test{gated ? "gated convolution" : "convolution", rows, channels, channels * (kernel - 1), {}};
  test.run = [=](Backend& backend, std::span<const MixerSlice> slices) {
    std::vector<float> out(static_cast<size_t>(rows * channels));
    std::vector<std::byte> act(out.size() * DTypeSize(backend.act_dtype()));
    ConvOp op{.x = x.data(), .stride = channels, .channels = channels, .kernel = kernel, .weight = weight.data()};
    op.bias = bias.data();
    op.slices = slices;
    op.silu = !gated;
    if (gated) {
      op.in_gate = in_gate.data();
      op.out_gate = out_gate.data();
      op.out_act = act.data();
    } else {
      op.out = out.data();
    }
    backend.Conv(op);
    return gated ? ToFloats(backend.act_dtype(), act) : out;
  };
  return test;
}

TEST(Recurrences, Convolution) {
  ExpectValues(ConvCase(4, 3, 3, false),
               {0.1413815f, 1.283787f, -0.2558139f, 0.5356327f, 1.688187f, 0.1860019f, -0.08230849f, 0.06532888f,
                0.1628475f, -0.2391185f, -0.2075128f, -0.2692171f});
  ExpectValues(ConvCase(4, 3, 3, true), {0.133432f, 1.185751f, 0.2250998f, -0.03565444f, 1.501824f, -0.1150274f,
                                         -0.5544683f, -0.1001773f, -0.02602572f, -0.100054f, -1.236726f, -0.4289901f});
}

// Dimensions that fill no block of channels or vector, more than one block, and kernels of one and of the largest size.
TEST(Recurrences, ConvolutionOfAnyShape) {
  for (const auto& [channels, kernel] : {std::pair<int64_t, int64_t>{150, 4}, {64, 1}, {70, 2}, {5, 16}}) {
    for (const bool gated : {false, true}) ExpectInvariant(ConvCase(19, channels, kernel, gated), DType::kF32);
  }
  ExpectInvariant(ConvCase(9, 70, 3, true), DType::kBF16);
}

TEST(Recurrences, ConvolutionWindowIsOldestFirst) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  const Case test = ConvCase(5, 2, 4, false);
  const auto x = Wave(10, 0.1);
  EXPECT_EQ(RunInParts(*backend, test, {5}).state, (std::vector<float>{x[4], x[6], x[8], x[5], x[7], x[9]}));
  EXPECT_EQ(RunInParts(*backend, test, {2}).state, (std::vector<float>{0, x[0], x[2], 0, x[1], x[3]}));
}

Case DeltaCase(GatedDeltaSpec spec, int64_t rows) {
  spec.conv_kernel = 2;  // its window lies in front of the state and is left alone
  spec.norm = {NormKind::kRms, 1e-5f};
  const bool by_head = spec.decay == GatedDeltaSpec::Decay::kHead;
  if (!by_head) spec.output_gate = GatedDeltaSpec::OutputGate::kSigmoid;
  const int64_t decays = by_head ? spec.num_v_heads : spec.k_dim();
  const auto q = Wave(rows * spec.k_dim(), 1.1), k = Wave(rows * spec.k_dim(), 1.2), v = Wave(rows * spec.v_dim(), 1.3);
  std::vector<float> qkv;
  for (int64_t r = 0; r < rows; ++r) {
    for (const auto& [part, dim] :
         {std::pair<const std::vector<float>*, int64_t>{&q, spec.k_dim()}, {&k, spec.k_dim()}, {&v, spec.v_dim()}}) {
      qkv.insert(qkv.end(), part->begin() + r * dim, part->begin() + (r + 1) * dim);
    }
  }
  const auto beta = Wave(rows * spec.num_v_heads, 1.4), z = Wave(rows * spec.v_dim(), 1.5);
  const auto a_log = Wave(spec.num_v_heads, 1.6), norm = Wave(spec.v_head_dim, 1.7);
  const auto decay = Wave(rows * decays, 1.8), dt_bias = Wave(decays, 1.9);
  Case test{"gated delta", rows, spec.v_dim(), spec.conv_dim() + spec.v_dim() * spec.k_head_dim, {}};
  test.run = [=](Backend& backend, std::span<const MixerSlice> slices) {
    std::vector<std::byte> act(static_cast<size_t>(rows * spec.v_dim()) * DTypeSize(backend.act_dtype()));
    backend.GatedDelta({.spec = &spec,
                        .qkv = qkv.data(),
                        .decay = decay.data(),
                        .beta = beta.data(),
                        .z = z.data(),
                        .decay_stride = decays,
                        .beta_stride = spec.num_v_heads,
                        .z_stride = spec.v_dim(),
                        .rows = rows,
                        .a_log = a_log.data(),
                        .dt_bias = dt_bias.data(),
                        .norm = norm.data(),
                        .slices = slices,
                        .out_act = act.data()});
    return ToFloats(backend.act_dtype(), act);
  };
  return test;
}

GatedDeltaSpec DeltaSpec(GatedDeltaSpec::Decay decay, int64_t k_heads, int64_t v_heads, int64_t k_dim, int64_t v_dim) {
  GatedDeltaSpec spec;
  spec.num_k_heads = k_heads;
  spec.num_v_heads = v_heads;
  spec.k_head_dim = k_dim;
  spec.v_head_dim = v_dim;
  spec.decay = decay;
  return spec;
}

TEST(Recurrences, GatedDelta) {
  using Decay = GatedDeltaSpec::Decay;
  ExpectValues(DeltaCase(DeltaSpec(Decay::kHead, 1, 2, 2, 3), 3),
               {0.864059f, 0.001267972f, -0.3074315f, 0.03450222f, -0.2640391f, -0.1125223f, 0.2943838f, -0.0760583f,
                -0.3620275f, 0.2423775f, -0.03139099f, -0.7656705f, 0.02286329f, -0.1141886f, 0.00470024f, 0.8139297f,
                0.008881391f, -0.2927673f});
  ExpectValues(DeltaCase(DeltaSpec(Decay::kChannel, 2, 2, 2, 3), 3),
               {0.8662288f, -0.02172146f, 0.3129225f, 0.1107469f, -0.2926705f, 0.2068345f, -0.3750871f, -0.1352669f,
                -0.5840397f, -0.3361584f, 0.03362332f, -0.8365371f, 0.2391323f, 0.1147705f, 0.01564039f, 0.8807533f,
                0.05622434f, 0.3013662f});
  ExpectValues(
      DeltaCase(DeltaSpec(Decay::kSafeChannel, 2, 2, 2, 3), 3),
      {0.8662288f, -0.02172146f, 0.3129225f, 0.1107469f, -0.2926705f, 0.2068345f, -0.3765409f, -0.1319074f, -0.5897256f,
       -0.3124463f, 0.0605373f, -0.825354f, 0.2251713f, 0.1152861f, 0.001169237f, 0.8906778f, 0.03668572f, 0.3189236f});
  ExpectInvariant(DeltaCase(DeltaSpec(Decay::kHead, 2, 6, 20, 37), 13), DType::kBF16);
  ExpectInvariant(DeltaCase(DeltaSpec(Decay::kChannel, 5, 5, 33, 16), 13), DType::kF32);
}

TEST(Recurrences, GatedDeltaLeavesTheWindowAlone) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  const GatedDeltaSpec spec = DeltaSpec(GatedDeltaSpec::Decay::kHead, 1, 2, 2, 3);
  const Result result = RunInParts(*backend, DeltaCase(spec, 3), {3});
  for (int64_t i = 0; i < spec.conv_dim(); ++i) EXPECT_EQ(result.state[static_cast<size_t>(i)], 0.0f);
  EXPECT_NE(result.state.back(), 0.0f);
}

Case Mamba1Case(int64_t rows, int64_t inner, int64_t state_size) {
  Mamba1Spec spec;
  spec.inner = inner;
  spec.state_size = state_size;
  spec.conv_kernel = 3;
  const auto x = Wave(rows * inner, 2.1), z = Wave(rows * inner, 2.2), dt = Wave(rows * inner, 2.3);
  const auto b = Wave(rows * state_size, 2.4), c = Wave(rows * state_size, 2.5);
  const auto a_log = Wave(inner * state_size, 2.6), d = Wave(inner, 2.7);
  Case test{"mamba 1", rows, inner, inner * (2 + state_size), {}};
  test.run = [=](Backend& backend, std::span<const MixerSlice> slices) {
    std::vector<std::byte> act(static_cast<size_t>(rows * inner) * DTypeSize(backend.act_dtype()));
    backend.Mamba1({.spec = &spec,
                    .x = x.data(),
                    .z = z.data(),
                    .z_stride = inner,
                    .dt = dt.data(),
                    .b = b.data(),
                    .c = c.data(),
                    .bc_stride = state_size,
                    .rows = rows,
                    .a_log = a_log.data(),
                    .d = d.data(),
                    .slices = slices,
                    .out_act = act.data()});
    return ToFloats(backend.act_dtype(), act);
  };
  return test;
}

TEST(Recurrences, Mamba1) {
  ExpectValues(Mamba1Case(3, 3, 2), {0.8181076f, -0.07344692f, 0.05049886f, 0.5367851f, 0.01024229f, -0.03582637f,
                                     0.04863699f, 0.2638873f, -0.001566134f});
  ExpectInvariant(Mamba1Case(11, 75, 16), DType::kBF16);
  ExpectInvariant(Mamba1Case(11, 32, 5), DType::kF32);
}

// With `ring`: norms of q and k by head, a rotation of the first pair of dims, a factor of q, two groups in the norm.
Case LightningCase(int64_t rows, int64_t heads, int64_t dim, bool ring) {
  const int64_t width = heads * dim;
  LightningSpec spec;
  spec.num_heads = heads;
  spec.head_dim = dim;
  for (int64_t h = 0; h < heads; ++h) spec.slopes.push_back(std::exp2(-2.0 * static_cast<double>(h + 1)));
  spec.silu_qkv = !ring;
  spec.norm = {NormKind::kRms, 1e-6f};
  if (ring) {
    spec.query_scale = 0.5f;
    spec.qk_norm = QkNorm::kPerHead;
    spec.qk_norm_spec = spec.norm;
    spec.norm.groups = 2;
    spec.rope = RopeSpec{.rotary_dim = 2, .inv_freq = {0.5}};
  }
  const auto qkv = Wave(rows * 3 * width, 3.1), gate = Wave(rows * width, 3.2), norm = Wave(width, 3.3);
  const auto q_norm = Wave(dim, 3.4), k_norm = Wave(dim, 3.5);
  std::vector<float> cos, sin;
  for (int64_t r = 0; r < rows; ++r) {
    cos.push_back(std::cos(0.5f * static_cast<float>(r)));
    sin.push_back(std::sin(0.5f * static_cast<float>(r)));
  }
  Case test{ring ? "Ring's lightning" : "lightning", rows, width, width * dim, {}};
  test.run = [=](Backend& backend, std::span<const MixerSlice> slices) {
    std::vector<std::byte> act(static_cast<size_t>(rows * width) * DTypeSize(backend.act_dtype()));
    backend.Lightning({.spec = &spec,
                       .qkv = qkv.data(),
                       .gate = gate.data(),
                       .qkv_stride = 3 * width,
                       .gate_stride = width,
                       .rows = rows,
                       .q_norm = q_norm.data(),
                       .k_norm = k_norm.data(),
                       .norm = norm.data(),
                       .cos = cos.data(),
                       .sin = sin.data(),
                       .slices = slices,
                       .out_act = act.data()});
    return ToFloats(backend.act_dtype(), act);
  };
  return test;
}

TEST(Recurrences, Lightning) {
  ExpectValues(
      LightningCase(3, 2, 4, false),
      {0.04163298f,  -0.1911367f, 0.2515431f,  -0.3052021f, 0.1517443f,  -0.4510975f, 0.3425683f,  -0.2685181f,
       -0.06277417f, 0.2771894f,  -0.2822634f, 0.4734826f,  -0.1297158f, 0.406797f,   -0.2525201f, 0.248846f,
       0.03533919f,  -0.3607563f, 0.2551599f,  -0.1612666f, 0.1983567f,  -0.8959883f, 0.3133454f,  -0.1565926f});
  ExpectValues(LightningCase(3, 2, 4, true),
               {0.09192076f,  -0.1924884f, 0.2361741f, -0.6063197f, 0.175289f,   -0.2664464f, 0.2462478f,  -0.4115137f,
                -0.05600675f, 0.2811361f,  -0.304492f, 0.4346519f,  -0.2224049f, 0.0609351f,  -0.743516f,  0.09533734f,
                0.05850552f,  -0.4166178f, 0.2874395f, -0.2476066f, -0.1693033f, 0.6185331f,  -0.1742957f, 0.1764584f});
  ExpectInvariant(LightningCase(11, 6, 21, false), DType::kBF16);
  ExpectInvariant(LightningCase(11, 4, 10, true), DType::kF32);
}

}  // namespace
}  // namespace moe::device_test
