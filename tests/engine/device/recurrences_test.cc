// Convolution, gated delta rule, Mamba-1 and lightning attention against numbers that transformers (Ring's form of
// lightning: its formula in PyTorch) gives for the same inputs; and what the numerics contract asks of them: slices cut
// anywhere, batches, threads and paths give the same bits and states, close to the reference's.
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

// Inputs of the same size without its regularity: any two heads or positions of a wave are much alike.
std::vector<float> Scattered(int64_t n, double seed) {
  Random random(static_cast<uint32_t>(seed * 10));
  std::vector<float> values = random.Floats(n);
  for (float& value : values) value = std::sin(2 * value);
  return values;
}

// One operation over `rows` rows of given inputs, writing `width` values a row. `run` calls it for some slices of them.
struct Case {
  std::string name;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t state = 0;
  std::function<std::vector<float>(Backend&, std::span<const MixerSlice>)> run;
  // Two evaluations differ by at most 2u times so many roundings, relative to the largest value that they work with:
  // an element of the state (or an input, at most 1) for each position before, times `terms` in an output. 0: the state
  // is a copy of inputs.
  double state_roundings = 0;
  double out_roundings = 0;
  double terms = 1;
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

// Every row as the first of a sequence, each with a state of its own.
struct Firsts {
  explicit Firsts(const Case& test) {
    result.state.assign(static_cast<size_t>(test.rows * test.state), 0.0f);
    for (int64_t row = 0; row < test.rows; ++row) {
      slices.push_back({.row0 = row, .count = 1, .state = result.state.data() + row * test.state});
    }
  }
  Result result;
  std::vector<MixerSlice> slices;
};

double Largest(const std::vector<float>& x) {
  double most = 1;
  for (const float v : x) most = std::max(most, std::fabs(static_cast<double>(v)));
  return most;
}

// What the paths compute against the reference.
void ExpectClose(const Case& test, DType act) {
  const auto reference = CreateReferenceBackend(act);
  const Result want = RunInParts(*reference, test, {test.rows});
  const double largest = Largest(want.state);
  const double carried = 2 * kU * static_cast<double>(test.rows) * test.state_roundings * largest;
  const double error = test.terms * (carried + 2 * kU * test.out_roundings * largest);
  std::vector<double> bound;
  for (const float x : want.out)
    bound.push_back(error + (act == DType::kBF16 ? 2 * kUBf16 * (std::fabs(x) + error) : 0));
  for (const CpuIsa isa : AvailableIsas()) {
    WorkerPool pool(2);
    const Result got = RunInParts(*MakeCpu(isa, act, &pool), test, {test.rows});
    const std::string what = Cat(test.name, " ", CpuIsaName(isa));
    ExpectNear(what, got.out, want.out, bound, test.width);
    ExpectNear(what + ", state", got.state, want.state, std::vector<double>(want.state.size(), carried), 1);
  }
}

// What no cut, batch, number of threads or path may change.
void ExpectInvariant(const Case& test, DType act) {
  WorkerPool one(1);
  const Result want = RunInParts(*MakeCpu(CpuIsa::kAvx2, act, &one), test, {test.rows});
  std::vector<int64_t> singly;
  for (int64_t row = 1; row <= test.rows; ++row) singly.push_back(row);
  // Each row as the only one of a sequence.
  Firsts lone(test);
  for (const MixerSlice& slice : lone.slices) {
    const std::vector<float> out = test.run(*MakeCpu(CpuIsa::kAvx2, act, &one), {&slice, 1});
    const auto begin = out.begin() + slice.row0 * test.width;
    lone.result.out.insert(lone.result.out.end(), begin, begin + test.width);
  }
  for (const int threads : {1, 3}) {
    for (const CpuIsa isa : AvailableIsas()) {
      WorkerPool pool(threads);
      const auto cpu = MakeCpu(isa, act, &pool);
      const std::string what = Cat(test.name, " ", CpuIsaName(isa), " threads ", threads);
      ExpectSame(what, RunInParts(*cpu, test, {test.rows}), want, test.width);
      ExpectSame(what + " one by one", RunInParts(*cpu, test, singly), want, test.width);
      ExpectSame(what + " in two", RunInParts(*cpu, test, {2, test.rows}), want, test.width);
      Firsts together(test);
      together.result.out = test.run(*cpu, together.slices);
      ExpectSame(what + " first rows", together.result, lone.result, test.width);
      // The rows from the second on as a sequence of their own, alone and beside another.
      Result alone, beside, other;
      for (Result* result : {&alone, &beside, &other}) result->state.assign(static_cast<size_t>(test.state), 0.0f);
      MixerSlice tail{.row0 = 1, .count = test.rows - 1, .state = alone.state.data()};
      const auto begin = [&](const std::vector<float>& rows) { return rows.begin() + test.width; };
      const std::vector<float> after = test.run(*cpu, {&tail, 1});
      alone.out.assign(begin(after), after.end());
      tail.state = beside.state.data();
      const MixerSlice batch[] = {{.row0 = 0, .count = 1, .state = other.state.data()}, tail};
      const std::vector<float> both = test.run(*cpu, batch);
      beside.out.assign(begin(both), both.end());
      ExpectSame(what + " in a batch", beside, alone, test.width);
    }
  }
}

void ExpectCloseAndInvariant(const Case& test, DType act) {
  ExpectClose(test, act);
  ExpectInvariant(test, act);
}

void ExpectValues(const Case& test, const std::vector<float>& want) {
  WorkerPool pool(2);
  const auto expect = [&](Backend& backend) {
    const Result got = RunInParts(backend, test, {test.rows});
    ExpectNear(Cat(test.name, " ", backend.name()), got.out, want, std::vector<double>(want.size(), 1e-5), test.width);
  };
  expect(*CreateReferenceBackend(DType::kF32));
  for (const CpuIsa isa : AvailableIsas()) expect(*MakeCpu(isa, DType::kF32, &pool));
  ExpectInvariant(test, DType::kF32);
}

Case ConvCase(int64_t rows, int64_t channels, int64_t kernel, bool gated, int64_t dilation = 1) {
  const auto x = Wave(rows * channels, 0.1), weight = Wave(channels * kernel, 0.2), bias = Wave(channels, 0.3);
  const auto in_gate = Wave(rows * channels, 0.4), out_gate = Wave(rows * channels, 0.5);
  Case test{gated ? "gated convolution" : "convolution", rows, channels, channels * (kernel - 1) * dilation, {}};
  test.out_roundings = static_cast<double>(kernel) + 12;
  test.terms = static_cast<double>(kernel) + 1;
  test.run = [=](Backend& backend, std::span<const MixerSlice> slices) {
    std::vector<float> out(static_cast<size_t>(rows * channels));
    std::vector<std::byte> act(out.size() * DTypeSize(backend.act_dtype()));
    ConvOp op{.x = x.data(), .stride = channels, .channels = channels, .kernel = kernel, .weight = weight.data()};
    op.bias = bias.data();
    op.slices = slices;
    op.dilation = dilation;
    op.residual = dilation > 1;
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
    for (const bool gated : {false, true}) ExpectCloseAndInvariant(ConvCase(19, channels, kernel, gated), DType::kF32);
  }
  for (const int64_t kernel : {1, 2, 4}) ExpectCloseAndInvariant(ConvCase(23, 21, kernel, true, 3), DType::kF32);
  ExpectCloseAndInvariant(ConvCase(9, 300, 3, true), DType::kBF16);
}

TEST(Recurrences, ConvolutionWindowIsOldestFirst) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  const Case test = ConvCase(5, 2, 4, false);
  const auto x = Wave(10, 0.1);
  EXPECT_EQ(RunInParts(*backend, test, {5}).state, (std::vector<float>{x[4], x[6], x[8], x[5], x[7], x[9]}));
  EXPECT_EQ(RunInParts(*backend, test, {2}).state, (std::vector<float>{0, x[0], x[2], 0, x[1], x[3]}));
}

