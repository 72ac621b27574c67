// Qkv and Attention of every path against the reference; a slice cut anywhere, any batch and any threads give the same
// bits.
#include <algorithm>
#include <cmath>

#include "tests/engine/device/attention_test_util.h"

namespace moe::device_test {
namespace {

std::vector<AttentionCase> Cases() {
  return {{4, 2, 64, 64, 0}, {6, 6, 32, 32, 0},   {8, 1, 128, 128, 0}, {2, 2, 8, 8, 0},
          {3, 1, 24, 40, 0}, {4, 4, 256, 64, 0},  {16, 4, 64, 64, 0},  {4, 2, 80, 96, 37},
          {2, 1, 13, 7, 5},  {4, 1, 48, 48, 300}, {5, 1, 16, 16, 1}};
}

std::string Name(const AttentionPath& path, DType act, const AttentionCase& c) {
  return Cat(path.name, " ", DTypeName(act), " heads ", c.heads, "/", c.kv_heads, " dims ", c.head_dim, "/",
             c.v_head_dim, " window ", c.window);
}

TEST(Attention, MatchesTheReference) {
  WorkerPool pool(2);
  const int64_t tokens = 270;  // two splits
  const std::vector<SliceOf> parts = {{0, 0, 33}, {1, 0, tokens}};
  for (DType act : {DType::kBF16, DType::kF32}) {
    auto reference = CreateReferenceBackend(act);
    for (const AttentionCase& c : Cases()) {
      const AttentionSpec spec = MakeSpec(c);
      const Inputs in(c, 2, tokens, 42);
      Cache want_cache(c, act, 2, tokens);
      const StepOutput want = RunStep(*reference, spec, in, want_cache, parts);
      // A score errs by (head_dim + 2) u scale Σ|q k|, and Σ|q k| ≤ head_dim here (normal inputs: its mean is 0.64
      // head_dim); a probability by that and 10 u; the output, a mean of v weighted by them over n keys, by
      // (2 e + n u) max|v|, max|v| ≤ 5. Both backends err.
      const double score = static_cast<double>(spec.scale) * static_cast<double>(c.head_dim);
      const double e = static_cast<double>(c.head_dim + 2) * kU * score + 10 * kU;
      for (const AttentionPath& path : AttentionPaths()) {
        // One of both may round its weights.
        const double rounding = path.RoundsWeights(act) ? kUBf16 : 0;
        const double bound = 2 * (2 * e + rounding + static_cast<double>(tokens) * kU) * 5;
        std::vector<double> bounds;
        for (float x : want.out) {
          bounds.push_back(bound + (act == DType::kBF16 ? 2 * kUBf16 * (std::fabs(x) + bound) : 0));
        }
        auto cpu = MakeCpu(path, act, &pool);
        Cache got_cache(c, act, 2, tokens);
        const StepOutput got = RunStep(*cpu, spec, in, got_cache, parts);
        // Without norm and RoPE: roundings only.
        EXPECT_EQ(KeysByToken(got_cache, c), KeysByToken(want_cache, c, true)) << Name(path, act, c);
        EXPECT_EQ(got_cache.v, want_cache.v);
        ExpectNear(Name(path, act, c), got.out, want.out, bounds, c.heads * c.v_head_dim);
      }
    }
  }
}

TEST(Attention, QkNormAndRopeMatchTheReference) {
  WorkerPool pool(2);
  for (const AttentionPath& path : AttentionPaths()) {
    auto cpu = MakeCpu(path, DType::kF32, &pool);
    auto reference = CreateReferenceBackend(DType::kF32);
    for (const AttentionCase& c : {AttentionCase{4, 2, 64, 64, 0}, {3, 1, 24, 40, 0}}) {
      for (QkNorm norm : {QkNorm::kNone, QkNorm::kPerHead, QkNorm::kFullWidth}) {
        for (RopeSpec::Layout layout : {RopeSpec::Layout::kHalfSplit, RopeSpec::Layout::kInterleaved}) {
          for (int64_t rotary : {c.head_dim, c.head_dim / 2 / 2 * 2}) {
            AttentionSpec spec = MakeSpec(c);
            spec.qk_norm = norm;
            spec.rope = RopeSpec{};
            spec.rope->layout = layout;
            spec.rope->rotary_dim = rotary;
            const Inputs in(c, 1, 40, 43);
            Cache got_cache(c, DType::kF32, 1, 40);
            Cache want_cache(c, DType::kF32, 1, 40);
            const StepOutput got = RunStep(*cpu, spec, in, got_cache, {{0, 0, 40}});
            const StepOutput want = RunStep(*reference, spec, in, want_cache, {{0, 0, 40}});
            // Norm: (dim + 10) u of a value (rows_test); a rotation: two products and a sum. Values ≤ 5 · 5 (weight),
            // cos and sin ≤ 5 here.
            const double dim = static_cast<double>(norm == QkNorm::kFullWidth ? c.heads * c.head_dim : c.head_dim);
            const double bound = 2 * (dim + 14) * kU * 25 * 5 * 2;
            ExpectNear(path.name, got.q, want.q, std::vector<double>(got.q.size(), bound), c.heads * c.head_dim);
            const std::vector<float> k = ToFloats(DType::kF32, KeysByToken(got_cache, c));
            ExpectNear(path.name, k, ToFloats(DType::kF32, want_cache.k), std::vector<double>(k.size(), bound),
                       c.head_dim);
          }
        }
      }
    }
  }
}

// The whole prompt at once; cut at `cuts`; and token by token: the same bits for every row.
TEST(Attention, ASliceCutAnywhereGivesTheSameBits) {
  const int64_t tokens = 600;  // three splits
  for (const AttentionPath& path : AttentionPaths()) {
    for (const AttentionCase& c : {AttentionCase{8, 2, 64, 64, 0}, {3, 1, 24, 40, 0}, {4, 2, 64, 64, 100}}) {
      for (DType act : {DType::kBF16, DType::kF32}) {
        WorkerPool pool(2);
        auto cpu = MakeCpu(path, act, &pool);
        const AttentionSpec spec = MakeSpec(c);
        const Inputs in(c, 1, tokens, 44);
        Cache whole_cache(c, act, 1, tokens);
        const std::vector<float> want = RunStep(*cpu, spec, in, whole_cache, {{0, 0, tokens}}).out;
        for (const std::vector<int64_t>& cuts :
             {std::vector<int64_t>{1, 600}, {31, 32, 33, 600}, {100, 257, 300, 599, 600}, {256, 512, 513, 514, 600}}) {
          Cache cache(c, act, 1, tokens);
          std::vector<float> got;
          int64_t first = 0;
          for (int64_t cut : cuts) {
            const std::vector<float> part = RunStep(*cpu, spec, in, cache, {{0, first, cut - first}}).out;
            got.insert(got.end(), part.begin(), part.end());
            first = cut;
          }
          ExpectSameBits(Name(path, act, c), got, want, c.heads * c.v_head_dim);
        }
        Cache cache(c, act, 1, tokens);
        std::vector<float> got;
        for (int64_t t = 0; t < tokens; ++t) {
          const std::vector<float> part = RunStep(*cpu, spec, in, cache, {{0, t, 1}}).out;
          got.insert(got.end(), part.begin(), part.end());
        }
        ExpectSameBits(Name(path, act, c) + " by token", got, want, c.heads * c.v_head_dim);
      }
    }
  }
}

TEST(Attention, BatchAndThreadsChangeNoBit) {
  const AttentionCase c{4, 1, 64, 64, 0};
  const int64_t tokens = 700;
  const AttentionSpec spec = MakeSpec(c);
  const Inputs in(c, 5, tokens, 45);
  for (const AttentionPath& path : AttentionPaths()) {
    std::vector<float> want;
    for (int threads : {1, 2, 3}) {
      WorkerPool pool(threads);
      auto cpu = MakeCpu(path, DType::kBF16, &pool);
      Cache cache(c, DType::kBF16, 5, tokens);
      for (int64_t s = 0; s < 5; ++s) RunStep(*cpu, spec, in, cache, {{s, 0, 600}});
      // Alone: a decoding row whose splits go to several threads.
      const std::vector<float> alone = RunStep(*cpu, spec, in, cache, {{2, 600, 1}}).out;
      if (threads == 1) want = alone;
      ExpectSameBits(Cat(path.name, " threads ", threads), alone, want, 64);
      // In a batch of decoding rows and a chunk.
      const std::vector<float> batch =
          RunStep(*cpu, spec, in, cache, {{0, 600, 1}, {1, 600, 77}, {2, 600, 1}, {3, 600, 1}, {4, 600, 2}}).out;
      const int64_t row = 78;
      const int64_t width = c.heads * c.v_head_dim;
      ExpectSameBits(Cat(path.name, " in a batch"), {batch.begin() + row * width, batch.begin() + (row + 1) * width},
                     want, 64);
    }
  }
}

// A bias by distance, near the ends of its extent and of blocks too: the formula in double, and cut anywhere.
TEST(Attention, RelativeBias) {
  const int64_t tokens = 140;
  const AttentionCase c{4, 2, 16, 16, 0};
  for (const int64_t extent : {1, 7, 32, 33, 65, 500}) {
    AttentionSpec spec = MakeSpec(c);
    spec.relative_bias = RelativeBiasSpec{.dim = 3, .extent = extent};
    const Inputs in(c, 1, tokens, 47);
    Random random(48);
    const std::vector<float> x = random.Floats(tokens * c.heads * 3);
    const std::vector<float> by_distance = random.Floats(3 * extent);
    std::vector<float> turned(static_cast<size_t>(3 * (extent + 2 * kKvBlockTokens)));
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t d = 0; d < extent; ++d) {
        turned[r * (extent + 2 * kKvBlockTokens) + kKvBlockTokens + extent - 1 - d] = by_distance[r * extent + d];
      }
    }
    const auto run = [&](Backend& backend, Cache& cache, int64_t first, int64_t count) {
      AttentionSpec plain = spec;
      plain.relative_bias.reset();
      const std::vector<float> q = RunStep(backend, plain, in, cache, {{0, first, count}}).q;
      const Values rounded = ToValues(DType::kF32, q);
      std::vector<std::byte> out(static_cast<size_t>(count * c.heads * c.v_head_dim) * 4);
      backend.Attention({.spec = &spec,
                         .q = rounded.bytes.data(),
                         .relative = x.data() + first * c.heads * 3,
                         .relative_stride = c.heads * 3,
                         .relative_bias = turned.data(),
                         .slices = Slices(cache, {{0, first, count}}),
                         .kv = cache.layer,
                         .out_act = out.data()});
      return ToFloats(DType::kF32, out);
    };
    std::vector<float> want;
    for (int64_t p = 0; p < tokens; ++p) {
      for (int64_t h = 0; h < c.heads; ++h) {
        const float* q = in.qkv.data() + p * in.width + h * c.head_dim;
        std::vector<double> sum(static_cast<size_t>(c.v_head_dim));
        double total = 0;
        for (int64_t j = 0; j <= p; ++j) {
          const float* k = in.qkv.data() + j * in.width + (c.heads + h / 2) * c.head_dim;
          const float* v = k + c.kv_heads * c.head_dim;
          double score = 0;
          for (int64_t d = 0; d < c.head_dim; ++d) score += static_cast<double>(q[d]) * k[d] * spec.scale;
          for (int64_t r = 0; r < 3 && p - j < extent; ++r) {
            score += static_cast<double>(x[(p * c.heads + h) * 3 + r]) * by_distance[r * extent + p - j];
          }
          total += std::exp(score);
          for (int64_t d = 0; d < c.v_head_dim; ++d) sum[d] += std::exp(score) * v[d];
        }
        for (const double s : sum) want.push_back(static_cast<float>(s / total));
      }
    }
    const std::vector<double> bounds(want.size(), 2e-5);
    auto reference = CreateReferenceBackend(DType::kF32);
    Cache reference_cache(c, DType::kF32, 1, tokens);
    ExpectNear(Cat("reference, extent ", extent), run(*reference, reference_cache, 0, tokens), want, bounds, 64);
    for (const AttentionPath& path : AttentionPaths()) {
      WorkerPool pool(2);
      auto cpu = MakeCpu(path, DType::kF32, &pool);
      Cache cache(c, DType::kF32, 1, tokens);
      const std::vector<float> whole = run(*cpu, cache, 0, tokens);
      ExpectNear(Cat(path.name, ", extent ", extent), whole, want, bounds, 64);
      std::vector<float> parts;
      for (int64_t first = 0; first < tokens; first += 27) {
        const std::vector<float> part = run(*cpu, cache, first, std::min<int64_t>(27, tokens - first));
        parts.insert(parts.end(), part.begin(), part.end());
      }
      ExpectSameBits(path.name, parts, whole, 64);
    }
  }
}

