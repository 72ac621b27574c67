// Attention over a window and compressed entries against its definition in double, on every path; cuts and threads
// change no bit.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/device/reference/reference_math.h"
#include "parallel/worker_pool.h"
#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

// Four blocks of the cache in an order of their own, the last one not full.
constexpr int64_t kRows = 109;
const std::vector<int32_t> kBlocks = {2, 0, 3, 1};

struct Switches {
  const char* name;
  int64_t rate;  // 0: the window alone
  bool overlap;
  bool indexer;
};

using Row = std::vector<double>;

Row RmsNorm(Row x, double eps, const float* weight) {
  const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double scale = 1 / std::sqrt(square / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * (weight == nullptr ? 1.0 : weight[i]);
  return x;
}

class CompressedAttentionTest : public testing::TestWithParam<Switches> {
 protected:
  CompressedAttentionTest() {
    spec_.num_heads = 10;  // more than one task's heads
    spec_.head_dim = 6;
    spec_.window = 9;
    spec_.scale = 0.5f;
    spec_.rope = {.layout = RopeSpec::Layout::kInterleaved, .rotary_dim = 4, .inv_freq = {0.7, 0.03}};
    spec_.norm.eps = 1e-3f;
    if (GetParam().rate > 0) spec_.compressor = {.rate = GetParam().rate, .overlap = GetParam().overlap};
    if (GetParam().indexer) spec_.indexer = {.num_heads = 9, .head_dim = 5, .top_k = 6};
    series_ = spec_.series();
    index_dim_ = GetParam().indexer ? spec_.indexer->head_dim : 0;
    plane_width_ = GetParam().rate > 0 ? 2 * series_ * (spec_.head_dim + index_dim_) : 0;
    stride_ = spec_.head_dim + plane_width_ + 1;
    Random random(8);
    kv_ = random.Floats(kRows * stride_);
    q_ = random.Floats(kRows * spec_.num_heads * spec_.head_dim);
    sinks_ = random.Floats(spec_.num_heads);
    kv_norm_ = random.Floats(spec_.head_dim);
    norm_ = random.Floats(spec_.head_dim);
    index_norm_ = random.Floats(std::max<int64_t>(index_dim_, 1));
    bias_ = random.Floats(std::max<int64_t>(GetParam().rate * series_ * spec_.head_dim, 1));
    index_bias_ = random.Floats(std::max<int64_t>(GetParam().rate * series_ * index_dim_, 1));
    index_q_ = random.Floats(std::max<int64_t>(kRows * 9 * index_dim_, 1));
    weights_ = random.Floats(kRows * 9);
    for (int64_t p = 0; p < kRows; ++p) {
      float cos[2], sin[2];
      reference::RotationAt(spec_.rope, p, cos, sin);
      cos_.insert(cos_.end(), cos, cos + 2);
      sin_.insert(sin_.end(), sin, sin + 2);
    }
  }

  std::vector<float> Run(Backend& backend, const std::vector<int64_t>& cuts) const {
    const auto size = static_cast<int64_t>(DTypeSize(backend.act_dtype()));
    const auto tokens = static_cast<int64_t>(kBlocks.size()) * kKvBlockTokens;
    std::vector<std::byte> k(static_cast<size_t>(tokens * spec_.head_dim * size), std::byte{0xff});
    std::vector<float> plane(static_cast<size_t>(tokens * plane_width_), NAN);
    std::vector<std::byte> out(q_.size() * static_cast<size_t>(size));
    std::vector<int32_t> entries(static_cast<size_t>(kRows * 6), -7);
    const KvLayer kv{.k = k.data(),
                     .plane = plane.data(),
                     .plane_width = plane_width_,
                     .num_blocks = static_cast<int64_t>(kBlocks.size())};
    int64_t first = 0;
    for (const int64_t cut : cuts) {
      const MixerSlice slice{.row0 = first, .first_pos = first, .count = cut - first, .blocks = kBlocks};
      backend.CompressedKeys({.spec = &spec_,
                              .kv = kv_.data(),
                              .stride = stride_,
                              .rows = kRows,
                              .kv_norm = kv_norm_.data(),
                              .bias = bias_.data(),
                              .norm = norm_.data(),
                              .index_bias = index_bias_.data(),
                              .index_norm = index_norm_.data(),
                              .cos = cos_.data(),
                              .sin = sin_.data(),
                              .slices = {&slice, 1},
                              .kv_layer = kv});
      if (spec_.indexer) {
        backend.CompressedIndex({.spec = &spec_,
                                 .q = index_q_.data(),
                                 .weights = weights_.data(),
                                 .cos = cos_.data(),
                                 .sin = sin_.data(),
                                 .slices = {&slice, 1},
                                 .kv = kv,
                                 .entries = entries.data()});
      }
      backend.CompressedAttention({.spec = &spec_,
                                   .q = q_.data(),
                                   .sinks = sinks_.data(),
                                   .cos = cos_.data(),
                                   .sin = sin_.data(),
                                   .entries = spec_.indexer ? entries.data() : nullptr,
                                   .slices = {&slice, 1},
                                   .kv = kv,
                                   .out_act = out.data()});
      first = cut;
    }
    return ToFloats(backend.act_dtype(), out);
  }

  // The last dims of x, turned by `sign` times the angles of a position.
  void Rotate(int64_t position, double sign, Row* x) const {
    double* pairs = x->data() + x->size() - 4;
    for (int64_t i = 0; i < 2; ++i) {
      const double angle = sign * static_cast<double>(position) * spec_.rope.inv_freq[static_cast<size_t>(i)];
      const double a = pairs[2 * i];
      const double b = pairs[2 * i + 1];
      pairs[2 * i] = a * std::cos(angle) - b * std::sin(angle);
      pairs[2 * i + 1] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  // Entry w of the compressor whose [kv | gate] begin at `begin` of the inputs.
  Row Entry(int64_t w, int64_t begin, int64_t dim, const std::vector<float>& bias, const float* norm) const {
    const int64_t rate = GetParam().rate;
    Row sum(static_cast<size_t>(dim));
    for (int64_t d = 0; d < dim; ++d) {
      double denominator = 0;
      for (int64_t p = std::max<int64_t>(0, (w - (series_ > 1 ? 1 : 0)) * rate); p < (w + 1) * rate; ++p) {
        const int64_t column = (series_ > 1 && p >= w * rate ? dim : 0) + d;
        const float* in = kv_.data() + p * stride_ + spec_.head_dim + begin;
        const double gate = static_cast<double>(in[series_ * dim + column]) + bias[p % rate * series_ * dim + column];
        denominator += std::exp(gate);
        sum[d] += std::exp(gate) * in[column];
      }
      sum[d] /= denominator;
    }
    Row entry = RmsNorm(sum, spec_.norm.eps, norm);
    Rotate(w * rate, 1, &entry);
    return entry;
  }

  std::vector<int64_t> Chosen(int64_t p) const {
    const int64_t count = GetParam().rate > 0 ? (p + 1) / GetParam().rate : 0;
    std::vector<int64_t> entries(static_cast<size_t>(count));
    std::iota(entries.begin(), entries.end(), 0);
    if (!spec_.indexer || count <= spec_.indexer->top_k) return entries;
    std::vector<std::pair<double, int64_t>> scores;
    for (int64_t w = 0; w < count; ++w) {
      const Row key = Entry(w, 2 * series_ * spec_.head_dim, index_dim_, index_bias_, index_norm_.data());
      double score = 0;
      for (int64_t h = 0; h < spec_.indexer->num_heads; ++h) {
        const float* in = index_q_.data() + (p * spec_.indexer->num_heads + h) * index_dim_;
        Row q(in, in + index_dim_);
        Rotate(p, 1, &q);
        score += weights_[p * spec_.indexer->num_heads + h] *
                 std::max(0.0, std::inner_product(q.begin(), q.end(), key.begin(), 0.0));
      }
      scores.emplace_back(-score, w);
    }
    std::sort(scores.begin(), scores.end());
    entries.clear();
    for (int64_t i = 0; i < spec_.indexer->top_k; ++i) entries.push_back(scores[static_cast<size_t>(i)].second);
    return entries;
  }

  std::vector<float> Expected() const {
    const int64_t dim = spec_.head_dim;
    std::vector<float> out;
    std::vector<Row> keys;
    for (int64_t p = 0; p < kRows; ++p) {
      const float* in = kv_.data() + p * stride_;
      keys.push_back(RmsNorm(Row(in, in + dim), spec_.norm.eps, kv_norm_.data()));
      Rotate(p, 1, &keys.back());
      std::vector<Row> seen(keys.begin() + std::max<int64_t>(0, p + 1 - spec_.window), keys.end());
      for (const int64_t w : Chosen(p)) seen.push_back(Entry(w, 0, dim, bias_, norm_.data()));
      for (int64_t h = 0; h < spec_.num_heads; ++h) {
        const float* head = q_.data() + (p * spec_.num_heads + h) * dim;
        Row q = RmsNorm(Row(head, head + dim), spec_.norm.eps, nullptr);
        Rotate(p, 1, &q);
        Row sum(static_cast<size_t>(dim));
        double denominator = std::exp(static_cast<double>(sinks_[h]));
        for (const Row& key : seen) {
          const double weight = std::exp(std::inner_product(q.begin(), q.end(), key.begin(), 0.0) * spec_.scale);
          denominator += weight;
          for (int64_t d = 0; d < dim; ++d) sum[d] += weight * key[d];
        }
        Rotate(p, -1, &sum);
        for (const double x : sum) out.push_back(static_cast<float>(x / denominator));
      }
    }
    return out;
  }

  CompressedAttentionSpec spec_;
  int64_t series_ = 1, index_dim_ = 0, plane_width_ = 0, stride_ = 0;
  std::vector<float> kv_, q_, sinks_, kv_norm_, norm_, index_norm_, bias_, index_bias_, index_q_, weights_, cos_, sin_;
};

TEST_P(CompressedAttentionTest, IsItsDefinition) {
  const std::vector<float> want = Expected();
  WorkerPool pool(1);
  for (const DType act : {DType::kF32, DType::kBF16}) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(CreateReferenceBackend(act));
    for (const CpuIsa isa : AvailableIsas()) backends.push_back(MakeCpu(isa, act, &pool));
    for (const auto& backend : backends) {
      ExpectNear(backend->name() + " " + DTypeName(act), Run(*backend, {kRows}), want,
                 std::vector<double>(want.size(), act == DType::kF32 ? 2e-5 : 0.05), spec_.head_dim);
    }
  }
}

TEST_P(CompressedAttentionTest, CutsAndThreadsChangeNoBit) {
  WorkerPool one(1);
  WorkerPool three(3);
  for (const DType act : {DType::kF32, DType::kBF16}) {
    for (const CpuIsa isa : AvailableIsas()) {
      const std::vector<float> whole = Run(*MakeCpu(isa, act, &one), {kRows});
      ExpectSameBits("cut", Run(*MakeCpu(isa, act, &three), {1, 2, 33, 64, 70, 71, kRows}), whole, spec_.head_dim);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, CompressedAttentionTest,
                         testing::Values(Switches{"Window", 0, false, false}, Switches{"Heavy", 7, false, false},
                                         Switches{"LongBlocks", 40, false, false},
                                         Switches{"Overlapping", 5, true, false}, Switches{"Sparse", 4, true, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace moe::device_test