// `normed`: with the inputs of the numbers below. Without the norm what is wrong in small outputs shows at its own
// size.
Case DeltaCase(GatedDeltaSpec spec, int64_t rows, bool normed = true) {
  spec.conv_kernel = 2;  // its window lies in front of the state and is left alone
  spec.norm = normed ? NormSpec{NormKind::kRms, 1e-5f} : kNoNorm;
  const auto values = normed ? Wave : Scattered;
  const bool by_head = spec.decay == GatedDeltaSpec::Decay::kHead;
  if (!by_head) spec.output_gate = GatedDeltaSpec::OutputGate::kSigmoid;
  const int64_t decays = by_head ? spec.num_v_heads : spec.k_dim();
  const auto q = values(rows * spec.k_dim(), 1.1), k = values(rows * spec.k_dim(), 1.2),
             v = values(rows * spec.v_dim(), 1.3);
  std::vector<float> qkv;
  for (int64_t r = 0; r < rows; ++r) {
    for (const auto& [part, dim] :
         {std::pair<const std::vector<float>*, int64_t>{&q, spec.k_dim()}, {&k, spec.k_dim()}, {&v, spec.v_dim()}}) {
      qkv.insert(qkv.end(), part->begin() + r * dim, part->begin() + (r + 1) * dim);
    }
  }
  const auto beta = values(rows * spec.num_v_heads, 1.4), z = values(rows * spec.v_dim(), 1.5);
  const auto a_log = values(spec.num_v_heads, 1.6), norm = values(spec.v_head_dim, 1.7);
  const auto decay = values(rows * decays, 1.8), dt_bias = values(decays, 1.9);
  Case test{"gated delta", rows, spec.v_dim(), spec.conv_dim() + spec.v_dim() * spec.k_head_dim, {}};
  // The step is a contraction (|k| = 1, decay and beta below 1). Norms of q and k and the sums over k_dim; the decay's
  // exponent, at most e · softplus(2) < 7, in its last places; |q| = 1 / sqrt(k_dim) makes one term of the output.
  test.state_roundings = 3 * static_cast<double>(spec.k_head_dim) + 7 * 20 + 30;
  test.out_roundings = 3 * static_cast<double>(spec.k_head_dim) + 30;
  test.terms = 2;
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
}

