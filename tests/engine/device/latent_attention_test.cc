// Latent attention's own operations (keys and queries in their absorbed form, the indexer, output gates) against their
// formulas in double, on every path; cuts and threads change no bit.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/device/reference/reference_math.h"
#include "parallel/worker_pool.h"
#include "tests/engine/device/attention_test_util.h"

namespace moe::device_test {
namespace {

// Three blocks of the cache in an order of their own, the last one not full.
constexpr int64_t kRows = 85;
const std::vector<int32_t> kBlocks = {1, 2, 0};

MlaSpec MakeSpec() {
  MlaSpec spec;
  spec.num_heads = 20;  // more than one task's heads
  spec.kv_lora = 6;
  spec.nope_dim = 5;
  spec.rope_dim = 4;
  spec.v_dim = 3;
  spec.scale = 0.4f;
  spec.rope = RopeSpec{.layout = RopeSpec::Layout::kInterleaved, .rotary_dim = 4, .inv_freq = {1.0, 0.03}};
  spec.kv_norm.eps = 1e-3f;
  spec.k_rope_norm.kind = NormKind::kRms;
  spec.q_scale = 1.3f;
  spec.kv_scale = 0.7f;
  spec.query_scale = {.kind = PositionScale::Kind::kLog, .beta = 0.5, .period = 20};
  return spec;
}

struct Rotation {
  explicit Rotation(const RopeSpec& rope) : half(rope.rotary_dim / 2) {
    cos.resize(static_cast<size_t>(kRows * half));
    sin.resize(cos.size());
    for (int64_t p = 0; p < kRows; ++p) reference::RotationAt(rope, p, &cos[p * half], &sin[p * half]);
  }
  int64_t half;
  std::vector<float> cos, sin;
};

std::vector<double> Widen(const float* x, int64_t n) {
  return {x, x + n};
}
std::vector<double> RmsNorm(std::vector<double> x, double eps, const std::vector<float>& weight) {
  const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double scale = 1 / std::sqrt(square / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
  return x;
}
void Rotate(const RopeSpec& rope, int64_t position, double* x) {
  const int64_t half = rope.rotary_dim / 2;
  const bool split = rope.layout == RopeSpec::Layout::kHalfSplit;
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * rope.inv_freq[static_cast<size_t>(i)];
    double& a = x[split ? i : 2 * i];
    double& b = x[split ? i + half : 2 * i + 1];
    const double rotated = a * std::cos(angle) - b * std::sin(angle);
    b = b * std::cos(angle) + a * std::sin(angle);
    a = rotated;
  }
}

class LatentAttentionTest : public testing::Test {
 protected:
  LatentAttentionTest() : rotation_(*spec_.rope), random_(5) {
    kv_a_ = random_.Floats(kRows * (spec_.kv_lora + spec_.rope_dim));
    kv_norm_ = random_.Floats(spec_.kv_lora);
    k_rope_norm_ = random_.Floats(spec_.rope_dim);
    q_ = random_.Floats(kRows * spec_.num_heads * (spec_.nope_dim + spec_.rope_dim));
    k_up_ = random_.Floats(spec_.num_heads * spec_.nope_dim * spec_.kv_lora);
    // k_upᵀ · q_nope, what the mixer's GEMMs compute.
    for (int64_t row = 0; row < kRows * spec_.num_heads; ++row) {
      for (int64_t c = 0; c < spec_.kv_lora; ++c) {
        double sum = 0;
        for (int64_t d = 0; d < spec_.nope_dim; ++d) {
          sum += static_cast<double>(q_[row * (spec_.nope_dim + spec_.rope_dim) + d]) *
                 k_up_[(row % spec_.num_heads * spec_.nope_dim + d) * spec_.kv_lora + c];
        }
        absorbed_.push_back(static_cast<float>(sum));
      }
    }
  }

