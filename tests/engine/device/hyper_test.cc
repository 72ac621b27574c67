// Hyper-connections: what a block reads and how its output is added, against the formulas in double, on every path.
#include <cmath>

#include "parallel/worker_pool.h"
#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kDim = 70;  // more than is worked on at once
constexpr int64_t kStreams = 3;

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Read {
  std::vector<float> out, post, comb;
};

class HyperTest : public testing::Test {
 protected:
  HyperTest() {
    streams_ = random_.Floats(kRows * kStreams * kDim);
    gates_ = random_.Floats(kRows * kStreams * kDim);
    mixes_ = random_.Floats(kRows * kStreams * (kStreams + 2));
    base_ = random_.Floats(kStreams * (kStreams + 2));
    y_ = random_.Floats(kRows * kDim);
  }

  Read Run(Backend& backend, const HyperSpec& spec, bool head) const {
    Read read;
    read.out.resize(kRows * kDim);
    read.post.resize(head ? 0 : kRows * kStreams);
    read.comb.resize(spec.kind == HyperSpec::Kind::kManifold && !head ? kRows * kStreams * kStreams : 0);
    const auto data = [](std::vector<float>& values) { return values.empty() ? nullptr : values.data(); };
    backend.HyperRead({.spec = &spec,
                       .streams = streams_.data(),
                       .mixes = mixes_.data(),
                       .gates = gates_.data(),
                       .base = base_.data(),
                       .scale = scale_.data(),
                       .rows = kRows,
                       .dim = kDim,
                       .out = read.out.data(),
                       .post = data(read.post),
                       .comb = data(read.comb)});
    return read;
  }

  // Σ_i weight(row, i, d) · stream_i.
  template <typename Weight>
  std::vector<float> Mixed(const Weight& weight) const {
    std::vector<float> out;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t d = 0; d < kDim; ++d) {
        double sum = 0;
        for (int64_t i = 0; i < kStreams; ++i) sum += weight(r, i, d) * streams_[(r * kStreams + i) * kDim + d];
        out.push_back(static_cast<float>(sum));
      }
    }
    return out;
  }

  Random random_{3};
  std::vector<float> streams_, gates_, mixes_, base_, y_;
  std::vector<float> scale_ = {0.7f, 1.2f, 1.5f};
};

void ExpectClose(const std::string& what, const std::vector<float>& got, const std::vector<float>& want, int64_t cols) {
  ExpectNear(what, got, want, std::vector<double>(want.size(), 1e-5), cols);
}

TEST_F(HyperTest, ManifoldAndIndependent) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  for (const auto kind : {HyperSpec::Kind::kManifold, HyperSpec::Kind::kIndependent}) {
    const bool manifold = kind == HyperSpec::Kind::kManifold;
    const HyperSpec spec{
        .kind = kind, .streams = kStreams, .norm = {}, .eps = 0.01f, .post_scale = 1.5f, .sinkhorn = 20};
    const auto mix = [&](int64_t r, int64_t i, int64_t part) {
      return static_cast<double>(mixes_[r * spec.mixes() + i]) * scale_[part] + base_[i];
    };
    const Read read = Run(*backend, spec, false);
    ExpectClose("row", read.out, Mixed([&](int64_t r, int64_t i, int64_t) { return Sigmoid(mix(r, i, 0)) + 0.01; }),
                kDim);
    std::vector<float> post;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kStreams; ++i) {
        post.push_back(static_cast<float>(1.5 * Sigmoid(mix(r, kStreams + i, 1)) + (manifold ? 0 : 0.01)));
      }
    }
    ExpectClose("post", read.post, post, kStreams);
  }
}

TEST_F(HyperTest, CombIsDoublyStochastic) {
  const HyperSpec spec{.kind = HyperSpec::Kind::kManifold, .streams = kStreams, .norm = {}, .eps = 0, .sinkhorn = 60};
  const Read read = Run(*CreateReferenceBackend(DType::kF32), spec, false);
  for (int64_t r = 0; r < kRows; ++r) {
    const float* comb = read.comb.data() + r * kStreams * kStreams;
    for (int64_t i = 0; i < kStreams; ++i) {
      double row = 0;
      double column = 0;
      for (int64_t k = 0; k < kStreams; ++k) {
        row += comb[i * kStreams + k];
        column += comb[k * kStreams + i];
      }
      EXPECT_NEAR(row, 1, 1e-4);
      EXPECT_NEAR(column, 1, 1e-5);  // what is normalised last
    }
  }
}

