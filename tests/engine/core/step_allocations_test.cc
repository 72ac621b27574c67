// How often a warm decoding step asks for memory. This binary counts every operator new of the engine's threads (loop,
// ranks, pool workers), not those of the test's own.
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <numeric>

#include "engine/core/engine.h"
#include "engine/device/ops.h"
#include "gtest/gtest.h"
#include "loaders/model_files.h"
#include "loaders/model_loader.h"

namespace moe {
namespace {

thread_local bool is_client = false;
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

// Where they came from, for a test that fails.
struct Site {
  std::array<void*, 12> frames{};
  int depth = 0;
  int64_t count = 0;
};
std::mutex sites_mutex;
std::array<Site, 256> sites;  // guarded by sites_mutex; those with a count come first

void NoteAllocation() {
  if (is_client || !counting.load(std::memory_order_relaxed)) return;
  allocations.fetch_add(1, std::memory_order_relaxed);
  Site here;
  here.depth = backtrace(here.frames.data(), static_cast<int>(here.frames.size()));
  const std::lock_guard lock(sites_mutex);
  for (Site& site : sites) {
    if (site.count == 0) site = here;
    if (site.frames != here.frames) continue;
    ++site.count;
    return;
  }
}

// For addr2line.
void PrintSites() {
  const std::lock_guard lock(sites_mutex);
  std::sort(sites.begin(), sites.end(), [](const Site& a, const Site& b) { return a.count > b.count; });
  for (const Site& site : sites) {
    if (site.count == 0) break;
    std::printf("%ld allocations at\n", static_cast<long>(site.count));
    std::fflush(stdout);
    backtrace_symbols_fd(site.frames.data() + 2, std::max(site.depth - 2, 0), STDOUT_FILENO);
  }
}

void* Allocate(size_t bytes, size_t alignment) {
  NoteAllocation();
  void* p = alignment == 0 ? std::malloc(std::max<size_t>(bytes, 1))
                           : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace
}  // namespace moe

// The other forms of new and delete call these. Not inlined: the compiler would see a new that is not this one.
[[gnu::noinline]] void* operator new(size_t bytes) {
  return moe::Allocate(bytes, 0);
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return moe::Allocate(bytes, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace moe {
namespace {

constexpr int kStreams = 6;
constexpr int64_t kPrompt = 10;
constexpr int64_t kWarm = 100;   // steps that are not looked at
constexpr int64_t kSteps = 300;  // those that are

// Notes how many allocations there had been when its tokens came: all streams get one in every step.
class Stream : public ResponseSink {
 public:
  Stream() { seen_.reserve(2 * (kWarm + kSteps)); }
  void OnOutput(OutputChunk chunk) override {
    if (chunk.tokens.empty()) return;
    seen_.push_back(allocations.load());
  }
  void OnDone(const Status& status, const RequestTimes&) override {
    const std::lock_guard lock(mutex_);
    ok_ = status.ok();
    done_ = true;
    changed_.notify_all();
  }
  bool Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return ok_;
  }
  // Allocations from token i - 1 to token i.
  int64_t Of(int64_t token) const { return seen_[static_cast<size_t>(token)] - seen_[static_cast<size_t>(token) - 1]; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false, ok_ = false;
  std::vector<int64_t> seen_;
};

struct Case {
  std::string model;
  int ranks;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " on " << c.ranks << " ranks";
}

class StepAllocations : public testing::TestWithParam<Case> {};

TEST_P(StepAllocations, NoneButWhatClientsGet) {
  is_client = true;
  void* unused[1];
  backtrace(unused, 1);  // loads what it needs
  const auto files = OpenModelDirectory(std::string(MOE_SOURCE_DIR) + "/loaders/demo/" + GetParam().model);
  ASSERT_TRUE(files.ok()) << files.status();
  auto model = LoadModel(**files, {});
  ASSERT_TRUE(model.ok()) << model.status();
  EngineOptions options;
  options.threads = 2;
  options.expert_parallel_size = GetParam().ranks;
  options.max_model_len = 512;
  options.max_num_seqs = 16;
  options.kv_cache_memory_gib = 0.05;
  auto engine = Engine::Create(*std::move(model), options, nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status();

  {
    const std::lock_guard lock(sites_mutex);
    sites = {};
  }
  allocations = 0;
  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < kStreams; ++i) {
    Request r;
    for (int64_t t = 0; t < kPrompt; ++t) r.prompt.push_back(static_cast<int32_t>(10 + 7 * t + i));
    r.max_new_tokens = kWarm + kSteps + 10;
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    if (i == 3) r.sampling.top_p = 0.9f;
    if (i == 5) r.sampling.frequency_penalty = 0.5f;
    streams.push_back(std::make_shared<Stream>());
    ASSERT_TRUE((*engine)->Submit(std::move(r), streams.back()).ok());
  }
  counting = true;
  for (const auto& stream : streams) EXPECT_TRUE(stream->Await());
  counting = false;

  // By step, seen from the first stream: beside the border of a K/V block, and others. All streams stand at the same
  // position. Token i is drawn from position kPrompt + i - 1.
  std::array<std::vector<int64_t>, 2> steps;
  for (int64_t i = kWarm; i < kWarm + kSteps; ++i) {
    const int64_t in_block = (kPrompt + i) % kKvBlockTokens;
    steps[in_block <= 2 ? 1 : 0].push_back(streams[0]->Of(i));
  }
  int64_t total = 0;
  for (int border = 0; border < 2; ++border) {
    std::vector<int64_t>& counts = steps[border];
    std::sort(counts.begin(), counts.end());
    const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    total += sum;
    std::printf("%s: %zu steps, allocations a step: least %ld, median %ld, most %ld, mean %.2f\n",
                border == 0 ? "inside blocks" : "beside a block's border", counts.size(),
                static_cast<long>(counts.front()), static_cast<long>(counts[counts.size() / 2]),
                static_cast<long>(counts.back()), static_cast<double>(sum) / static_cast<double>(counts.size()));
    // The tokens that each client gets are a vector of its own.
    EXPECT_EQ(counts[counts.size() / 2], kStreams);
  }
  // Lists of a sequence's tokens and blocks grow by doubling, here and on its rank.
  EXPECT_LE(total - kSteps * kStreams, 12 * kStreams);
  if (HasFailure() || std::getenv("MOE_PRINT_ALLOCATIONS") != nullptr) PrintSites();
}

INSTANTIATE_TEST_SUITE_P(Demo, StepAllocations,
                         testing::Values(Case{"shakespeare-qwen3moe", 1}, Case{"shakespeare-qwen3moe", 2},
                                         Case{"shakespeare-nemotronh", 1}, Case{"shakespeare-nemotronh", 2}),
                         [](const auto& info) {
                           const std::string& name = info.param.model;
                           return Cat(name.substr(name.find('-') + 1), "_", info.param.ranks);
                         });

}  // namespace
}  // namespace moe
