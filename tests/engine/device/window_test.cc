// Operations that look back through the blocks' tails (Window, Unfold and convolutions behind them), and the row
// operations of routers and residuals with learnt vectors.
#include <cmath>

#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

constexpr int64_t kTokens = 75;  // two blocks and a part
constexpr int64_t kChannels = 5;

// The tails of `blocks` blocks, never-written parts NaN, with a ring in front of the one that is used.
struct Tails {
  std::vector<float> floats;
  KvLayer kv;
  static constexpr int64_t kOffset = 3;
  Tails(int64_t blocks, int64_t window) {
    kv.tail_size = kOffset + window * kChannels;
    floats.assign(static_cast<size_t>(blocks * kv.tail_size), std::nanf(""));
    kv.tail = floats.data();
    kv.num_blocks = blocks;
  }
};

// y[p] = Σ_t w[t] x[p - taps + 1 + t] + x[p], rows before position 0 being `before`; the rows [first, end) of it.
std::vector<float> Convolve(Backend& backend, Tails& tails, const std::vector<int32_t>& blocks,
                            const std::vector<float>& x, const std::vector<float>& w, const float* before, int64_t taps,
                            int64_t first, int64_t end) {
  std::vector<float> rows(x.begin() + first * kChannels, x.begin() + end * kChannels);
  std::vector<float> window(static_cast<size_t>(kChannels * (taps - 1)));
  MixerSlice slice{.first_pos = first, .count = end - first, .blocks = blocks, .state = window.data()};
  backend.Window({.x = rows.data(),
                  .stride = kChannels,
                  .channels = kChannels,
                  .window = taps - 1,
                  .before = before,
                  .tail_offset = Tails::kOffset,
                  .slices = {&slice, 1},
                  .kv = tails.kv,
                  .out = window.data()});
  backend.Conv({.x = rows.data(),
                .stride = kChannels,
                .channels = kChannels,
                .kernel = taps,
                .weight = w.data(),
                .slices = {&slice, 1},
                .residual = true,
                .out = rows.data(),
                .out_stride = kChannels});
  return rows;
}

TEST(Window, AConvolutionCutAnywhereOrFromASharedPrefix) {
  Random random(1);
  const std::vector<float> before = random.Floats(kChannels);
  for (const int64_t taps : {2, 4, 16}) {
    const std::vector<float> x = random.Floats(kTokens * kChannels);
    const std::vector<float> w = random.Floats(kChannels * taps);
    std::vector<float> want;
    for (int64_t p = 0; p < kTokens; ++p) {
      for (int64_t c = 0; c < kChannels; ++c) {
        float sum = 0;
        for (int64_t t = 0; t < taps; ++t) {
          const int64_t at = p - taps + 1 + t;
          sum += w[c * taps + t] * (at < 0 ? before[c] : x[at * kChannels + c]);
        }
        want.push_back(sum + x[p * kChannels + c]);
      }
    }
    const auto backend = CreateReferenceBackend(DType::kF32);
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{kTokens}, {1, 2, 3, 40, kTokens}, {31, 32, 33, 64, kTokens}, {30, 66, kTokens}}) {
      Tails tails(5, taps - 1);
      const std::vector<int32_t> blocks = {3, 0, 4};
      std::vector<float> got;
      int64_t first = 0;
      for (const int64_t cut : cuts) {
        const auto part = Convolve(*backend, tails, blocks, x, w, before.data(), taps, first, cut);
        got.insert(got.end(), part.begin(), part.end());
        first = cut;
      }
      ExpectSameBits(Cat(taps, " taps"), got, want, kChannels);
      // Another sequence with the first blocks, while the owner's go on.
      for (const int64_t shared : {1, 2}) {
        std::vector<int32_t> own(blocks.begin(), blocks.begin() + shared);
        own.insert(own.end(), {1, 2});
        const int64_t start = shared * kKvBlockTokens;
        const auto rest = Convolve(*backend, tails, own, x, w, before.data(), taps, start, kTokens);
        ExpectSameBits(Cat(taps, " taps from ", start), rest, {want.begin() + start * kChannels, want.end()},
                       kChannels);
      }
    }
  }
}