TEST_F(HyperTest, OneRoundOfSinkhorn) {
  const HyperSpec spec{
      .kind = HyperSpec::Kind::kManifold, .streams = kStreams, .norm = {}, .eps = 0.01f, .sinkhorn = 1};
  const Read read = Run(*CreateReferenceBackend(DType::kF32), spec, false);
  double comb[kStreams][kStreams];
  for (int64_t i = 0; i < kStreams; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < kStreams; ++k) {
      const int64_t at = 2 * kStreams + i * kStreams + k;
      comb[i][k] = std::exp(static_cast<double>(mixes_[at]) * scale_[2] + base_[at]);
      sum += comb[i][k];
    }
    for (int64_t k = 0; k < kStreams; ++k) comb[i][k] = comb[i][k] / sum + 0.01;
  }
  for (int64_t k = 0; k < kStreams; ++k) {
    const double sum = comb[0][k] + comb[1][k] + comb[2][k] + 0.01;
    for (int64_t i = 0; i < kStreams; ++i) EXPECT_NEAR(read.comb[i * kStreams + k], comb[i][k] / sum, 1e-5);
  }
}

TEST_F(HyperTest, Gated) {
  const HyperSpec spec{.kind = HyperSpec::Kind::kGated, .streams = kStreams, .norm = {}, .post_scale = 2};
  const Read read = Run(*CreateReferenceBackend(DType::kF32), spec, false);
  ExpectClose("row", read.out, Mixed([&](int64_t r, int64_t i, int64_t d) {
                return Sigmoid(gates_[(r * kStreams + i) * kDim + d]) / kStreams;
              }),
              kDim);
  for (size_t i = 0; i < read.post.size(); ++i) EXPECT_NEAR(read.post[i], 2 * Sigmoid(mixes_[i] / kStreams), 1e-5);
}

TEST_F(HyperTest, WriteAddsToEachStream) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  const std::vector<float> comb = random_.Floats(kRows * kStreams * kStreams);
  for (const bool mixed : {false, true}) {
    std::vector<float> got = streams_;
    backend->HyperWrite({.streams_per_row = kStreams,
                         .y = y_.data(),
                         .post = mixes_.data(),
                         .comb = mixed ? comb.data() : nullptr,
                         .rows = kRows,
                         .dim = kDim,
                         .streams = got.data()});
    std::vector<float> want;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t k = 0; k < kStreams; ++k) {
        for (int64_t d = 0; d < kDim; ++d) {
          double sum = static_cast<double>(mixes_[r * kStreams + k]) * y_[r * kDim + d];
          for (int64_t i = 0; i < kStreams; ++i) {
            const double weight = mixed ? comb[(r * kStreams + i) * kStreams + k] : i == k ? 1 : 0;
            sum += weight * streams_[(r * kStreams + i) * kDim + d];
          }
          want.push_back(static_cast<float>(sum));
        }
      }
    }
    ExpectClose("streams", got, want, kDim);
  }
}

TEST_F(HyperTest, BackendsAndThreadsGiveTheSameBits) {
  WorkerPool pool(3);
  for (const auto kind : {HyperSpec::Kind::kManifold, HyperSpec::Kind::kIndependent, HyperSpec::Kind::kGated}) {
    const HyperSpec spec{.kind = kind, .streams = kStreams, .norm = {}, .eps = 0.01f, .sinkhorn = 7};
    for (const bool head : {false, true}) {
      const Read want = Run(*CreateReferenceBackend(DType::kF32), spec, head);
      const Read got = Run(*MakeCpu(AvailableIsas().front(), DType::kBF16, &pool), spec, head);
      ExpectSameBits("row", got.out, want.out, kDim);
      ExpectSameBits("post", got.post, want.post, kStreams);
      ExpectSameBits("comb", got.comb, want.comb, kStreams);
    }
  }
}

}  // namespace
}  // namespace moe::device_test
