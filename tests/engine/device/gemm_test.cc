// Gemm of every path against the reference, within the bound of two float32 sums, and the contract: a row alone has the
// bits it has in a batch, with any number of threads.
#include <cmath>

#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

struct GemmCase {
  DType act;
  DType rows;
  DType weights;
  int64_t m, n, k;
};

struct GemmInputs {
  Values a, w;
  std::vector<float> bias, old;
  explicit GemmInputs(const GemmCase& c, uint32_t seed) {
    Random random(seed);
    a = random.Make(c.rows, c.m * c.k);
    w = random.Make(c.weights, c.n * c.k, 0.5f);
    bias = random.Floats(c.n);
    old = random.Floats(c.m * c.n);
  }
};

std::vector<float> RunGemm(Backend& backend, const GemmInputs& in, const GemmCase& c, const PackedMatrix& w,
                           bool extras) {
  std::vector<float> out = in.old;
  GemmOp op;
  op.a = View(in.a, c.m, c.k);
  op.w = &w;
  op.bias = extras ? in.bias.data() : nullptr;
  op.accumulate = extras;
  op.out = out.data();
  op.out_stride = c.n;
  backend.Gemm(op);
  return out;
}

std::unique_ptr<PackedMatrix> PackOne(Backend& backend, const WeightSource& source, DType format) {
  return backend.Pack({&source, 1}, format);
}

// Each of two sums of K products errs by at most (K + 2) u Σ|a w| (bias and old value included in K + 2 roundings);
// vdpbf16ps and AMX also flush denormals, each at most 2^-126.
std::vector<double> GemmBound(const GemmInputs& in, const GemmCase& c, bool extras) {
  std::vector<double> bound(static_cast<size_t>(c.m * c.n));
  for (int64_t m = 0; m < c.m; ++m) {
    for (int64_t n = 0; n < c.n; ++n) {
      double sum = extras ? std::fabs(in.bias[n]) + std::fabs(in.old[m * c.n + n]) : 0;
      for (int64_t k = 0; k < c.k; ++k) {
        sum += std::fabs(static_cast<double>(in.a.floats[m * c.k + k]) * in.w.floats[n * c.k + k]);
      }
      const double terms = static_cast<double>(c.k + 4);
      bound[m * c.n + n] = 2 * terms * kU * sum + terms * 0x1p-126;
    }
  }
  return bound;
}

std::string Name(CpuIsa isa, const GemmCase& c) {
  return Cat(CpuIsaName(isa), " ", DTypeName(c.rows), "×", DTypeName(c.weights), " ", c.m, "×", c.n, "×", c.k);
}

std::vector<GemmCase> ConformanceCases() {
  std::vector<GemmCase> cases;
  struct Types {
    DType act, rows, weights;
  };
  for (Types t : {Types{DType::kBF16, DType::kBF16, DType::kBF16}, Types{DType::kBF16, DType::kF32, DType::kF32},
                  Types{DType::kF32, DType::kF32, DType::kF32}, Types{DType::kF32, DType::kF32, DType::kF16},
                  Types{DType::kF32, DType::kF32, DType::kBF16}, Types{DType::kBF16, DType::kBF16, DType::kF32}}) {
    for (int64_t m : {0, 1, 2, 3, 5, 7, 12, 13, 17, 33}) cases.push_back({t.act, t.rows, t.weights, m, 50, 72});
    for (int64_t n : {1, 15, 16, 17, 31, 32, 33, 48, 100}) cases.push_back({t.act, t.rows, t.weights, 3, n, 64});
    for (int64_t k : {1, 2, 7, 31, 32, 33, 63, 129, 544}) cases.push_back({t.act, t.rows, t.weights, 4, 40, k});
    cases.push_back({t.act, t.rows, t.weights, 130, 96, 256});
    cases.push_back({t.act, t.rows, t.weights, 9, 64, 1024});
  }
  return cases;
}

TEST(Gemm, MatchesTheReference) {
  WorkerPool pool(2);
  for (CpuIsa isa : AvailableIsas()) {
    for (const GemmCase& c : ConformanceCases()) {
      auto cpu = MakeCpu(isa, c.act, &pool);
      auto reference = CreateReferenceBackend(c.act);
      const GemmInputs in(c, 1);
      const WeightSource source = Source(in.w, c.n, c.k);
      auto w = PackOne(*cpu, source, c.weights);
      auto w_reference = PackOne(*reference, source, c.weights);
      EXPECT_EQ(w->rows(), c.n);
      EXPECT_EQ(w->cols(), c.k);
      for (bool extras : {false, true}) {
        ExpectNear(Name(isa, c), RunGemm(*cpu, in, c, *w, extras), RunGemm(*reference, in, c, *w_reference, extras),
                   GemmBound(in, c, extras), c.n);
      }
    }
  }
}

// Rows of one batch, and each of some rows alone.
TEST(Gemm, ARowAloneHasTheBitsItHasInABatch) {
  WorkerPool pool(2);
  for (CpuIsa isa : AvailableIsas()) {
    for (DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
      const DType act = type == DType::kBF16 ? DType::kBF16 : DType::kF32;
      auto cpu = MakeCpu(isa, act, &pool);
      for (int64_t k : {40, 1024}) {
        const GemmCase all{act, act, type, 300, 80, k};
        const GemmInputs in(all, 2);
        auto w = PackOne(*cpu, Source(in.w, all.n, all.k), type);
        const std::vector<float> want = RunGemm(*cpu, in, all, *w, false);
        for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17, 31, 32, 33, 64, 97, 299}) {
          GemmCase part = all;
          part.m = m;
          GemmInputs some = in;
          const int64_t first = 300 - m;
          const auto row_bytes = static_cast<int64_t>(DTypeSize(act)) * k;
          some.a.bytes.assign(in.a.bytes.begin() + first * row_bytes, in.a.bytes.end());
          some.old.resize(static_cast<size_t>(m * all.n));
          const std::vector<float> got = RunGemm(*cpu, some, part, *w, false);
          ExpectSameBits(Name(isa, part), got, {want.begin() + first * all.n, want.end()}, all.n);
        }
      }
    }
  }
}