TEST(Window, WithoutBeforeTheRowsAreZero) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  Tails tails(1, 2);
  const std::vector<float> x(kChannels, 1.0f);
  const std::vector<int32_t> blocks = {0};
  std::vector<float> window(2 * kChannels, 9.0f);
  const MixerSlice slice{.count = 1, .blocks = blocks};
  backend->Window({.x = x.data(),
                   .stride = kChannels,
                   .channels = kChannels,
                   .window = 2,
                   .tail_offset = Tails::kOffset,
                   .slices = {&slice, 1},
                   .kv = tails.kv,
                   .out = window.data()});
  EXPECT_EQ(window, std::vector<float>(2 * kChannels, 0.0f));
}

TEST(Unfold, RowsWithTheirPredecessors) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  // Two channels with a column between the rows; the second slice's past is in its state.
  const std::vector<float> x = {1, 10, 0, 2, 20, 0, 3, 30, 0};
  std::vector<float> past_a = {-2, -1, -20, -10};
  std::vector<float> past_b = {5, 6, 50, 60};
  const MixerSlice slices[] = {{.row0 = 0, .count = 2, .state = past_a.data()},
                               {.row0 = 2, .count = 1, .state = past_b.data()}};
  std::vector<float> out(3 * 2 * 3);
  backend->Unfold({.x = x.data(), .stride = 3, .channels = 2, .taps = 3, .slices = slices, .out = out.data()});
  EXPECT_EQ(out, (std::vector<float>{-2, -1, 1, -20, -10, 10,  //
                                     -1, 1, 2, -10, 10, 20,    //
                                     5, 6, 3, 50, 60, 30}));
}

// One row of two query heads and one K/V head, by hand.
TEST(Cca, MeansLengthsAndDelayedValues) {
  AttentionSpec spec;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = spec.v_head_dim = 2;
  // [q | k | v_delayed | v], two rows.
  const std::vector<float> proj = {1, 3, 5, 7, 3, 1, 40, 4, 0, 0, 0, 0, 0, 0, 50, 5};
  const std::vector<float> conv = {1, 2, -4, 0, 1, 4, 0, 3, 4, 0, 0, 1};
  const std::vector<float> key_scale = {3};
  std::vector<float> before = {30};
  const MixerSlice slice{.first_pos = 9, .count = 2, .state = before.data()};
  std::vector<float> out(2 * 8);
  const auto backend = CreateReferenceBackend(DType::kF32);
  backend->Cca({.spec = &spec,
                .q = proj.data(),
                .k = proj.data() + 4,
                .v = proj.data() + 7,
                .v_delayed = proj.data() + 6,
                .stride = 8,
                .conv = conv.data(),
                .key_scale = key_scale.data(),
                .slices = {&slice, 1},
                .out = out.data()});
  // Means (2, 2) and (4, 4), of them (3, 3): q = (3, 4), (0, 4); k = (4, 7).
  const float root = std::sqrt(2.0f);
  const float k = root * 3 / std::sqrt(65.0f);
  const std::vector<float> want = {root * 0.6f, root * 0.8f, 0,    root, 4 * k, 7 * k,    4, 30,  //
                                   0,           root,        root, 0,    0,     3 * root, 5, 40};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(out[i], want[i], 1e-5) << i;
}

