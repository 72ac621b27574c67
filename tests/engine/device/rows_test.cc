// Embed, Norm, Round, Combine, AddRows and LogitStats of every path against the reference.
#include <cmath>
#include <limits>

#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

// Runs `body(isa, act, cpu, reference)` for each path and activation dtype.
template <typename Body>
void ForEachPath(const Body& body) {
  WorkerPool pool(2);
  for (CpuIsa isa : AvailableIsas()) {
    for (DType act : {DType::kBF16, DType::kF32}) {
      auto cpu = MakeCpu(isa, act, &pool);
      auto reference = CreateReferenceBackend(act);
      body(CpuIsaName(isa), act, *cpu, *reference);
    }
  }
}

TEST(Rows, EmbedIsExact) {
  ForEachPath([](const char* isa, DType, Backend& cpu, Backend& reference) {
    Random random(21);
    for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (int64_t dim : {1, 15, 16, 40, 129}) {
        const Values table = random.Make(dtype, 30 * dim);
        const std::vector<int32_t> ids = {3, 0, 29, 3, 7};
        std::vector<float> got(ids.size() * static_cast<size_t>(dim)), want(got.size());
        EmbedOp op{Source(table, 30, dim), ids, 1.5f, got.data()};
        cpu.Embed(op);
        op.out = want.data();
        reference.Embed(op);
        ExpectSameBits(isa, got, want, dim);
        // Columns apart: row 2 of a [dim, 30] table.
        if (dim <= 30) {
          op.table.row_stride = 1;
          op.table.col_stride = dim;
          op.ids = std::span(ids).last(1);
          cpu.Embed({op.table, op.ids, 1.0f, got.data()});
          reference.Embed({op.table, op.ids, 1.0f, want.data()});
          ExpectSameBits(isa, got, want, dim);
        }
      }
    }
  });
}

TEST(Rows, Norm) {
  ForEachPath([](const char* isa, DType act, Backend& cpu, Backend& reference) {
    Random random(22);
    for (NormKind kind : {NormKind::kRms, NormKind::kRmsOffset, NormKind::kLayer}) {
      for (int64_t dim : {1, 8, 17, 64, 100, 1024}) {
        const int64_t rows = 7;
        const int64_t stride = dim + 3;
        const std::vector<float> x = random.Floats(rows * stride);
        const std::vector<float> weight = random.Floats(dim);
        const std::vector<float> bias = random.Floats(dim);
        std::vector<float> got(rows * dim), want(got.size());
        std::vector<std::byte> got_act(got.size() * DTypeSize(act)), want_act(got_act.size());
        NormOp op;
        op.x = x.data();
        op.rows = rows;
        op.dim = dim;
        op.stride = stride;
        op.spec = {kind, 1e-5f, kind == NormKind::kLayer};
        op.weight = weight.data();
        op.bias = kind == NormKind::kLayer ? bias.data() : nullptr;
        op.out_f32 = got.data();
        op.out_act = got_act.data();
        cpu.Norm(op);
        op.out_f32 = want.data();
        op.out_act = want_act.data();
        reference.Norm(op);
        // The scale errs by (dim + 6) u at most, the mean by (dim + 1) u of the mean absolute value (all ≤ 6 here, and
        // scaled by at most 1/√eps for one element); a value by three roundings more.
        std::vector<double> bound(got.size()), act_bound(got.size());
        for (int64_t r = 0; r < rows; ++r) {
          double mean = 0, abs = 0, square = 0;
          for (int64_t i = 0; i < dim; ++i) {
            mean += x[r * stride + i];
            abs += std::fabs(x[r * stride + i]);
          }
          mean = kind == NormKind::kLayer ? mean / static_cast<double>(dim) : 0;
          for (int64_t i = 0; i < dim; ++i) square += std::pow(x[r * stride + i] - mean, 2);
          const double scale = 1 / std::sqrt(square / static_cast<double>(dim) + 1e-5);
          const double mean_error =
              kind == NormKind::kLayer ? static_cast<double>(dim + 1) * kU * abs / static_cast<double>(dim) : 0;
          for (int64_t i = 0; i < dim; ++i) {
            const double w = std::fabs(kind == NormKind::kRmsOffset ? 1.0 + weight[i] : weight[i]);
            const double value = std::fabs((x[r * stride + i] - mean) * scale);
            // An error of the mean moves the numerator, and the variance to second order.
            const double error = static_cast<double>(dim + 10) * kU * value + 4 * mean_error * scale * (1 + value);
            bound[r * dim + i] = 2 * (error * w + 2 * kU * (value * w + (op.bias ? std::fabs(bias[i]) : 0)));
            act_bound[r * dim + i] =
                bound[r * dim + i] + (act == DType::kBF16 ? 2 * kUBf16 * (std::fabs(want[r * dim + i]) + 1e-6) : 0);
          }
        }
        const std::string what = Cat(isa, " kind ", static_cast<int>(kind), " dim ", dim);
        ExpectNear(what, got, want, bound, dim);
        ExpectNear(what, ToFloats(act, got_act), ToFloats(act, want_act), act_bound, dim);
        // The rounded output is the rounding of the other one.
        ExpectSameBits(what, ToFloats(act, got_act), ToValues(act, got).floats, dim);
      }
    }
  });
}