TEST(Gemm, ThreadsChangeNoBit) {
  for (CpuIsa isa : AvailableIsas()) {
    for (int64_t m : {1, 5, 200}) {
      const GemmCase c{DType::kBF16, DType::kBF16, DType::kBF16, m, 1100, 520};
      const GemmInputs in(c, 3);
      std::vector<float> want;
      for (int threads : {1, 2, 3}) {
        WorkerPool pool(threads);
        auto cpu = MakeCpu(isa, c.act, &pool);
        auto w = PackOne(*cpu, Source(in.w, c.n, c.k), c.weights);
        const std::vector<float> got = RunGemm(*cpu, in, c, *w, true);
        if (threads == 1) want = got;
        ExpectSameBits(Cat(Name(isa, c), " threads ", threads), got, want, c.n);
      }
    }
  }
}

// Float32 FMA chains are the same on every path that uses them.
TEST(Gemm, Avx2AndAvx512GiveTheSameBits) {
  if (!CpuIsaAvailable(CpuIsa::kAvx512)) GTEST_SKIP() << "this processor has no AVX-512";
  WorkerPool pool(2);
  for (DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    const GemmCase c{DType::kF32, DType::kF32, type, 19, 75, 200};
    const GemmInputs in(c, 4);
    auto avx2 = MakeCpu(CpuIsa::kAvx2, c.act, &pool);
    auto avx512 = MakeCpu(CpuIsa::kAvx512, c.act, &pool);
    auto w = PackOne(*avx2, Source(in.w, c.n, c.k), type);
    ExpectSameBits(DTypeName(type), RunGemm(*avx2, in, c, *w, true), RunGemm(*avx512, in, c, *w, true), c.n);
  }
}

// Several parts, transposed and padded layouts, unaligned data, conversions: the packed matrix is the same.
TEST(Gemm, PacksAnySource) {
  WorkerPool pool(2);
  Random random(5);
  const int64_t n = 45;
  const int64_t k = 70;
  for (CpuIsa isa : AvailableIsas()) {
    for (DType format : {DType::kBF16, DType::kF32, DType::kF16}) {
      const DType act = format == DType::kBF16 ? DType::kBF16 : DType::kF32;
      auto cpu = MakeCpu(isa, act, &pool);
      const Values w = random.Make(format, n * k);
      GemmInputs in(GemmCase{act, act, format, 2, n, k}, 6);
      const GemmCase c{act, act, format, 2, n, k};
      const std::vector<float> want = RunGemm(*cpu, in, c, *PackOne(*cpu, Source(w, n, k), format), false);

      WeightSource top = Source(w, 20, k);
      WeightSource bottom = Source(w, n - 20, k);
      bottom.data = w.at(20 * k);
      const WeightSource parts[] = {top, bottom};
      ExpectSameBits("parts", RunGemm(*cpu, in, c, *cpu->Pack(parts, format), false), want, n);

      // [k, n] on disk, one byte off any alignment.
      std::vector<float> turned(static_cast<size_t>(n * k));
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < k; ++j) turned[j * n + i] = w.floats[i * k + j];
      }
      Values transposed = ToValues(format, turned);
      transposed.bytes.insert(transposed.bytes.begin(), std::byte{0});
      WeightSource source = Source(transposed, n, k);
      source.data += 1;
      source.row_stride = 1;
      source.col_stride = n;
      ExpectSameBits("transposed", RunGemm(*cpu, in, c, *PackOne(*cpu, source, format), false), want, n);

      const Values wide = ToValues(DType::kF32, w.floats);
      ExpectSameBits("widened", RunGemm(*cpu, in, c, *PackOne(*cpu, Source(wide, n, k), format), false), want, n);
    }
  }
}

TEST(Gemm, NanAndInfinityStayInTheirRows) {
  WorkerPool pool(2);
  for (CpuIsa isa : AvailableIsas()) {
    auto cpu = MakeCpu(isa, DType::kBF16, &pool);
    const GemmCase c{DType::kBF16, DType::kBF16, DType::kBF16, 20, 40, 50};
    GemmInputs in(c, 7);
    auto w = PackOne(*cpu, Source(in.w, c.n, c.k), c.weights);
    const std::vector<float> want = RunGemm(*cpu, in, c, *w, false);
    std::vector<float> broken = in.a.floats;
    broken[3 * c.k + 49] = std::nanf("");
    broken[4 * c.k] = INFINITY;
    in.a = ToValues(DType::kBF16, broken);
    const std::vector<float> got = RunGemm(*cpu, in, c, *w, false);
    for (int64_t i = 0; i < c.n; ++i) EXPECT_TRUE(std::isnan(got[3 * c.n + i]));
    for (int64_t r = 5; r < c.m; ++r) {
      for (int64_t i = 0; i < c.n; ++i) EXPECT_EQ(got[r * c.n + i], want[r * c.n + i]);
    }
  }
}

}  // namespace
}  // namespace moe::device_test