TEST(GroupedGemm, IsAGemmForEachGroup) {
  Random random(2);
  WorkerPool pool(2);
  for (const CpuIsa isa : AvailableIsas()) {
    for (const DType act : {DType::kF32, DType::kBF16}) {
      const auto cpu = MakeCpu(isa, act, &pool);
      std::vector<std::unique_ptr<PackedMatrix>> w;
      for (int e = 0; e < 3; ++e) {
        const Values values = random.Make(act, 20 * 12);
        const WeightSource source = Source(values, 20, 12);
        w.push_back(cpu->Pack({&source, 1}, act));
      }
      const Values a = random.Make(act, 5 * 12);
      const std::vector<int64_t> order = {4, 0, 0, 2, 1};
      const std::vector<ExpertGroup> groups = {{0, 0, 2}, {2, 2, 5}};
      std::vector<const std::byte*> rows;
      for (const int64_t r : order) rows.push_back(a.at(r * 12));
      std::vector<float> got(5 * 20);
      cpu->GroupedGemm({.w = w, .rows = rows, .groups = groups, .out = got.data()});
      for (const ExpertGroup& group : groups) {
        for (int64_t i = group.begin; i < group.end; ++i) {
          std::vector<float> want(20);
          cpu->Gemm({.a = {rows[i], act, 1, 12, 12}, .w = w[group.expert].get(), .out = want.data(), .out_stride = 20});
          ExpectSameBits(CpuIsaName(isa), {got.begin() + i * 20, got.begin() + (i + 1) * 20}, want, 20);
        }
      }
      // The same side by side, two columns between them.
      std::vector<float> apart(3 * 44);
      cpu->GroupedGemm(
          {.w = w, .rows = rows, .groups = groups, .out = apart.data(), .group_step = 22, .out_stride = 44});
      for (size_t g = 0; g < groups.size(); ++g) {
        for (int64_t i = groups[g].begin; i < groups[g].end; ++i) {
          const auto at = apart.begin() + static_cast<int64_t>(g) * 22 + (i - groups[g].begin) * 44;
          ExpectSameBits(CpuIsaName(isa), {at, at + 20}, {got.begin() + i * 20, got.begin() + (i + 1) * 20}, 20);
        }
      }
    }
  }
}

TEST(SinkWeights, ShareOneSumAlsoWhereSigmoidsVanish) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  // In the second row every sigmoid is below the smallest float32.
  const std::vector<float> logits = {0, 1, 2, -200, -201, -202};
  const std::vector<float> sinks = {-1, -200};
  const std::vector<int32_t> ids = {2, 0, 0, 1};
  std::vector<float> weights(4);
  std::vector<float> sink_weights(2);
  backend->SinkWeights({.logits = logits.data(),
                        .sink_logits = sinks.data(),
                        .ids = ids.data(),
                        .num_experts = 3,
                        .sinks = 1,
                        .top_k = 2,
                        .rows = 2,
                        .scale = 3,
                        .weights = weights.data(),
                        .sink_weights = sink_weights.data()});
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  const double sum = sigmoid(2) + sigmoid(0) + sigmoid(-1);
  EXPECT_NEAR(weights[0], 3 * sigmoid(2) / sum, 1e-6);
  EXPECT_NEAR(weights[1], 3 * sigmoid(0) / sum, 1e-6);
  EXPECT_NEAR(sink_weights[0], 3 * sigmoid(-1) / sum, 1e-6);
  const double total = 2 + std::exp(-1.0);
  EXPECT_NEAR(weights[2], 3 / total, 1e-6);
  EXPECT_NEAR(weights[3], 3 * std::exp(-1.0) / total, 1e-6);
  EXPECT_NEAR(sink_weights[1], 3 / total, 1e-6);
}

TEST(Elementwise, AffineAndActivate) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  std::vector<float> x = {1, 2, 3, 4};
  const std::vector<float> y = {10, 20, 30, 40};
  const std::vector<float> a = {1, -1}, b = {2, 3}, c = {0, 5}, d = {1, 0.5f};
  backend->Affine({.dst = x.data(),
                   .dst_bias = a.data(),
                   .dst_scale = b.data(),
                   .src = y.data(),
                   .src_bias = c.data(),
                   .src_scale = d.data(),
                   .rows = 2,
                   .dim = 2});
  EXPECT_EQ(x, (std::vector<float>{14, 15.5f, 38, 31.5f}));
  backend->Affine({.dst = x.data(), .dst_bias = a.data(), .rows = 2, .dim = 2});
  EXPECT_EQ(x, (std::vector<float>{15, 14.5f, 39, 30.5f}));
  backend->Affine({.dst = x.data(), .src = y.data(), .src_scale = d.data(), .rows = 2, .dim = 2});
  EXPECT_EQ(x, (std::vector<float>{25, 24.5f, 69, 50.5f}));
  std::vector<float> z = {-1, 0, 2};
  backend->Activate({.activation = Activation::kGeluErf, .x = z.data(), .count = 3});
  EXPECT_NEAR(z[0], -0.158655, 1e-6);
  EXPECT_EQ(z[1], 0);
  EXPECT_NEAR(z[2], 1.954500, 1e-6);
}

}  // namespace
}  // namespace moe::device_test