// Heads that are no multiple of a vector, of one pass's columns or cut into columns for threads; one head; more
// positions than a pass.
TEST(Recurrences, GatedDeltaOfAnyShape) {
  using Decay = GatedDeltaSpec::Decay;
  ExpectCloseAndInvariant(DeltaCase(DeltaSpec(Decay::kHead, 2, 6, 20, 37), 13, false), DType::kBF16);
  ExpectCloseAndInvariant(DeltaCase(DeltaSpec(Decay::kChannel, 5, 5, 33, 16), 13, false), DType::kF32);
  ExpectCloseAndInvariant(DeltaCase(DeltaSpec(Decay::kSafeChannel, 2, 2, 16, 80), 9, false), DType::kF32);
  ExpectCloseAndInvariant(DeltaCase(DeltaSpec(Decay::kHead, 1, 2, 128, 128), 21, false), DType::kF32);
  ExpectCloseAndInvariant(DeltaCase(DeltaSpec(Decay::kHead, 1, 1, 40, 200), 9, false), DType::kF32);
  ExpectCloseAndInvariant(DeltaCase(DeltaSpec(Decay::kHead, 1, 1, 5, 3), 6, false), DType::kF32);
  ExpectCloseAndInvariant(DeltaCase(DeltaSpec(Decay::kHead, 1, 2, 16, 32), 300, false), DType::kF32);
  ExpectInvariant(DeltaCase(DeltaSpec(Decay::kHead, 1, 2, 64, 64), 17), DType::kBF16);
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
  // softplus, the exponential of dt A (at most softplus(1) · e < 4 in size), the state's update.
  test.state_roundings = 4 * 20 + 30;
  test.out_roundings = static_cast<double>(state_size) + 30;
  test.terms = static_cast<double>(state_size) + 1;
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
  ExpectCloseAndInvariant(Mamba1Case(11, 75, 16), DType::kBF16);
  for (const auto& [inner, state_size] : {std::pair<int64_t, int64_t>{32, 5}, {150, 16}, {17, 20}, {1, 32}}) {
    ExpectCloseAndInvariant(Mamba1Case(11, inner, state_size), DType::kF32);
  }
}

// With `ring`: norms of q and k by head, a rotation of the first pair of dims, a factor of q, two groups in the norm.
Case LightningCase(int64_t rows, int64_t heads, int64_t dim, bool ring, bool normed = true) {
  const auto values = normed ? Wave : Scattered;
  const int64_t width = heads * dim;
  LightningSpec spec;
  spec.num_heads = heads;
  spec.head_dim = dim;
  for (int64_t h = 0; h < heads; ++h) spec.slopes.push_back(std::exp2(-2.0 * static_cast<double>(h + 1)));
  spec.silu_qkv = !ring;
  spec.norm = normed ? NormSpec{NormKind::kRms, 1e-6f} : kNoNorm;
  if (ring) {
    spec.query_scale = 0.5f;
    spec.qk_norm = QkNorm::kPerHead;
    spec.qk_norm_spec = {NormKind::kRms, 1e-6f};
    if (normed) spec.norm.groups = 2;
    spec.rope = RopeSpec{.rotary_dim = 2, .inv_freq = {0.5}};
  }
  const auto qkv = values(rows * 3 * width, 3.1), gate = values(rows * width, 3.2), norm = values(width, 3.3);
  const auto q_norm = values(dim, 3.4), k_norm = values(dim, 3.5);
  std::vector<float> cos, sin;
  for (int64_t r = 0; r < rows; ++r) {
    cos.push_back(std::cos(0.5f * static_cast<float>(r)));
    sin.push_back(std::sin(0.5f * static_cast<float>(r)));
  }
  Case test{ring ? "Ring's lightning" : "lightning", rows, width, width * dim, {}};
  // Norms of q and k, at most √2 in size by them, silu; the state's update.
  test.state_roundings = 4 * static_cast<double>(dim) + 40;
  test.out_roundings = 5 * static_cast<double>(dim) + 40;
  test.terms = 2 * static_cast<double>(dim);
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
}

TEST(Recurrences, LightningOfAnyShape) {
  ExpectCloseAndInvariant(LightningCase(11, 6, 21, false, false), DType::kBF16);
  ExpectCloseAndInvariant(LightningCase(11, 4, 10, true, false), DType::kF32);
  ExpectCloseAndInvariant(LightningCase(21, 2, 128, false, false), DType::kF32);
  ExpectCloseAndInvariant(LightningCase(19, 1, 100, true, false), DType::kF32);
  ExpectCloseAndInvariant(LightningCase(300, 2, 32, false, false), DType::kF32);
  ExpectInvariant(LightningCase(9, 2, 64, true), DType::kBF16);
}

}  // namespace
}  // namespace moe::device_test