  // The latents that each head attends to, [kRows, heads * kv_lora], by calls that end at `cuts`.
  std::vector<float> Run(Backend& backend, const std::vector<int64_t>& cuts) const {
    const auto size = static_cast<int64_t>(DTypeSize(backend.act_dtype()));
    const int64_t width = spec_.kv_lora + spec_.rope_dim;
    const auto blocks = static_cast<int64_t>(kBlocks.size());
    std::vector<std::byte> k(static_cast<size_t>(blocks * kKvBlockTokens * width * size), std::byte{0xff});
    std::vector<std::byte> v(static_cast<size_t>(blocks * kKvBlockTokens * spec_.kv_lora * size), std::byte{0xff});
    std::vector<std::byte> q(static_cast<size_t>(kRows * spec_.num_heads * width * size));
    std::vector<std::byte> out(static_cast<size_t>(kRows * spec_.num_heads * spec_.kv_lora * size));
    const KvLayer kv{.k = k.data(), .v = v.data(), .num_blocks = blocks};
    AttentionSpec attention;
    attention.num_heads = spec_.num_heads;
    attention.num_kv_heads = 1;
    attention.head_dim = width;
    attention.v_head_dim = spec_.kv_lora;
    attention.scale = spec_.scale;
    int64_t first = 0;
    for (const int64_t cut : cuts) {
      const MixerSlice slice{.row0 = first, .first_pos = first, .count = cut - first, .blocks = kBlocks};
      backend.MlaKeys({.spec = &spec_,
                       .kv_a = kv_a_.data(),
                       .rows = kRows,
                       .kv_norm = kv_norm_.data(),
                       .k_rope_norm = k_rope_norm_.data(),
                       .cos = rotation_.cos.data(),
                       .sin = rotation_.sin.data(),
                       .slices = {&slice, 1},
                       .kv = kv});
      backend.MlaQueries({.spec = &spec_,
                          .q = q_.data(),
                          .absorbed = absorbed_.data(),
                          .rows = kRows,
                          .cos = rotation_.cos.data(),
                          .sin = rotation_.sin.data(),
                          .slices = {&slice, 1},
                          .q_out = q.data()});
      backend.Attention({.spec = &attention, .q = q.data(), .slices = {&slice, 1}, .kv = kv, .out_act = out.data()});
      first = cut;
    }
    return ToFloats(backend.act_dtype(), out);
  }

  // Latent attention as it is defined: each head has keys [k_up latent | rotated] of its own.
  std::vector<float> Expected() const {
    std::vector<std::vector<double>> latents, ropes;
    std::vector<float> out;
    for (int64_t p = 0; p < kRows; ++p) {
      const float* kv = kv_a_.data() + p * (spec_.kv_lora + spec_.rope_dim);
      latents.push_back(RmsNorm(Widen(kv, spec_.kv_lora), spec_.kv_norm.eps, kv_norm_));
      for (double& x : latents.back()) x *= spec_.kv_scale;
      ropes.push_back(RmsNorm(Widen(kv + spec_.kv_lora, spec_.rope_dim), spec_.k_rope_norm.eps, k_rope_norm_));
      Rotate(*spec_.rope, p, ropes.back().data());
      const double factor =
          spec_.q_scale * (1 + 0.5 * std::log(1 + std::floor(static_cast<double>(p) / 20))) * spec_.scale;
      for (int64_t h = 0; h < spec_.num_heads; ++h) {
        std::vector<double> q = Widen(q_.data() + (p * spec_.num_heads + h) * (spec_.nope_dim + spec_.rope_dim),
                                      spec_.nope_dim + spec_.rope_dim);
        Rotate(*spec_.rope, p, q.data() + spec_.nope_dim);
        std::vector<double> sum(static_cast<size_t>(spec_.kv_lora));
        double denominator = 0;
        for (int64_t j = 0; j <= p; ++j) {
          double score = 0;
          for (int64_t d = 0; d < spec_.nope_dim; ++d) {
            const float* row = k_up_.data() + (h * spec_.nope_dim + d) * spec_.kv_lora;
            score += q[d] * std::inner_product(latents[j].begin(), latents[j].end(), row, 0.0);
          }
          for (int64_t d = 0; d < spec_.rope_dim; ++d) score += q[spec_.nope_dim + d] * ropes[j][d];
          const double weight = std::exp(score * factor);
          denominator += weight;
          for (size_t c = 0; c < sum.size(); ++c) sum[c] += weight * latents[j][c];
        }
        for (const double x : sum) out.push_back(static_cast<float>(x / denominator));
      }
    }
    return out;
  }