TEST(Rows, RoundIsExact) {
  ForEachPath([](const char* isa, DType act, Backend& cpu, Backend& reference) {
    Random random(23);
    std::vector<float> x = random.Floats(3 * 50);
    x[0] = std::numeric_limits<float>::infinity();
    x[1] = -0.0f;
    x[2] = 3.4e38f;  // overflows to infinity
    x[3] = 1e-41f;
    x[4] = std::nanf("");
    x[5] = 1.00390625f;  // half-way: to even
    x[6] = 1.01171875f;
    std::vector<std::byte> got(3 * 37 * DTypeSize(act)), want(got.size());
    cpu.Round({.x = x.data(), .rows = 3, .dim = 37, .stride = 50, .out_act = got.data()});
    reference.Round({.x = x.data(), .rows = 3, .dim = 37, .stride = 50, .out_act = want.data()});
    EXPECT_EQ(got, want) << isa;
  });
}

TEST(Rows, Combine) {
  ForEachPath([](const char* isa, DType act, Backend& cpu, Backend& reference) {
    Random random(24);
    for (int64_t dim : {5, 16, 100}) {
      for (int64_t k : {1, 4, 9}) {
        const int64_t rows = 6;
        const Values slots = random.Make(act, rows * k * dim);
        const std::vector<float> weights = random.Floats(rows * k);
        std::vector<const std::byte*> pointers;
        for (int64_t i = 0; i < rows * k; ++i) pointers.push_back(slots.at((rows * k - 1 - i) * dim));
        const std::vector<float> old = random.Floats(rows * dim);
        std::vector<float> got = old, want = old;
        std::vector<std::byte> got_act(got.size() * DTypeSize(act)), want_act(got_act.size());
        CombineOp op;
        op.rows = rows;
        op.top_k = k;
        op.dim = dim;
        op.slot_dtype = act;
        op.slot_rows = pointers;
        op.weights = weights.data();
        op.scale = 2.5f;
        op.out_f32 = got.data();
        cpu.Combine(op);
        op.out_f32 = want.data();
        reference.Combine(op);
        std::vector<double> bound(got.size()), act_bound(got.size());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < dim; ++i) {
            double sum = std::fabs(old[r * dim + i]);
            for (int64_t s = 0; s < k; ++s) {
              const int64_t slot = rows * k - 1 - (r * k + s);
              sum += 2.5 * std::fabs(weights[r * k + s] * slots.floats[slot * dim + i]);
            }
            bound[r * dim + i] = 2 * static_cast<double>(k + 3) * kU * sum;
            act_bound[r * dim + i] = bound[r * dim + i] + (act == DType::kBF16 ? 2 * kUBf16 * sum : 0);
          }
        }
        ExpectNear(isa, got, want, bound, dim);
        op.out_f32 = nullptr;
        op.out_act = got_act.data();
        cpu.Combine(op);
        op.out_act = want_act.data();
        reference.Combine(op);
        ExpectNear(isa, ToFloats(act, got_act), ToFloats(act, want_act), act_bound, dim);
      }
    }
  });
}

TEST(Rows, AddRows) {
  ForEachPath([](const char* isa, DType, Backend& cpu, Backend& reference) {
    Random random(25);
    const int64_t rows = 5;
    const int64_t dim = 77;
    const std::vector<float> src = random.Floats(rows * dim);
    const std::vector<float> old = random.Floats(rows * dim);
    const std::vector<float> gate = random.Floats(rows, 3.0f);
    for (int mode = 0; mode < 4; ++mode) {
      std::vector<float> got = old, want = old;
      AddRowsOp op{.dst = got.data(),
                   .src = src.data(),
                   .gate = mode == 0 ? nullptr : gate.data(),
                   .sigmoid_gate = mode == 2,
                   .rows = rows,
                   .dim = dim};
      if (mode == 3) {
        op.skip = 0.75f;
        op.scale = -0.5f;
      }
      cpu.AddRows(op);
      op.dst = want.data();
      reference.AddRows(op);
      std::vector<double> bound(got.size());
      for (size_t i = 0; i < bound.size(); ++i) {
        // The gate within 8 u of itself, a product, a sum; twice.
        const double g = mode == 0 ? 1 : mode == 1 ? std::fabs(gate[i / dim]) : 1 / (1 + std::exp(-gate[i / dim]));
        bound[i] = 2 * kU * (10 * g * std::fabs(src[i]) + std::fabs(old[i]) + g * std::fabs(src[i]));
      }
      ExpectNear(isa, got, want, bound, dim);
    }
  });
}