// The query's factor multiplies the capped scores, not the query.
TEST(Attention, ScaleOfCappedScores) {
  const AttentionCase c{4, 2, 16, 16, 0};
  const int64_t tokens = 270;
  AttentionSpec spec = MakeSpec(c);
  spec.logit_cap = 1.5f;
  spec.query_scale = {.kind = PositionScale::Kind::kLogAbove, .beta = 1 / std::log(8.0), .period = 8};
  spec.query_scale_after_cap = true;
  const Inputs in(c, 1, tokens, 47);
  auto reference = CreateReferenceBackend(DType::kF32);
  Cache want_cache(c, DType::kF32, 1, tokens);
  const StepOutput want = RunStep(*reference, spec, in, want_cache, {{0, 0, tokens}});
  AttentionSpec before = spec;
  before.query_scale_after_cap = false;
  Cache other_cache(c, DType::kF32, 1, tokens);
  EXPECT_NE(RunStep(*reference, before, in, other_cache, {{0, 0, tokens}}).out, want.out);
  // As in MatchesTheReference, with a factor of up to log 269 / log 8 and a few more roundings of tanh.
  const double score = 2.7 * (static_cast<double>(spec.scale) * 16 * 18 + 20 * 1.5) * kU;
  const std::vector<double> bounds(want.out.size(), 2 * (2 * score + static_cast<double>(tokens) * kU) * 5);
  WorkerPool pool(2);
  for (const AttentionPath& path : AttentionPaths()) {
    auto cpu = MakeCpu(path, DType::kF32, &pool);
    Cache cache(c, DType::kF32, 1, tokens);
    const StepOutput got = RunStep(*cpu, spec, in, cache, {{0, 0, tokens}});
    EXPECT_EQ(got.q, want.q);
    ExpectNear(Name(path, DType::kF32, c), got.out, want.out, bounds, c.heads * c.v_head_dim);
    // A slice at a time gives the same bits.
    Cache cut_cache(c, DType::kF32, 1, tokens);
    RunStep(*cpu, spec, in, cut_cache, {{0, 0, 101}});
    const StepOutput rest = RunStep(*cpu, spec, in, cut_cache, {{0, 101, tokens - 101}});
    EXPECT_EQ(rest.out, std::vector<float>(got.out.begin() + 101 * c.heads * c.v_head_dim, got.out.end()));
  }
}