  const MlaSpec spec_ = MakeSpec();
  const Rotation rotation_;
  Random random_;
  std::vector<float> kv_a_, kv_norm_, k_rope_norm_, q_, k_up_, absorbed_;
};

TEST_F(LatentAttentionTest, AbsorbedFormIsTheDefinition) {
  const std::vector<float> want = Expected();
  WorkerPool pool(1);
  for (const DType act : {DType::kF32, DType::kBF16}) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(CreateReferenceBackend(act));
    for (const AttentionPath& path : AttentionPaths()) backends.push_back(MakeCpu(path, act, &pool));
    for (const auto& backend : backends) {
      // bfloat16 keys and queries move the scores, which the softmax turns into relative errors.
      const double bound = act == DType::kF32 ? 2e-5 : 0.1;
      ExpectNear(backend->name() + " " + DTypeName(act), Run(*backend, {kRows}), want,
                 std::vector<double>(want.size(), bound), spec_.kv_lora);
    }
  }
}

TEST_F(LatentAttentionTest, CutsAndThreadsChangeNoBit) {
  WorkerPool one(1);
  WorkerPool three(3);
  for (const DType act : {DType::kF32, DType::kBF16}) {
    for (const AttentionPath& path : AttentionPaths()) {
      const std::vector<float> whole = Run(*MakeCpu(path, act, &one), {kRows});
      ExpectSameBits("cut", Run(*MakeCpu(path, act, &three), {1, 2, 33, 64, 70, kRows}), whole, spec_.kv_lora);
    }
  }
}

// Attention over latents needs no plane of values: it reads them from the keys, to the same bits.
TEST(LatentValues, OfKeysAreTheSameAsOfTheirOwnPlane) {
  WorkerPool pool(2);
  Random random(9);
  for (const DType act : {DType::kF32, DType::kBF16}) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(CreateReferenceBackend(act));
    for (const AttentionPath& path : AttentionPaths()) backends.push_back(MakeCpu(path, act, &pool));
    for (const auto& [latent, rope, heads] :
         {std::tuple<int64_t, int64_t, int64_t>{7, 4, 1}, {16, 8, 20}, {70, 2, 3}, {96, 32, 5}}) {
      const int64_t width = latent + rope;
      MlaSpec spec;
      spec.kv_lora = latent;
      spec.rope_dim = rope;
      spec.kv_norm = kNoNorm;
      AttentionSpec attention;
      attention.num_heads = heads;
      attention.num_kv_heads = 1;
      attention.head_dim = width;
      attention.v_head_dim = latent;
      attention.scale = 0.3f;
      const std::vector<float> kv_a = random.Floats(kRows * width);
      const Values q = random.Make(act, kRows * heads * width);
      std::vector<int32_t> positions;  // a few keys of each row
      for (int32_t p = 0; p < kRows; ++p) {
        const int32_t first = p / 3;
        positions.insert(positions.end(), {first, first < p ? p : -1, -1});
      }
      const KeySelection selection{.positions = positions.data(), .width = 3};
      const MixerSlice slice{.count = kRows, .blocks = kBlocks};
      for (const auto& backend : backends) {
        const size_t tokens = kBlocks.size() * kKvBlockTokens * DTypeSize(act);
        std::vector<std::byte> k(tokens * static_cast<size_t>(width), std::byte{0xff});
        std::vector<std::byte> v(tokens * static_cast<size_t>(latent), std::byte{0xff});
        const auto run = [&](std::byte* values, const KeySelection* chosen) {
          const KvLayer kv{.k = k.data(), .v = values, .num_blocks = 3};
          backend->MlaKeys({.spec = &spec, .kv_a = kv_a.data(), .rows = kRows, .slices = {&slice, 1}, .kv = kv});
          std::vector<std::byte> out(static_cast<size_t>(kRows * heads * latent) * DTypeSize(act));
          backend->Attention({.spec = &attention,
                              .q = q.bytes.data(),
                              .selection = chosen,
                              .slices = {&slice, 1},
                              .kv = kv,
                              .out_act = out.data()});
          return ToFloats(act, out);
        };
        const std::string what = Cat(backend->name(), " ", DTypeName(act), " latent ", latent);
        ExpectSameBits(what, run(nullptr, nullptr), run(v.data(), nullptr), latent);
        ExpectSameBits(what + " selected", run(nullptr, &selection), run(v.data(), &selection), latent);
      }
    }
  }
}