struct Stats {
  std::vector<int32_t> argmax;
  std::vector<float> max, lse;
};

Stats RunStats(Backend& backend, const std::vector<float>& logits, int64_t rows, int64_t vocab, int64_t stride) {
  Stats s{std::vector<int32_t>(rows), std::vector<float>(rows), std::vector<float>(rows)};
  backend.LogitStats({logits.data(), rows, vocab, stride, s.argmax.data(), s.max.data(), s.lse.data()});
  return s;
}

TEST(Rows, LogitStats) {
  ForEachPath([](const char* isa, DType, Backend& cpu, Backend& reference) {
    Random random(26);
    for (int64_t vocab : {1, 2, 15, 16, 17, 100, 3001}) {
      const int64_t rows = 5;
      const int64_t stride = vocab + 5;
      std::vector<float> logits = random.Floats(rows * stride, 4.0f);
      // The same largest value twice: the lower id wins.
      if (vocab > 2) logits[stride + vocab / 2] = logits[stride + vocab - 1] = 50.0f;
      if (vocab > 2) logits[2 * stride + 1] = -std::numeric_limits<float>::infinity();
      if (vocab > 2) logits[3 * stride] = std::nanf("");
      const Stats got = RunStats(cpu, logits, rows, vocab, stride);
      const Stats want = RunStats(reference, logits, rows, vocab, stride);
      EXPECT_EQ(got.argmax, want.argmax) << isa << " vocabulary " << vocab;
      ExpectSameBits(isa, got.max, want.max, 1);
      for (int64_t r = 0; r < rows; ++r) {
        if (std::isnan(want.lse[r])) {
          EXPECT_TRUE(std::isnan(got.lse[r]));
          continue;
        }
        // Σ exp within (vocab / 64 + 8 + 4) u of itself (16 lanes × 4 chains), its logarithm, one sum.
        const double bound = (static_cast<double>(vocab) / 64 + 16) * kU + 4 * kU * std::fabs(want.lse[r]);
        EXPECT_NEAR(got.lse[r], want.lse[r], bound) << isa << " vocabulary " << vocab << " row " << r;
      }
    }
  });
}

TEST(Rows, LogitStatsOfMaskedRows) {
  ForEachPath([](const char* isa, DType, Backend& cpu, Backend&) {
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<float> logits(40, -inf);
    logits[20 + 7] = 1.5f;  // row 0 is all masked, row 1 has one value
    const Stats s = RunStats(cpu, logits, 2, 20, 20);
    EXPECT_EQ(s.argmax[0], 0) << isa;
    EXPECT_EQ(s.lse[0], -inf) << isa;
    EXPECT_EQ(s.argmax[1], 7) << isa;
    EXPECT_EQ(s.lse[1], 1.5f) << isa;
  });
}

TEST(Rows, NoRowsIsNothing) {
  ForEachPath([](const char*, DType, Backend& cpu, Backend&) {
    cpu.Embed({});
    cpu.Norm({});
    cpu.Round({});
    cpu.Combine({});
    cpu.AddRows({});
    cpu.LogitStats({});
  });
}

// exp, through one-slot softmax sums: LogitStats over two values gives log(1 + e^-d); silu through Experts is bounded
// in experts_test. Here: every thousandth float32 in the range a softmax meets, within 2 ulp.
TEST(Rows, ExpIsWithinTwoUlp) {
  WorkerPool pool(1);
  for (CpuIsa isa : AvailableIsas()) {
    auto cpu = MakeCpu(isa, DType::kF32, &pool);
    RouterSpec spec;  // softmax, weights not normalised: p = e^(x - max) / Σ
    std::vector<float> weights(2);
    std::vector<int32_t> ids(2);
    double worst = 0;
    for (float x = -87.0f; x < -17.0f; x += 0.0137f) {  // Σ = 1 exactly: the second term is below u
      const float logits[2] = {0.0f, x};
      RouteOp op;
      op.spec = &spec;
      op.num_experts = 2;
      op.top_k = 2;
      op.logits = logits;
      op.rows = 1;
      op.ids = ids.data();
      op.weights = weights.data();
      cpu->Route(op);
      const double want = std::exp(static_cast<double>(x));
      const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
      worst = std::max(worst, std::fabs(weights[1] - want) / ulp);
    }
    EXPECT_LE(worst, 2.0) << CpuIsaName(isa);
  }
}

}  // namespace
}  // namespace moe::device_test
