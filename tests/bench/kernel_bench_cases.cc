#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>

#include "tests/bench/kernel_bench.h"

namespace moe::bench {
namespace {

// The bench model: Qwen3-MoE of a billion parameters.
constexpr int64_t kHidden = 1024;
constexpr int64_t kExperts = 32;
constexpr int64_t kTopK = 4;
constexpr int64_t kIntermediate = 768;
constexpr int64_t kHeads = 16;
constexpr int64_t kKvHeads = 4;
constexpr int64_t kHeadDim = 64;

// bf16 bits of values around 1/16, quick to make.
std::vector<uint16_t> RandomBf16(int64_t n, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<uint16_t> x(static_cast<size_t>(n));
  for (uint16_t& v : x) {
    const auto r = static_cast<uint32_t>(random());
    v = static_cast<uint16_t>((r & 0x807fu) | (0x3d00u + (r >> 20 & 0x80u)));
  }
  return x;
}

// A copy in huge pages, as a server would hold its cache: a block is 4 KB of K and 4 KB of V, so small pages would cost
// a TLB miss for each.
std::shared_ptr<std::byte> HugePages(const std::vector<uint16_t>& x) {
  constexpr size_t kPage = size_t{2} << 20;
  const size_t bytes = (x.size() * 2 + kPage - 1) / kPage * kPage;
  auto* p = static_cast<std::byte*>(std::aligned_alloc(kPage, bytes));
  madvise(p, bytes, MADV_HUGEPAGE);
  std::memcpy(p, x.data(), x.size() * 2);
  return {p, [](std::byte* q) { std::free(q); }};
}

WeightSource Bf16Source(const std::vector<uint16_t>& x, int64_t rows, int64_t cols) {
  WeightSource s;
  s.dtype = DType::kBF16;
  s.data = reinterpret_cast<const std::byte*>(x.data());
  s.rows = rows;
  s.cols = cols;
  s.row_stride = cols;
  return s;
}

bool Wanted(const std::string& name, const std::string& filter) {
  return filter.empty() || name.find(filter) != std::string::npos;
}

// Whether some case of a group may be wanted.
bool WantedGroup(const std::string& group, const std::string& filter) {
  return Wanted(group, filter) || filter.find(group) != std::string::npos;
}

void AddGemm(const std::shared_ptr<Backend>& backend, const std::string& filter, std::vector<Case>& cases) {
  constexpr int64_t kN = 2048;
  constexpr int64_t kK = 1024;
  constexpr int kCopies = 80;  // 320 MB: no cache keeps one until its turn comes again
  if (!WantedGroup("gemm", filter)) return;
  auto packed = std::make_shared<std::vector<std::unique_ptr<PackedMatrix>>>();
  const std::vector<uint16_t> w = RandomBf16(kN * kK, 1);
  const WeightSource source = Bf16Source(w, kN, kK);
  for (int i = 0; i < kCopies; ++i) packed->push_back(backend->Pack({&source, 1}, DType::kBF16));
  for (int64_t m : {1, 8, 32, 512, 2048}) {
    auto a = std::make_shared<std::vector<uint16_t>>(RandomBf16(m * kK, 2));
    auto out = std::make_shared<std::vector<float>>(static_cast<size_t>(m * kN));
    auto next = std::make_shared<int>(0);
    Case c;
    c.name = Cat("gemm ", m, "×", kN, "×", kK);
    c.bytes = 2.0 * kN * kK;
    c.flops = 2.0 * static_cast<double>(m) * kN * kK;
    c.run = [=] {
      GemmOp op;
      op.a = {reinterpret_cast<const std::byte*>(a->data()), DType::kBF16, m, kK, kK};
      op.w = (*packed)[(*next)++ % kCopies].get();
      op.out = out->data();
      op.out_stride = kN;
      backend->Gemm(op);
    };
    cases.push_back(std::move(c));
  }
}

// Random choices of top_k experts per token, sorted by expert.
struct Choice {
  std::vector<const std::byte*> rows;
  std::vector<ExpertGroup> groups;
};
Choice Choose(const std::vector<uint16_t>& x, int64_t tokens, std::minstd_rand& random) {
  std::vector<std::vector<int64_t>> of_expert(kExperts);
  for (int64_t t = 0; t < tokens; ++t) {
    std::set<int64_t> chosen;
    while (static_cast<int64_t>(chosen.size()) < kTopK) chosen.insert(static_cast<int64_t>(random() >> 8) % kExperts);
    for (int64_t e : chosen) of_expert[e].push_back(t);
  }
  Choice c;
  for (int64_t e = 0; e < kExperts; ++e) {
    if (of_expert[e].empty()) continue;
    const auto begin = static_cast<int32_t>(c.rows.size());
    for (int64_t t : of_expert[e]) c.rows.push_back(reinterpret_cast<const std::byte*>(x.data() + t * kHidden));
    c.groups.push_back({static_cast<int32_t>(e), begin, static_cast<int32_t>(c.rows.size())});
  }
  return c;
}

// Router, experts and combine of one layer.
void AddMoe(const std::shared_ptr<Backend>& backend, const std::string& filter, std::vector<Case>& cases) {
  constexpr int kLayers = 3;  // 450 MB
  if (!WantedGroup("moe", filter)) return;
  auto layers = std::make_shared<std::vector<std::unique_ptr<PackedExperts>>>();
  const std::vector<uint16_t> gate = RandomBf16(kIntermediate * kHidden, 3);
  const std::vector<uint16_t> up = RandomBf16(kIntermediate * kHidden, 4);
  const std::vector<uint16_t> down = RandomBf16(kHidden * kIntermediate, 5);
  ExpertSource source{Bf16Source(gate, kIntermediate, kHidden), Bf16Source(up, kIntermediate, kHidden),
                      Bf16Source(down, kHidden, kIntermediate)};
  const std::vector<ExpertSource> sources(kExperts, source);
  for (int i = 0; i < kLayers; ++i) layers->push_back(backend->PackExperts(sources, true, DType::kBF16, nullptr));
  for (int64_t tokens : {1, 8, 32, 512, 2048}) {
    auto x = std::make_shared<std::vector<uint16_t>>(RandomBf16(tokens * kHidden, 6));
    constexpr int kChoices = 16;
    auto choices = std::make_shared<std::vector<Choice>>();
    std::minstd_rand random(7);
    double experts_used = 0;
    for (int i = 0; i < kChoices; ++i) {
      choices->push_back(Choose(*x, tokens, random));
      experts_used += static_cast<double>(choices->back().groups.size()) / kChoices;
    }
    const int64_t rows = tokens * kTopK;
    auto slots = std::make_shared<std::vector<uint16_t>>(static_cast<size_t>(rows * kHidden));
    auto slot_rows = std::make_shared<std::vector<const std::byte*>>();
    for (int64_t r = 0; r < rows; ++r) {
      slot_rows->push_back(reinterpret_cast<const std::byte*>(slots->data() + r * kHidden));
    }
    auto weights = std::make_shared<std::vector<float>>(static_cast<size_t>(rows), 0.25f);
    auto out = std::make_shared<std::vector<float>>(static_cast<size_t>(tokens * kHidden));
    auto next = std::make_shared<int>(0);
    Case c;
    c.name = Cat("moe ", tokens, " tokens");
    c.bytes = experts_used * 3 * kIntermediate * kHidden * 2;
    c.flops = 2.0 * static_cast<double>(rows) * 3 * kIntermediate * kHidden;
    c.run = [=, keep = x] {  // the choices point into x
      const Choice& choice = (*choices)[*next % kChoices];
      ExpertsOp op;
      op.experts = (*layers)[(*next)++ % kLayers].get();
      op.rows = choice.rows;
      op.groups = choice.groups;
      op.out_dtype = DType::kBF16;
      op.out = reinterpret_cast<std::byte*>(slots->data());
      backend->Experts(op);
      CombineOp combine;
      combine.rows = tokens;
      combine.top_k = kTopK;
      combine.dim = kHidden;
      combine.slot_dtype = DType::kBF16;
      combine.slot_rows = *slot_rows;
      combine.weights = weights->data();
      combine.out_f32 = out->data();
      backend->Combine(combine);
    };
    cases.push_back(std::move(c));
  }
}

// `sequences` sequences of `context` tokens; each step attends from the last `rows` positions.
void AddAttention(const std::shared_ptr<Backend>& backend, const std::string& filter, std::vector<Case>& cases,
                  const std::string& kind, int64_t sequences, int64_t context, int64_t rows) {
  const std::string name = Cat("attention ", kind, " ", sequences, "×", rows, " at ", context);
  if (!Wanted(name, filter)) return;
  auto spec = std::make_shared<AttentionSpec>();
  spec->num_heads = kHeads;
  spec->num_kv_heads = kKvHeads;
  spec->head_dim = spec->v_head_dim = kHeadDim;
  spec->scale = 0.125f;
  const int64_t per_sequence = (context + kKvBlockTokens - 1) / kKvBlockTokens;
  const int64_t block_elements = kKvHeads * kKvBlockTokens * kHeadDim;
  // Enough layers that decoding reads its cache from memory.
  const int64_t layers =
      rows > 1 ? 1 : std::max<int64_t>(1, (int64_t{200} << 20) / (sequences * per_sequence * block_elements * 4));
  auto k = HugePages(RandomBf16(layers * sequences * per_sequence * block_elements, 8));
  auto v = HugePages(RandomBf16(layers * sequences * per_sequence * block_elements, 9));
  auto blocks = std::make_shared<std::vector<int32_t>>();
  for (int64_t i = 0; i < layers * sequences * per_sequence; ++i) blocks->push_back(static_cast<int32_t>(i));
  auto q = std::make_shared<std::vector<uint16_t>>(RandomBf16(sequences * rows * kHeads * kHeadDim, 10));
  auto out = std::make_shared<std::vector<uint16_t>>(q->size());
  auto slices = std::make_shared<std::vector<MixerSlice>>(static_cast<size_t>(sequences));
  auto next = std::make_shared<int64_t>(0);
  Case c;
  c.name = name;
  const double keys = static_cast<double>(context) - static_cast<double>(rows - 1) / 2;
  c.bytes = static_cast<double>(sequences * context * kKvHeads * kHeadDim) * 4;
  c.flops = static_cast<double>(sequences * rows * kHeads) * keys * 4 * kHeadDim;
  c.run = [=] {
    const int64_t layer = (*next)++ % layers;
    for (int64_t s = 0; s < sequences; ++s) {
      MixerSlice& slice = (*slices)[s];
      slice.row0 = s * rows;
      slice.first_pos = context - rows;
      slice.count = rows;
      slice.blocks =
          std::span(*blocks).subspan(static_cast<size_t>((layer * sequences + s) * per_sequence), per_sequence);
    }
    AttentionOp op;
    op.spec = spec.get();
    op.q = reinterpret_cast<const std::byte*>(q->data());
    op.slices = *slices;
    op.kv.k = k.get();
    op.kv.v = v.get();
    op.out_act = reinterpret_cast<std::byte*>(out->data());
    backend->Attention(op);
  };
  cases.push_back(std::move(c));
}

void AddMamba2(const std::shared_ptr<Backend>& backend, const std::string& filter, std::vector<Case>& cases,
               int64_t sequences, int64_t rows) {
  const std::string name = Cat("mamba2 ", sequences, "×", rows);
  if (!Wanted(name, filter)) return;
  auto spec = std::make_shared<Mamba2Spec>();
  spec->num_heads = 32;
  spec->head_dim = 64;
  spec->state_size = 128;
  spec->num_groups = 8;
  spec->conv_kernel = 4;
  const int64_t state = spec->inner() * spec->state_size;
  const int64_t layers = rows > 1 ? 1 : std::max<int64_t>(1, (int64_t{256} << 20) / (sequences * state * 4));
  auto proj = std::make_shared<std::vector<float>>(RandomFloats(sequences * rows * spec->in_proj_rows(), 11));
  auto conv_weight = std::make_shared<std::vector<float>>(RandomFloats(spec->conv_dim() * 4, 12));
  auto heads = std::make_shared<std::vector<float>>(RandomFloats(spec->num_heads, 13));
  auto norm = std::make_shared<std::vector<float>>(RandomFloats(spec->inner(), 14));
  const int64_t floats = CacheOf(*spec).state;
  auto states = std::make_shared<std::vector<float>>(static_cast<size_t>(layers * sequences * floats));
  auto out = std::make_shared<std::vector<uint16_t>>(static_cast<size_t>(sequences * rows * spec->inner()));
  auto slices = std::make_shared<std::vector<MixerSlice>>(static_cast<size_t>(sequences));
  auto next = std::make_shared<int64_t>(0);
  Case c;
  c.name = name;
  c.fma = true;
  c.bytes = 2.0 * 4 * static_cast<double>(sequences * state);
  c.flops = 5.0 * static_cast<double>(sequences * rows * state);
  c.run = [=] {
    const int64_t layer = (*next)++ % layers;
    for (int64_t s = 0; s < sequences; ++s) {
      MixerSlice& slice = (*slices)[s];
      slice.row0 = s * rows;
      slice.count = rows;
      slice.state = states->data() + (layer * sequences + s) * floats;
    }
    Mamba2Op op;
    op.spec = spec.get();
    op.proj = proj->data();
    op.rows = sequences * rows;
    op.conv_weight = conv_weight->data();
    op.dt_bias = op.a_log = op.d = heads->data();
    op.norm = norm->data();
    op.slices = *slices;
    op.out_act = reinterpret_cast<std::byte*>(out->data());
    backend->Mamba2(op);
  };
  cases.push_back(std::move(c));
}

}  // namespace

std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = static_cast<float>(static_cast<int32_t>(random() % 2001) - 1000) * 1e-3f;
  return x;
}

std::vector<Case> MakeCases(std::shared_ptr<Backend> backend, const std::string& filter) {
  std::vector<Case> cases;
  AddGemm(backend, filter, cases);
  AddMoe(backend, filter, cases);
  AddAttention(backend, filter, cases, "decode", 1, 128, 1);
  AddAttention(backend, filter, cases, "decode", 1, 1920, 1);
  AddAttention(backend, filter, cases, "decode", 32, 512, 1);
  AddAttention(backend, filter, cases, "prefill", 1, 512, 512);
  AddAttention(backend, filter, cases, "prefill", 1, 2048, 2048);
  AddMamba2(backend, filter, cases, 1, 1);
  AddMamba2(backend, filter, cases, 32, 1);
  AddMamba2(backend, filter, cases, 1, 512);
  AddRecurrences(backend, filter, cases);
  std::erase_if(cases, [&](const Case& c) { return !Wanted(c.name, filter); });
  return cases;
}

}  // namespace moe::bench