class IndexerTest : public testing::TestWithParam<bool> {
 protected:
  IndexerTest() {
    spec_.num_heads = 9;
    spec_.head_dim = 8;
    spec_.top_k = 7;
    spec_.rope_last = GetParam();
    spec_.rope = RopeSpec{.rotary_dim = 4, .inv_freq = {0.5, 0.02}};
    spec_.key_norm = {.kind = NormKind::kLayer, .eps = 1e-6f, .bias = true};
    Random random(6);
    q_ = random.Floats(kRows * spec_.num_heads * spec_.head_dim);
    k_ = random.Floats(kRows * spec_.head_dim);
    weights_ = random.Floats(kRows * spec_.num_heads);
    norm_ = random.Floats(spec_.head_dim);
    bias_ = random.Floats(spec_.head_dim);
  }

  std::vector<int32_t> Choose(Backend& backend, const std::vector<int64_t>& cuts) const {
    const Rotation rotation(*spec_.rope);
    // Two more floats a token than the indexer needs: planes may be wider.
    const int64_t plane_width = spec_.head_dim + 2;
    std::vector<float> plane(kBlocks.size() * kKvBlockTokens * static_cast<size_t>(plane_width), NAN);
    std::vector<int32_t> positions(static_cast<size_t>(kRows * spec_.top_k), -7);
    int64_t first = 0;
    for (const int64_t cut : cuts) {
      const MixerSlice slice{.row0 = first, .first_pos = first, .count = cut - first, .blocks = kBlocks};
      // Up to top_k keys nothing need be chosen.
      const bool choose = cut > spec_.top_k;
      backend.Indexer({.spec = &spec_,
                       .q = choose ? q_.data() : nullptr,
                       .k = k_.data(),
                       .weights = choose ? weights_.data() : nullptr,
                       .rows = kRows,
                       .key_norm = norm_.data(),
                       .key_norm_bias = bias_.data(),
                       .cos = rotation.cos.data(),
                       .sin = rotation.sin.data(),
                       .slices = {&slice, 1},
                       .kv = {.plane = plane.data(), .plane_width = plane_width, .num_blocks = 3},
                       .positions = choose ? positions.data() : nullptr});
      first = cut;
    }
    return positions;
  }

  void Turn(int64_t position, std::vector<double>* head) const {
    Rotate(*spec_.rope, position, head->data() + (spec_.rope_last ? spec_.head_dim - 4 : 0));
  }

