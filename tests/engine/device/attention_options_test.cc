// Every option of Qkv and Attention: sinks, soft-capped scores, chunks, windows, selections and factors of the query in
// Attention against its definition in double; clips, norms before and after RoPE, norms and factors of values and
// shared K/V in Qkv against the reference; and that cuts, batches and threads change no bit of any of them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/engine/device/attention_test_util.h"

namespace moe::device_test {
namespace {

struct Option {
  std::string name;
  AttentionCase c;
  std::function<void(AttentionSpec&)> set;
};

// Contexts of three splits; head sizes of whole vectors and not.
std::vector<Option> Options() {
  const AttentionCase even{4, 2, 16, 16, 0};
  const AttentionCase odd{3, 1, 13, 9, 0};
  const PositionScale log{.kind = PositionScale::Kind::kLog, .beta = 0.1, .period = 50, .offset = 1};
  return {{"sinks", even, [](AttentionSpec& s) { s.sinks = true; }},
          {"sinks, odd sizes", odd, [](AttentionSpec& s) { s.sinks = true; }},
          {"sinks and window", even,
           [](AttentionSpec& s) {
             s.sinks = true;
             s.window = 37;
           }},
          {"cap", even, [](AttentionSpec& s) { s.logit_cap = 1.5f; }},
          {"sinks, cap and window across splits", odd,
           [](AttentionSpec& s) {
             s.sinks = true;
             s.logit_cap = 3.0f;
             s.window = 300;
           }},
          {"chunk", even, [](AttentionSpec& s) { s.chunk = 48; }},
          {"chunk of one block", odd, [](AttentionSpec& s) { s.chunk = 32; }},
          {"chunk across splits", even, [](AttentionSpec& s) { s.chunk = 290; }},
          {"chunk, window and sinks", even,
           [](AttentionSpec& s) {
             s.chunk = 100;
             s.window = 60;
             s.sinks = true;
           }},
          {"window of one", odd, [](AttentionSpec& s) { s.window = 1; }},
          {"another scale", even, [](AttentionSpec& s) { s.scale = 1.0f; }},
          {"temperature", even, [log](AttentionSpec& s) { s.query_scale = log; }},
          {"temperature of capped scores", odd, [log](AttentionSpec& s) {
             s.query_scale = log;
             s.query_scale.beta = 2;
             s.logit_cap = 1.0f;
             s.query_scale_after_cap = true;
             s.sinks = true;
           }}};
}

AttentionSpec SpecOf(const Option& option) {
  AttentionSpec spec = MakeSpec(option.c);
  option.set(spec);
  return spec;
}

bool Sees(const AttentionSpec& spec, int64_t p, int64_t j) {
  return j <= p && (spec.window == 0 || p - j < spec.window) && (spec.chunk == 0 || p / spec.chunk == j / spec.chunk);
}

// Row p's output by the definition, and what one evaluation in float32 may be off by.
//   A score: (d + 4) u of Σ|q k|, and where it is capped 8 u of the cap more; both grow with a factor behind the cap.
//   A share of the softmax: what its score is off by, 12 u of exponentials and 2 u a block and split for their merging.
//   The output, a mean of values with these shares over n keys: twice that and n u of the mean of |v|.
//   Weights rounded to bf16: their rounding, in the sum and in the total.
struct Exact {
  std::vector<float> out;
  std::vector<double> bound;
  std::vector<double> rounded_bound;
};
Exact Attend(const AttentionSpec& spec, const Inputs& in, const std::vector<float>& q, DType act, int64_t tokens,
             const KeySelection* selection = nullptr) {
  const int64_t q_dim = spec.num_heads * spec.head_dim;
  const Values rounded = ToValues(act, in.qkv);
  Exact exact;
  for (int64_t p = 0; p < tokens; ++p) {
    const double factor = spec.query_scale_after_cap ? PositionScaleAt(spec.query_scale, p) : 1;
    for (int64_t h = 0; h < spec.num_heads; ++h) {
      const int64_t kv = h / (spec.num_heads / spec.num_kv_heads);
      const float* query = q.data() + p * q_dim + h * spec.head_dim;
      std::vector<int64_t> keys;
      for (int64_t j = 0; j <= p; ++j) {
        bool chosen = selection == nullptr;
        for (int64_t i = 0; !chosen && i < selection->width; ++i) {
          chosen = selection->positions[p * selection->width + i] == j;
        }
        if (chosen && Sees(spec, p, j)) keys.push_back(j);
      }
      std::vector<double> score;
      double max = spec.sinks ? in.sinks[h] : -std::numeric_limits<double>::infinity();
      double score_error = 0;
      for (const int64_t j : keys) {
        const float* k = rounded.floats.data() + j * in.width + q_dim + kv * spec.head_dim;
        double dot = 0, abs = 0;
        for (int64_t d = 0; d < spec.head_dim; ++d) {
          dot += static_cast<double>(query[d]) * k[d];
          abs += std::fabs(static_cast<double>(query[d]) * k[d]);
        }
        double s = dot * spec.scale;
        double error = static_cast<double>(spec.head_dim + 4) * kU * abs * spec.scale;
        if (spec.logit_cap > 0) {
          s = spec.logit_cap * std::tanh(s / spec.logit_cap);
          error += 8 * kU * spec.logit_cap;
        }
        score.push_back(s * factor);
        score_error = std::max(score_error, error * std::fabs(factor) + 2 * kU * std::fabs(s * factor));
        max = std::max(max, s * factor);
      }
      double total = spec.sinks ? std::exp(in.sinks[h] - max) : 0;
      std::vector<double> sum(static_cast<size_t>(spec.v_head_dim)), sum_abs(sum.size());
      for (size_t i = 0; i < keys.size(); ++i) {
        const double e = std::exp(score[i] - max);
        total += e;
        const float* v = rounded.floats.data() + keys[i] * in.width + q_dim + spec.num_kv_heads * spec.head_dim +
                         kv * spec.v_head_dim;
        for (int64_t d = 0; d < spec.v_head_dim; ++d) {
          sum[d] += e * v[d];
          sum_abs[d] += e * std::fabs(v[d]);
        }
      }
      const auto n = static_cast<double>(keys.size());
      const double share = score_error + (12 + 2 * (n / 32 + 3)) * kU;
      for (int64_t d = 0; d < spec.v_head_dim; ++d) {
        const double value = keys.empty() ? 0 : sum[d] / total;
        const double error = keys.empty() ? 0 : (2 * share + n * kU) * sum_abs[d] / total;
        const auto bound = [&](double e) {
          return e + kU * std::fabs(value) + (act == DType::kBF16 ? kUBf16 * (std::fabs(value) + e) : 0);
        };
        exact.out.push_back(static_cast<float>(value));
        exact.bound.push_back(bound(error));
        exact.rounded_bound.push_back(bound(keys.empty() ? 0 : error + 2 * kUBf16 * sum_abs[d] / total));
      }
    }
  }
  return exact;
}

TEST(AttentionOptions, MatchTheirDefinition) {
  WorkerPool pool(2);
  const int64_t tokens = 570;
  for (const Option& option : Options()) {
    const AttentionSpec spec = SpecOf(option);
    const Inputs in(option.c, 1, tokens, 50);
    for (const DType act : {DType::kF32, DType::kBF16}) {
      const auto reference = CreateReferenceBackend(act);
      Cache cache(option.c, act, 1, tokens);
      const StepOutput step = RunStep(*reference, spec, in, cache, {{0, 0, tokens}});
      const Exact want = Attend(spec, in, step.q, act, tokens);
      const int64_t width = option.c.heads * option.c.v_head_dim;
      const std::string name = Cat(option.name, " ", DTypeName(act));
      ExpectNear("reference, " + name, step.out, want.out, want.bound, width);
      for (const AttentionPath& path : AttentionPaths()) {
        Cache cpu_cache(option.c, act, 1, tokens);
        const auto cpu = MakeCpu(path, act, &pool);
        const StepOutput got = RunStep(*cpu, spec, in, cpu_cache, {{0, 0, tokens}});
        ExpectSameBits(name, got.q, step.q, 1);
        ExpectNear(Cat(path.name, ", ", name), got.out, want.out,
                   path.RoundsWeights(act) ? want.rounded_bound : want.bound, width);
      }
    }
  }
}

// A decoding row alone, its splits on several threads, is the row of a batch and of any cut.
TEST(AttentionOptions, CutsBatchesAndThreadsChangeNoBit) {
  const int64_t tokens = 1300;
  for (const Option& option : Options()) {
    const AttentionSpec spec = SpecOf(option);
    const Inputs in(option.c, 2, tokens, 51);
    const int64_t width = option.c.heads * option.c.v_head_dim;
    for (const AttentionPath& path : AttentionPaths()) {
      std::vector<float> want;
      for (const int threads : {1, 3}) {
        WorkerPool pool(threads);
        const auto cpu = MakeCpu(path, DType::kBF16, &pool);
        Cache cache(option.c, DType::kBF16, 2, tokens);
        const std::string name = Cat(path.name, ", ", option.name, ", ", threads, " threads");
        const std::vector<float> whole = RunStep(*cpu, spec, in, cache, {{0, 0, tokens}, {1, 0, 100}}).out;
        if (threads == 1) want = whole;
        ExpectSameBits(name, whole, want, width);
        Cache other(option.c, DType::kBF16, 2, tokens);
        RunStep(*cpu, spec, in, other, {{0, 0, 300}});
        RunStep(*cpu, spec, in, other, {{1, 0, 99}, {0, 300, tokens - 301}});
        const auto row = [&](int64_t p) {
          return std::vector<float>(want.begin() + p * width, want.begin() + (p + 1) * width);
        };
        ExpectSameBits(name + ", alone", RunStep(*cpu, spec, in, other, {{0, tokens - 1, 1}}).out, row(tokens - 1),
                       width);
        std::vector<float> batch = RunStep(*cpu, spec, in, other, {{1, 99, 1}, {0, tokens - 1, 1}}).out;
        batch.erase(batch.begin(), batch.begin() + width);
        ExpectSameBits(name + ", in a batch", batch, row(tokens - 1), width);
      }
    }
  }
}

// A sink that no softmax can see changes no bit; one far above every score takes all of it.
TEST(AttentionOptions, ExtremeSinks) {
  const AttentionCase c{2, 1, 16, 16, 0};
  const int64_t tokens = 300;
  AttentionSpec spec = MakeSpec(c);
  Inputs in(c, 1, tokens, 52);
  WorkerPool pool(2);
  const auto run = [&](Backend& backend) {
    Cache cache(c, DType::kF32, 1, tokens);
    return RunStep(backend, spec, in, cache, {{0, 0, tokens}}).out;
  };
  const auto reference = CreateReferenceBackend(DType::kF32);
  std::vector<std::unique_ptr<Backend>> cpus;
  for (const AttentionPath& path : AttentionPaths()) cpus.push_back(MakeCpu(path, DType::kF32, &pool));
  std::vector<Backend*> backends = {reference.get()};
  for (const auto& cpu : cpus) backends.push_back(cpu.get());
  for (Backend* backend : backends) {
    spec.sinks = false;
    const std::vector<float> without = run(*backend);
    spec.sinks = true;
    for (const float invisible : {-std::numeric_limits<float>::infinity(), -1e30f, -200.0f}) {
      in.sinks.assign(2, invisible);
      ExpectSameBits(Cat(backend->name(), ", sink ", invisible), run(*backend), without, 32);
    }
    in.sinks.assign(2, 1e4f);
    for (const float x : run(*backend)) EXPECT_EQ(x, 0.0f) << backend->name();
  }
}

// Attention behind an indexer: choices of some keys, with everything that plain attention may have too.
TEST(AttentionOptions, Selections) {
  const int64_t tokens = 200;
  const int64_t width = 9;
  Random random(53);
  std::vector<int32_t> positions(static_cast<size_t>(tokens * width), -1);
  for (int64_t p = 0; p < tokens; ++p) {
    std::vector<int32_t> keys;
    for (int32_t j = 0; j <= p; ++j) keys.push_back(j);
    for (size_t i = keys.size(); i > 1; --i) std::swap(keys[i - 1], keys[random.Int(static_cast<int64_t>(i))]);
    keys.resize(std::min<size_t>(keys.size(), static_cast<size_t>(1 + random.Int(width))));
    std::sort(keys.begin(), keys.end());
    std::copy(keys.begin(), keys.end(), positions.begin() + p * width);
  }
  for (const Option& option : Options()) {
    const AttentionSpec spec = SpecOf(option);
    if (spec.query_scale_after_cap) continue;  // validate_spec.cc refuses it here
    const Inputs in(option.c, 1, tokens, 54);
    for (const DType act : {DType::kF32, DType::kBF16}) {
      const auto reference = CreateReferenceBackend(act);
      const KeySelection selection{.positions = positions.data(), .width = width};
      Cache cache(option.c, act, 1, tokens);
      const StepOutput step = RunStep(*reference, spec, in, cache, {{0, 0, tokens}}, &selection);
      const Exact want = Attend(spec, in, step.q, act, tokens, &selection);
      const int64_t row = option.c.heads * option.c.v_head_dim;
      const std::string name = Cat(option.name, " ", DTypeName(act));
      ExpectNear("reference, " + name, step.out, want.out, want.bound, row);
      for (const AttentionPath& path : AttentionPaths()) {
        for (const int threads : {1, 3}) {
          WorkerPool pool(threads);
          const auto cpu = MakeCpu(path, act, &pool);
          Cache cpu_cache(option.c, act, 1, tokens);
          const StepOutput got = RunStep(*cpu, spec, in, cpu_cache, {{0, 0, tokens}}, &selection);
          ExpectSameBits(Cat(path.name, ", ", name), got.out, step.out, row);
          KeySelection last{.positions = positions.data() + (tokens - 1) * width, .width = width};
          const StepOutput alone = RunStep(*cpu, spec, in, cpu_cache, {{0, tokens - 1, 1}}, &last);
          ExpectSameBits(Cat(path.name, ", ", name, ", alone"), alone.out, {step.out.end() - row, step.out.end()}, row);
        }
      }
    }
  }
}

// What Qkv does to q, k and v on their way, one option after another and several at once.
std::vector<Option> QkvOptions() {
  const AttentionCase c{4, 2, 16, 16, 0};
  const AttentionCase odd{3, 1, 13, 9, 0};
  const auto rope = [](AttentionSpec& s) {
    s.rope = RopeSpec{};
    s.rope->rotary_dim = s.head_dim / 2 * 2;
  };
  const auto norm = [](AttentionSpec& s, QkNorm kind, NormSpec spec) {
    s.qk_norm = kind;
    s.qk_norm_spec = spec;
  };
  const NormSpec rms{.eps = 1e-5f};
  return {{"clip", c, [](AttentionSpec& s) { s.clip_qkv = 0.7f; }},
          {"clip before the norm", odd,
           [=](AttentionSpec& s) {
             s.clip_qkv = 0.7f;
             norm(s, QkNorm::kPerHead, rms);
             rope(s);
           }},
          {"clip behind the norm", c,
           [=](AttentionSpec& s) {
             s.clip_qkv = 0.7f;
             s.clip_after_qk_norm = true;
             norm(s, QkNorm::kFullWidth, rms);
             rope(s);
           }},
          {"norm behind RoPE", c,
           [=](AttentionSpec& s) {
             s.qk_norm_after_rope = true;
             norm(s, QkNorm::kPerHead, rms);
             rope(s);
           }},
          {"weightless norm behind RoPE", odd,
           [=](AttentionSpec& s) {
             s.qk_norm_after_rope = true;
             norm(s, QkNorm::kPerHead, {.eps = 1e-5f, .weight = false});
             rope(s);
           }},
          {"offset norm", c,
           [=](AttentionSpec& s) { norm(s, QkNorm::kPerHead, {.kind = NormKind::kRmsOffset, .eps = 1e-5f}); }},
          {"layer norm", odd,
           [=](AttentionSpec& s) { norm(s, QkNorm::kPerHead, {.kind = NormKind::kLayer, .eps = 1e-5f}); }},
          {"norm of values", c, [=](AttentionSpec& s) { s.v_norm = rms; }},
          {"weightless norm and factor of values", odd,
           [](AttentionSpec& s) {
             s.v_norm = {.eps = 1e-5f, .weight = false};
             s.value_scale = 0.707f;
           }},
          {"factor of values", c, [](AttentionSpec& s) { s.value_scale = -2.5f; }},
          {"factors of queries", c,
           [](AttentionSpec& s) {
             s.query_scale = {.kind = PositionScale::Kind::kLog, .beta = 0.5, .period = 16, .offset = 1};
           }},
          {"powers of positions", odd,
           [](AttentionSpec& s) {
             s.query_scale = {.kind = PositionScale::Kind::kPower, .beta = 0.3, .period = 7, .offset = 2};
           }},
          {"factors above a position", c, [=](AttentionSpec& s) {
             s.query_scale = {.kind = PositionScale::Kind::kLogAbove, .beta = 0.3, .period = 20};
             norm(s, QkNorm::kPerHead, rms);
             rope(s);
           }}};
}

TEST(QkvOptions, MatchTheReference) {
  WorkerPool pool(2);
  const int64_t tokens = 70;
  for (const Option& option : QkvOptions()) {
    const AttentionCase& c = option.c;
    const AttentionSpec spec = SpecOf(option);
    const Inputs in(c, 1, tokens, 55);
    const auto reference = CreateReferenceBackend(DType::kF32);
    Cache want_cache(c, DType::kF32, 1, tokens);
    const StepOutput want = RunStep(*reference, spec, in, want_cache, {{0, 0, tokens}});
    // As in attention_test: a norm errs by (dim + 10) u of a value, a rotation by 4 u; values below 5, weights, cosines
    // and sines below 5 (a norm behind them makes the values smaller again), a factor of the query below 3.
    const double dim = static_cast<double>(spec.qk_norm == QkNorm::kFullWidth ? c.heads * c.head_dim : c.head_dim);
    const double bound = 2 * (dim + 14) * kU * 25 * 5 * 2 * 3;
    for (const AttentionPath& path : AttentionPaths()) {
      const std::string name = Cat(path.name, ", ", option.name);
      const auto cpu = MakeCpu(path, DType::kF32, &pool);
      Cache cache(c, DType::kF32, 1, tokens);
      const StepOutput got = RunStep(*cpu, spec, in, cache, {{0, 0, tokens}});
      ExpectNear(name + ", q", got.q, want.q, std::vector<double>(got.q.size(), bound), c.heads * c.head_dim);
      const std::vector<float> k = ToFloats(DType::kF32, KeysByToken(cache, c));
      ExpectNear(name + ", k", k, ToFloats(DType::kF32, want_cache.k), std::vector<double>(k.size(), bound),
                 c.head_dim);
      const std::vector<float> v = ToFloats(DType::kF32, cache.v);
      ExpectNear(name + ", v", v, ToFloats(DType::kF32, want_cache.v), std::vector<double>(v.size(), bound),
                 c.v_head_dim);
      // One token after another.
      Cache cut(c, DType::kF32, 1, tokens);
      std::vector<float> q;
      for (int64_t p = 0; p < tokens; ++p) {
        const StepOutput part = RunStep(*cpu, spec, in, cut, {{0, p, 1}});
        q.insert(q.end(), part.q.begin(), part.q.end());
      }
      ExpectSameBits(name + ", by token", q, got.q, c.heads * c.head_dim);
      EXPECT_EQ(cut.k, cache.k) << name;
      EXPECT_EQ(cut.v, cache.v) << name;
    }
  }
}

// The order of the steps, by hand: one head of two dims, one token.
TEST(QkvOptions, Order) {
  AttentionSpec spec;
  spec.num_heads = spec.num_kv_heads = 1;
  spec.head_dim = spec.v_head_dim = 2;
  spec.rope = RopeSpec{.rotary_dim = 2};
  spec.qk_norm = QkNorm::kPerHead;
  spec.qk_norm_spec = {.eps = 0};
  spec.clip_qkv = 4;
  spec.value_scale = 10;
  const std::vector<float> qkv = {3, -12, 12, 5, 9, 2};
  const std::vector<float> weight = {1, 2}, cos = {0}, sin = {1};  // a quarter turn: (x, y) → (-y, x)
  const std::vector<int32_t> blocks = {0};
  const MixerSlice slice{.count = 1, .blocks = blocks};
  const auto run = [&] {
    std::vector<float> k(2 * kKvBlockTokens), v(k.size()), q(2);
    CreateReferenceBackend(DType::kF32)
        ->Qkv({.spec = &spec,
               .qkv = qkv.data(),
               .stride = 6,
               .rows = 1,
               .q_norm = weight.data(),
               .k_norm = weight.data(),
               .cos = cos.data(),
               .sin = sin.data(),
               .slices = {&slice, 1},
               .kv = {.k = reinterpret_cast<std::byte*>(k.data()),
                      .v = reinterpret_cast<std::byte*>(v.data()),
                      .num_blocks = 1},
               .q_out = reinterpret_cast<std::byte*>(q.data())});
    return std::vector<float>{q[0], q[1], k[0], k[1], v[0], v[1]};
  };
  const auto expect = [&](const std::vector<double>& want, const char* what) {
    const std::vector<float> got = run();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << what << " " << i;
  };
  // (3, -4) and (4, 4) after the clip, of root mean squares 5 / √2 and 4.
  const double root = std::sqrt(2.0);
  expect({8 * root / 5, 3 * root / 5, -2, 1, 40, 20}, "clip, norm, rotation");
  spec.qk_norm_after_rope = true;
  expect({4 * root / 5, 6 * root / 5, -1, 2, 40, 20}, "clip, rotation, norm");
  spec.qk_norm_after_rope = false;
  spec.clip_after_qk_norm = true;
  spec.clip_qkv = 1;
  // (3, -12) / √(153 / 2) and (12, 5) / √(169 / 2), times (1, 2), within ± 1.
  expect({1, 3 / std::sqrt(76.5), -1, 1, 10, 10}, "norm, clip, rotation");
}

// A layer that reads another's cache has queries alone: the cache stays as it is, and so does what is read from it.
TEST(QkvOptions, SharedKeysAndValues) {
  const AttentionCase c{4, 2, 16, 24, 0};
  const int64_t tokens = 300;
  const AttentionSpec owner = MakeSpec(c);
  AttentionSpec reader = MakeSpec(c);
  reader.share_kv_with_layer = 0;
  reader.window = 50;
  AttentionSpec plain = reader;
  plain.share_kv_with_layer = -1;
  const Inputs own(c, 1, tokens, 56);
  const Inputs queries(c, 1, tokens, 57, /*q_only=*/true);
  // The same with K and V of its own that are the owner's.
  Inputs both = own;
  const int64_t q_dim = c.heads * c.head_dim;
  for (int64_t p = 0; p < tokens; ++p) {
    std::copy_n(queries.qkv.begin() + p * q_dim, q_dim, both.qkv.begin() + p * both.width);
  }
  for (const DType act : {DType::kF32, DType::kBF16}) {
    WorkerPool pool(2);
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(CreateReferenceBackend(act));
    for (const AttentionPath& path : AttentionPaths()) backends.push_back(MakeCpu(path, act, &pool));
    for (const auto& backend : backends) {
      Cache cache(c, act, 1, tokens);
      RunStep(*backend, owner, own, cache, {{0, 0, tokens}});
      const Cache before = cache;
      const StepOutput got = RunStep(*backend, reader, queries, cache, {{0, 0, tokens}});
      EXPECT_EQ(cache.k, before.k) << backend->name();
      EXPECT_EQ(cache.v, before.v) << backend->name();
      Cache other(c, act, 1, tokens);
      ExpectSameBits(backend->name(), got.out, RunStep(*backend, plain, both, other, {{0, 0, tokens}}).out,
                     c.heads * c.v_head_dim);
    }
  }
}

}  // namespace
}  // namespace moe::device_test
