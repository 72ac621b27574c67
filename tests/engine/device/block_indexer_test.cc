// The scorer of block-sparse attention, and attention over what it chooses, against their formulas in double; any cuts,
// threads and backends choose the same keys.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "engine/device/reference/reference_math.h"
#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

using Pooling = BlockIndexerSpec::Pooling;

constexpr int64_t kRows = 75;
constexpr int64_t kDim = 6;

struct Inputs {
  BlockIndexerSpec spec;
  RopeSpec rope;
  std::vector<float> qk, q_norm, k_norm, cos, sin;
  std::vector<int32_t> blocks = {2, 0, 1};
};

Inputs MakeInputs(const BlockIndexerSpec& spec) {
  Inputs in;
  in.spec = spec;
  in.spec.head_dim = kDim;
  in.spec.norm = {.kind = NormKind::kRmsOffset};
  in.rope = {.rotary_dim = 4, .inv_freq = {1.0, 0.01}};
  Random random(11);
  in.qk = random.Floats(kRows * (spec.num_heads + 1) * kDim);
  in.q_norm = random.Floats(kDim, 0.3f);
  in.k_norm = random.Floats(kDim, 0.3f);
  in.cos.resize(kRows * 2);
  in.sin.resize(kRows * 2);
  for (int64_t p = 0; p < kRows; ++p) reference::RotationAt(in.rope, p, &in.cos[p * 2], &in.sin[p * 2]);
  return in;
}

std::vector<double> NormAndRotate(const Inputs& in, const std::vector<double>& x, const std::vector<float>& weight,
                                  int64_t position) {
  double square = 0;
  for (const double value : x) square += value * value;
  std::vector<double> out;
  for (size_t d = 0; d < x.size(); ++d) {
    out.push_back(x[d] / std::sqrt(square / kDim + in.spec.norm.eps) * (1.0 + weight[d]));
  }
  for (size_t i = 0; i < 2; ++i) {
    const double angle = static_cast<double>(position) * in.rope.inv_freq[i];
    const double a = out[i];
    const double b = out[i + 2];
    out[i] = a * std::cos(angle) - b * std::sin(angle);
    out[i + 2] = b * std::cos(angle) + a * std::sin(angle);
  }
  return out;
}

