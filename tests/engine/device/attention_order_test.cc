// bf16 attention on the paths with bf16 products has exactly the order that its kernel states (attention_bf16-inl.h and
// the path's own file): the scalar models here give the same bits, for prompts and for rows alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/engine/device/attention_test_util.h"

namespace moe::device_test {
namespace {

constexpr int64_t kSplit = 256;
constexpr float kLog2E = 1.44269504088896341f;

float Flush(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
float FlushedFma(float a, float b, float c) {
  return Flush(std::fma(Flush(a), Flush(b), c));
}

// vdpbf16ps over pairs, ascending; `b` has an element every `step`.
float DpSum(const float* a, const float* b, int64_t step, int64_t n) {
  float s = 0;
  for (int64_t i = 0; i < n; i += 2) {
    const bool odd = i + 1 < n;
    s = FlushedFma(a[i], b[i * step], FlushedFma(odd ? a[i + 1] : 0, odd ? b[(i + 1) * step] : 0, s));
  }
  return s;
}

// TDPBF16PS: 32 at a time, even and odd ones in two chains.
float AmxSum(const float* a, const float* b, int64_t step, int64_t n) {
  float total = 0;
  for (int64_t first = 0; first < n; first += 32) {
    float chain[2] = {0, 0};
    for (int64_t i = first; i < std::min(n, first + 32); ++i) {
      chain[i % 2] = FlushedFma(a[i], b[i * step], chain[i % 2]);
    }
    total = Flush(total + Flush(chain[0] + chain[1]));
  }
  return total;
}

// The weight before its rounding.
float Weight(float x) {
  x = std::max(-160.0f, x);
  const float n = std::nearbyint(x);
  const float r = x - n;
  float p = 9.5828566e-3f;
  for (const float c : {5.5906446e-2f, 2.4024099e-1f, 6.9312419e-1f, 1.0f}) p = std::fma(p, r, c);
  return std::ldexp(p, static_cast<int>(n));
}

// Exp of math-inl.h.
float Exp(float x) {
  x = std::min(89.0f, std::max(-104.0f, x));
  const float n = std::nearbyint(x * 1.44269504088896341f);
  float r = std::fma(-n, 0.693145751953125f, x);
  r = std::fma(-n, 1.42860682030941723e-6f, r);
  float p = 1.98412698e-4f;
  for (const float c : {1.38888889e-3f, 8.33333333e-3f, 4.16666667e-2f, 1.66666667e-1f, 0.5f}) p = std::fma(p, r, c);
  p = std::fma(p, r * r, r) + 1.0f;
  return std::ldexp(p, static_cast<int>(n));
}

float Sum16(std::vector<float> lanes) {
  for (size_t n = 8; n > 0; n /= 2) {
    for (size_t i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  }
  return lanes[0];
}

using SumFn = float (*)(const float*, const float*, int64_t, int64_t);

// One row of one head. q: [head_dim]; k, v: rows of [width] floats; keys [first, last] are visible.
std::vector<float> Row(SumFn sum, const AttentionSpec& spec, const float* q, const float* k, const float* v,
                       int64_t width, int64_t first, int64_t last) {
  const float factor = spec.scale * kLog2E;
  std::vector<float> total(static_cast<size_t>(spec.v_head_dim));
  float total_m = 0, total_l = 0;
  for (int64_t split = first / kSplit * kSplit; split <= last; split += kSplit) {
    const int64_t lo = std::max(first, split);
    const int64_t hi = std::min(last + 1, split + kSplit);
    std::vector<float> sums(kSplit), p(kSplit);
    float max = -std::numeric_limits<float>::infinity();
    for (int64_t j = lo; j < hi; ++j) {
      sums[j - split] = sum(q, k + j * width, 1, spec.head_dim);
      max = std::max(max, sums[j - split]);
    }
    const float m = max * spec.scale;
    for (int64_t j = lo; j < hi; ++j) {
      p[j - split] = Flush(Weight(std::fma(sums[j - split], factor, -(m * kLog2E))));
    }
    p = ToValues(DType::kBF16, p).floats;
    std::vector<float> lanes(16);
    for (int64_t j = 0; j < kSplit; j += 2) {
      float& lane = lanes[static_cast<size_t>(j / 2 % 16)];
      lane = FlushedFma(p[j], 1, FlushedFma(p[j + 1], 1, lane));
    }
    const float l = Sum16(lanes);
    std::vector<float> o;
    std::vector<float> values(kSplit);
    for (int64_t d = 0; d < spec.v_head_dim; ++d) {
      for (int64_t j = 0; j < kSplit; ++j)
        values[j] = j + split >= lo && j + split < hi ? v[(j + split) * width + d] : 0;
      o.push_back(sum(p.data(), values.data(), 1, kSplit));
    }
    if (total_l == 0) {
      total_m = m;
      total_l = l;
      total = o;
      continue;
    }
    const float top = std::max(m, total_m);
    const float a = Exp(total_m - top);
    const float b = Exp(m - top);
    total_m = top;
    total_l = std::fma(l, b, total_l * a);
    for (size_t d = 0; d < o.size(); ++d) total[d] = std::fma(o[d], b, total[d] * a);
  }
  for (float& x : total) x /= total_l;
  return ToValues(DType::kBF16, total).floats;
}

void Check(const AttentionPath& path, SumFn sum, float scale) {
  const int64_t tokens = 290;  // two splits
  WorkerPool pool(2);
  const auto cpu = MakeCpu(path, DType::kBF16, &pool);
  for (const AttentionCase& c : {AttentionCase{4, 2, 64, 64, 0}, {3, 1, 13, 9, 0}, {5, 1, 40, 48, 70}}) {
    AttentionSpec spec = MakeSpec(c);
    spec.scale *= scale;
    const Inputs in(c, 1, tokens, 55);
    Cache cache(c, DType::kBF16, 1, tokens);
    const std::vector<float> got = RunStep(*cpu, spec, in, cache, {{0, 0, tokens}}).out;
    const std::vector<float> alone = RunStep(*cpu, spec, in, cache, {{0, tokens - 1, 1}}).out;
    const std::vector<float> x = ToValues(DType::kBF16, in.qkv).floats;
    std::vector<float> want;
    for (int64_t row = 0; row < tokens; ++row) {
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t kv = h / (c.heads / c.kv_heads);
        const float* k = x.data() + c.heads * c.head_dim + kv * c.head_dim;
        const float* v = x.data() + (c.heads + c.kv_heads) * c.head_dim + kv * c.v_head_dim;
        const int64_t first = c.window > 0 ? std::max<int64_t>(0, row - c.window + 1) : 0;
        const std::vector<float> out =
            Row(sum, spec, x.data() + row * in.width + h * c.head_dim, k, v, in.width, first, row);
        want.insert(want.end(), out.begin(), out.end());
      }
    }
    const int64_t width = c.heads * c.v_head_dim;
    ExpectSameBits(path.name, got, want, width);
    ExpectSameBits(path.name + " alone", alone, {want.end() - width, want.end()}, width);
  }
}

TEST(AttentionOrder, IsWhatTheKernelsState) {
  bool any = false;
  for (const AttentionPath& path : AttentionPaths()) {
    if (!path.RoundsWeights(DType::kBF16)) continue;
    any = true;
    const bool tiles = path.amx_model || path.isa == CpuIsa::kAmx;
    Check(path, tiles ? AmxSum : DpSum, 1);
    Check(path, tiles ? AmxSum : DpSum, 30);  // weights down to nothing
  }
  if (!any) GTEST_SKIP() << "this processor has no bf16 products";
}

}  // namespace
}  // namespace moe::device_test