  std::vector<int32_t> Expected(int64_t p) const {
    std::vector<std::pair<double, int32_t>> scores;
    for (int64_t s = 0; s <= p; ++s) {
      std::vector<double> key = Widen(k_.data() + s * spec_.head_dim, spec_.head_dim);
      const double mean = std::accumulate(key.begin(), key.end(), 0.0) / static_cast<double>(key.size());
      for (double& x : key) x -= mean;
      key = RmsNorm(key, 1e-6, norm_);
      for (size_t d = 0; d < key.size(); ++d) key[d] += bias_[d];
      Turn(s, &key);
      double score = 0;
      for (int64_t h = 0; h < spec_.num_heads; ++h) {
        std::vector<double> q = Widen(q_.data() + (p * spec_.num_heads + h) * spec_.head_dim, spec_.head_dim);
        Turn(p, &q);
        score +=
            weights_[p * spec_.num_heads + h] * std::max(0.0, std::inner_product(q.begin(), q.end(), key.begin(), 0.0));
      }
      scores.emplace_back(-score, static_cast<int32_t>(s));
    }
    std::sort(scores.begin(), scores.end());
    std::vector<int32_t> best;
    for (int64_t i = 0; i < std::min<int64_t>(spec_.top_k, p + 1); ++i) best.push_back(scores[i].second);
    std::sort(best.begin(), best.end());
    best.resize(static_cast<size_t>(spec_.top_k), -1);
    return best;
  }

  IndexerSpec spec_;
  std::vector<float> q_, k_, weights_, norm_, bias_;
};

TEST_P(IndexerTest, PicksTheBestKeys) {
  const auto backend = CreateReferenceBackend(DType::kF32);
  const std::vector<int32_t> positions = Choose(*backend, {kRows});
  for (int64_t p = 0; p < kRows; ++p) {
    const auto begin = positions.begin() + p * spec_.top_k;
    EXPECT_EQ(std::vector<int32_t>(begin, begin + spec_.top_k), Expected(p)) << "position " << p;
  }
}

TEST_P(IndexerTest, CutsThreadsAndBackendsChooseTheSame) {
  const std::vector<int32_t> whole = Choose(*CreateReferenceBackend(DType::kF32), {kRows});
  WorkerPool pool(3);
  const auto backend = MakeCpu(AvailableIsas().front(), DType::kBF16, &pool);
  const std::vector<int32_t> cut = Choose(*backend, {1, 5, 6, 31, 40, 64, 65, kRows});
  const int64_t first = 31 * spec_.top_k;  // the calls before that are left unchosen in parts
  EXPECT_TRUE(std::equal(whole.begin() + first, whole.end(), cut.begin() + first));
}

INSTANTIATE_TEST_SUITE_P(RotatedDims, IndexerTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Last" : "First"; });

TEST(GateTest, Formulas) {
  constexpr int64_t kHeads = 2;
  constexpr int64_t kDim = 3;
  const std::vector<float> x = {1, -2, 3, 4, 5, -6};
  const std::vector<float> elements = {0.5f, -1, 2, 0, 30, -30, 99};  // one more a row than there are gates
  const std::vector<float> bias = {0.25f, -0.5f};
  const auto backend = CreateReferenceBackend(DType::kF32);
  for (const AttentionGate kind : {AttentionGate::kElementSigmoid, AttentionGate::kElementSoftplus,
                                   AttentionGate::kHeadSigmoid, AttentionGate::kHeadSoftplus}) {
    Values act = ToValues(DType::kF32, x);
    backend->Gate({.kind = kind,
                   .rows = 1,
                   .heads = kHeads,
                   .head_dim = kDim,
                   .gate = elements.data(),
                   .gate_stride = 7,
                   .head_bias = bias.data(),
                   .act = act.bytes.data()});
    std::vector<float> want;
    for (int64_t i = 0; i < kHeads * kDim; ++i) {
      const double gate = elements[PerElement(kind) ? i : i / kDim] + bias[i / kDim];
      const bool softplus = kind == AttentionGate::kElementSoftplus || kind == AttentionGate::kHeadSoftplus;
      const double factor = softplus ? std::log1p(std::exp(gate)) : 1 / (1 + std::exp(-gate));
      want.push_back(static_cast<float>(x[i] * factor));
    }
    ExpectNear("gate", ToFloats(DType::kF32, act.bytes), want, std::vector<double>(want.size(), 1e-5), kDim);
  }
}

}  // namespace
}  // namespace moe::device_test