std::vector<double> Projected(const Inputs& in, int64_t row, int64_t head) {
  const float* from = in.qk.data() + (row * (in.spec.num_heads + 1) + head) * kDim;
  return {from, from + kDim};
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The keys that `position` may read by the formula of BlockIndexerSpec.
std::set<int32_t> Expected(const Inputs& in, int64_t position, int64_t group) {
  const BlockIndexerSpec& spec = in.spec;
  const bool mean = spec.pooling == Pooling::kMeanKey;
  std::vector<std::pair<double, int64_t>> scores;
  for (int64_t b = 0; b * spec.block_size <= position; ++b) {
    const int64_t begin = b * spec.block_size;
    const int64_t end = std::min(begin + spec.block_size, position + 1);
    if (mean && end < begin + spec.block_size) break;
    double score = mean ? 0 : -INFINITY;
    if (mean) {
      std::vector<double> key(kDim);
      for (int64_t s = begin; s < end; ++s) {
        for (int64_t d = 0; d < kDim; ++d) key[d] += Projected(in, s, spec.num_heads)[d] / spec.block_size;
      }
      key = NormAndRotate(in, key, in.k_norm, begin);
      for (int64_t h = 0; h < spec.num_heads; ++h) {
        score += std::max(0.0, Dot(NormAndRotate(in, Projected(in, position, h), in.q_norm, position), key));
      }
    } else {
      const std::vector<double> q = NormAndRotate(in, Projected(in, position, group), in.q_norm, position);
      for (int64_t s = begin; s < end; ++s) {
        score = std::max(score, Dot(q, NormAndRotate(in, Projected(in, s, spec.num_heads), in.k_norm, s)));
      }
      if (b > position / spec.block_size - spec.local_blocks) score = INFINITY;
    }
    scores.emplace_back(-score, b);
  }
  std::sort(scores.begin(), scores.end());
  std::set<int32_t> keys;
  const auto whole = static_cast<int64_t>(scores.size());
  for (int64_t i = 0; i < std::min(whole, spec.top_blocks); ++i) {
    for (int64_t s = 0; s < spec.block_size; ++s) {
      const int64_t key = scores[i].second * spec.block_size + s;
      if (key <= position) keys.insert(static_cast<int32_t>(key));
    }
  }
  for (int64_t s = whole * spec.block_size; mean && s <= position; ++s) keys.insert(static_cast<int32_t>(s));
  return keys;
}

// positions [rows, groups, width] of calls that end at `cuts`.
std::vector<int32_t> Choose(Backend& backend, const Inputs& in, const std::vector<int64_t>& cuts) {
  const int64_t plane_width = in.spec.pooling == Pooling::kMeanKey ? 2 * kDim : kDim;
  std::vector<float> plane(in.blocks.size() * kKvBlockTokens * plane_width, NAN);
  std::vector<int32_t> positions(kRows * in.spec.groups() * in.spec.width(), -7);
  int64_t first = 0;
  for (const int64_t cut : cuts) {
    const MixerSlice slice{.row0 = first, .first_pos = first, .count = cut - first, .blocks = in.blocks};
    backend.BlockIndexer({.spec = &in.spec,
                          .rope = &in.rope,
                          .qk = in.qk.data(),
                          .rows = kRows,
                          .q_norm = in.q_norm.data(),
                          .k_norm = in.k_norm.data(),
                          .cos = in.cos.data(),
                          .sin = in.sin.data(),
                          .slices = {&slice, 1},
                          .kv = {.plane = plane.data(), .plane_width = plane_width, .num_blocks = 3},
                          .positions = cut > in.spec.first_choice() ? positions.data() : nullptr});
    first = cut;
  }
  return positions;
}

void ExpectChoices(const BlockIndexerSpec& spec) {
  const Inputs in = MakeInputs(spec);
  const auto reference = CreateReferenceBackend(DType::kF32);
  const std::vector<int32_t> whole = Choose(*reference, in, {kRows});
  for (int64_t p = in.spec.first_choice(); p < kRows; ++p) {
    for (int64_t group = 0; group < in.spec.groups(); ++group) {
      const auto begin = whole.begin() + (p * in.spec.groups() + group) * in.spec.width();
      const std::set<int32_t> want = Expected(in, p, group);
      std::vector<int32_t> padded(want.begin(), want.end());
      EXPECT_LT(static_cast<int64_t>(padded.size()), p + 1) << "nothing to choose";
      padded.resize(static_cast<size_t>(in.spec.width()), -1);
      EXPECT_EQ(std::vector<int32_t>(begin, begin + in.spec.width()), padded) << "position " << p << " group " << group;
    }
  }
  std::vector<int64_t> singly(kRows);
  std::iota(singly.begin(), singly.end(), 1);
  EXPECT_EQ(Choose(*reference, in, singly), whole);
  for (const CpuIsa isa : AvailableIsas()) {
    WorkerPool pool(3);
    const auto cpu = MakeCpu(isa, DType::kF32, &pool);
    EXPECT_EQ(Choose(*cpu, in, {kRows}), whole) << CpuIsaName(isa);
    EXPECT_EQ(Choose(*cpu, in, {1, 30, 33, kRows}), whole) << CpuIsaName(isa);
  }
}

TEST(BlockIndexer, BestKeyOfABlock) {
  ExpectChoices({.pooling = Pooling::kMaxScore, .num_heads = 3, .block_size = 4, .top_blocks = 5, .local_blocks = 2});
  ExpectChoices({.pooling = Pooling::kMaxScore, .num_heads = 1, .block_size = 7, .top_blocks = 3, .local_blocks = 0});
  ExpectChoices({.pooling = Pooling::kMaxScore, .num_heads = 2, .block_size = 32, .top_blocks = 1, .local_blocks = 1});
}

TEST(BlockIndexer, MeanKey) {
  // Many heads: a block that no head likes scores exactly 0, as another may.
  ExpectChoices({.pooling = Pooling::kMeanKey, .num_heads = 12, .block_size = 4, .top_blocks = 3});
  ExpectChoices({.pooling = Pooling::kMeanKey, .num_heads = 12, .block_size = 5, .top_blocks = 2});
  ExpectChoices({.pooling = Pooling::kMeanKey, .num_heads = 12, .block_size = 1, .top_blocks = 20});
}

// Runs of query heads with keys of their own; the runs are neither as many as the K/V heads nor a multiple.
TEST(SelectedAttention, GroupsOfHeads) {
  constexpr int64_t kHeads = 12, kKvHeads = 4, kGroups = 6, kHeadDim = 8, kTokens = 40, kWidth = 5;
  constexpr int64_t kRow = (kHeads + 2 * kKvHeads) * kHeadDim;
  AttentionSpec spec{
      .num_heads = kHeads, .num_kv_heads = kKvHeads, .head_dim = kHeadDim, .v_head_dim = kHeadDim, .scale = 0.4f};
  Random random(5);
  const std::vector<float> qkv = random.Floats(kTokens * kRow);
  const std::vector<int32_t> blocks = {1, 0};
  const MixerSlice slice{.count = kTokens, .blocks = blocks};
  std::vector<int32_t> positions(kTokens * kGroups * kWidth, -1);
  for (int64_t row = 0; row < kTokens; ++row) {
    for (int64_t group = 0; group < kGroups; ++group) {
      std::set<int32_t> keys;
      const int64_t count = std::min(row + 1, 1 + random.Int(kWidth));
      while (static_cast<int64_t>(keys.size()) < count) keys.insert(static_cast<int32_t>(random.Int(row + 1)));
      std::copy(keys.begin(), keys.end(), positions.begin() + (row * kGroups + group) * kWidth);
    }
  }
  const KeySelection selection{.positions = positions.data(), .width = kWidth, .groups = kGroups};

  std::vector<float> want;
  for (int64_t row = 0; row < kTokens; ++row) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const int32_t* keys = positions.data() + (row * kGroups + h / (kHeads / kGroups)) * kWidth;
      const int64_t kv_head = h / (kHeads / kKvHeads);
      double sum = 0;
      std::vector<double> mixed(kHeadDim);
      for (int64_t i = 0; i < kWidth && keys[i] >= 0; ++i) {
        const float* k = qkv.data() + keys[i] * kRow + (kHeads + kv_head) * kHeadDim;
        const float* v = k + kKvHeads * kHeadDim;
        double score = 0;
        for (int64_t d = 0; d < kHeadDim; ++d) score += qkv[row * kRow + h * kHeadDim + d] * static_cast<double>(k[d]);
        const double weight = std::exp(score * spec.scale);
        sum += weight;
        for (int64_t d = 0; d < kHeadDim; ++d) mixed[d] += weight * v[d];
      }
      for (const double value : mixed) want.push_back(static_cast<float>(value / sum));
    }
  }

  const auto run = [&](Backend& backend) {
    const size_t bytes = 2 * kKvHeads * kKvBlockTokens * kHeadDim * sizeof(float);
    std::vector<std::byte> k(bytes), v(bytes), q(kTokens * kHeads * kHeadDim * sizeof(float)), out(q.size());
    const KvLayer kv{.k = k.data(), .v = v.data(), .num_blocks = 2};
    backend.Qkv({.spec = &spec,
                 .qkv = qkv.data(),
                 .stride = kRow,
                 .rows = kTokens,
                 .slices = {&slice, 1},
                 .kv = kv,
                 .q_out = q.data()});
    backend.Attention({.spec = &spec,
                       .q = q.data(),
                       .selection = &selection,
                       .slices = {&slice, 1},
                       .kv = kv,
                       .out_act = out.data()});
    return ToFloats(DType::kF32, out);
  };
  const auto reference = CreateReferenceBackend(DType::kF32);
  const std::vector<float> got = run(*reference);
  ExpectNear("reference", got, want, std::vector<double>(want.size(), 1e-5), kHeads * kHeadDim);
  for (const CpuIsa isa : AvailableIsas()) {
    WorkerPool pool(3);
    ExpectSameBits(CpuIsaName(isa), run(*MakeCpu(isa, DType::kF32, &pool)), got, kHeads * kHeadDim);
  }
}

}  // namespace
}  // namespace moe::device_test