// A later position's NaN must not reach an earlier row of the same pass.
TEST(Attention, NanReachesOnlyRowsThatSeeIt) {
  const AttentionCase c{2, 1, 32, 32, 0};
  const AttentionSpec spec = MakeSpec(c);
  Inputs in(c, 1, 64, 46);
  for (const AttentionPath& path : AttentionPaths()) {
    WorkerPool pool(2);
    auto cpu = MakeCpu(path, DType::kBF16, &pool);
    Cache cache(c, DType::kBF16, 1, 64);
    const std::vector<float> want = RunStep(*cpu, spec, in, cache, {{0, 0, 64}}).out;
    Inputs broken = in;
    for (int64_t i = c.heads * c.head_dim; i < in.width; ++i) broken.qkv[40 * in.width + i] = std::nanf("");
    Cache other(c, DType::kBF16, 1, 64);
    const std::vector<float> got = RunStep(*cpu, spec, broken, other, {{0, 0, 64}}).out;
    const int64_t width = c.heads * c.v_head_dim;
    ExpectSameBits(path.name, {got.begin(), got.begin() + 40 * width}, {want.begin(), want.begin() + 40 * width},
                   width);
    EXPECT_TRUE(std::isnan(got[40 * width]));
  }
}

}  // namespace
}  // namespace moe::device_test
