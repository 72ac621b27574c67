// The numerics contract on both demo models: a request's tokens and log-probabilities are the same bits alone, in any
// batch, however chunked, recomputed, with any number of threads and over any number of ranks.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <random>

#include "nlohmann/json.hpp"
#include "tests/engine/model/test_model.h"

namespace moe {
namespace {

constexpr int64_t kNewTokens = 12;

std::vector<std::vector<int32_t>> Prompts() {
  std::ifstream in(std::string(MOE_TEST_DATA_DIR) + "/demo/shakespeare-qwen3moe.golden.json");
  const auto ids = nlohmann::json::parse(in)["validation"]["ids"].get<std::vector<int32_t>>();
  std::vector<std::vector<int32_t>> prompts;
  size_t begin = 0;
  for (size_t length : {1, 2, 31, 32, 33, 64, 97, 150, 7}) {
    prompts.emplace_back(ids.begin() + begin, ids.begin() + begin + length);
    begin += length;
  }
  return prompts;
}

// Everything a client could see of a sequence, as bits.
std::vector<uint32_t> Bits(const TestSequence& s) {
  std::vector<uint32_t> bits;
  for (const std::vector<TokenInfo>* list : {&s.tokens, &s.prompt_tokens}) {
    for (const TokenInfo& t : *list) {
      bits.push_back(static_cast<uint32_t>(t.id));
      bits.push_back(std::bit_cast<uint32_t>(t.logprob));
      for (const TokenProb& p : t.top) {
        bits.push_back(static_cast<uint32_t>(p.id));
        bits.push_back(std::bit_cast<uint32_t>(p.logprob));
      }
    }
  }
  bits.insert(bits.end(), s.expert_ids.begin(), s.expert_ids.end());
  return bits;
}

TestSequence* AddWatched(TestModel& model, const std::vector<int32_t>& prompt, int rank) {
  TestSequence* s = model.Add(prompt, rank);
  s->init.logprobs = 20;
  s->init.prompt_logprobs = 5;
  s->init.routed_experts = true;
  // Odd ones sample, so that random numbers are part of the promise.
  if (prompt.size() % 2 == 1) s->init.sampling.temperature = 0.8f;
  s->init.sampling.seed = prompt.size();
  return s;
}

struct Case {
  std::string model;
  std::string backend;
  DType format;
};

class Contract : public testing::TestWithParam<Case> {
 protected:
  TestModelOptions Options() const { return {.backend = GetParam().backend, .format = GetParam().format}; }
  std::string Directory() const { return std::string(MOE_SOURCE_DIR) + "/loaders/demo/" + GetParam().model; }

  // Each prompt alone, whole.
  std::vector<std::vector<uint32_t>> Expected() const {
    TestModel model(Directory(), Options());
    std::vector<std::vector<uint32_t>> expected;
    for (const std::vector<int32_t>& prompt : Prompts()) {
      TestSequence* s = AddWatched(model, prompt, 0);
      model.Run({s}, kNewTokens, 1000);
      expected.push_back(Bits(*s));
      model.Drop(s);
    }
    return expected;
  }

  // All prompts together over the ranks, in chunks.
  std::vector<std::vector<uint32_t>> Together(const TestModelOptions& options, int64_t chunk) const {
    TestModel model(Directory(), options);
    std::vector<TestSequence*> all;
    for (const std::vector<int32_t>& prompt : Prompts()) {
      all.push_back(AddWatched(model, prompt, static_cast<int>(all.size()) % options.ranks));
    }
    model.Run(all, kNewTokens, chunk);
    std::vector<std::vector<uint32_t>> bits;
    for (const TestSequence* s : all) bits.push_back(Bits(*s));
    return bits;
  }
};

TEST_P(Contract, AloneEqualsBatchedEqualsChunked) {
  const auto expected = Expected();
  // The scalar reference is slow, and its promise is plain to see.
  const bool reference = GetParam().backend == "reference";
  for (int64_t chunk : reference ? std::vector<int64_t>{5} : std::vector<int64_t>{1, 5, 32, 64, 1000})
    EXPECT_EQ(Together(Options(), chunk), expected) << "chunks of " << chunk;
}

TEST_P(Contract, ThreadsDoNotMatter) {
  if (GetParam().backend == "reference") return;  // it has none
  const auto expected = Expected();
  for (int threads : {2, 3}) {
    TestModelOptions options = Options();
    options.threads = threads;
    EXPECT_EQ(Together(options, 40), expected) << threads << " threads";
  }
}

TEST_P(Contract, RanksDoNotMatter) {
  const auto expected = Expected();
  for (int ranks : {2, 3, 5}) {
    if (GetParam().backend == "reference" && ranks != 3) continue;
    for (bool round_robin : {false, true}) {
      TestModelOptions options = Options();
      options.ranks = ranks;
      options.round_robin = round_robin;
      EXPECT_EQ(Together(options, 50), expected) << ranks << " ranks, round robin " << round_robin;
    }
  }
}

// A rank without any tokens takes part in every exchange.
TEST_P(Contract, IdleRanksDoNotMatter) {
  TestModelOptions options = Options();
  options.ranks = 4;
  TestModel model(Directory(), options);
  TestSequence* s = AddWatched(model, Prompts()[6], 2);
  model.Run({s}, kNewTokens, 13);
  EXPECT_EQ(Bits(*s), Expected()[6]);
}

// Preempted and started again from its tokens: the generated ones are computed a second time.
TEST_P(Contract, RecomputedEqualsUndisturbed) {
  const auto expected = Expected();
  TestModel model(Directory(), Options());
  const std::vector<int32_t> prompt = Prompts()[4];
  TestSequence* first = AddWatched(model, prompt, 0);
  model.Run({first}, 5, 1000);
  model.Drop(first);
  TestSequence* again = AddWatched(model, prompt, 0);
  for (const TokenInfo& t : first->tokens) again->init.tokens.push_back(t.id);
  again->tokens = first->tokens;
  model.Run({again}, kNewTokens, 1000);
  EXPECT_EQ(Bits(*again), expected[4]);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* model : {"shakespeare-nemotronh", "shakespeare-qwen3moe"}) {
    cases.push_back({model, "reference", DType::kBF16});
    for (CpuIsa isa : {CpuIsa::kAmx, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2}) {
      if (!CpuIsaAvailable(isa)) continue;
      cases.push_back({model, CpuIsaName(isa), DType::kBF16});
      cases.push_back({model, CpuIsaName(isa), DType::kF32});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, Contract, testing::ValuesIn(Cases()), [](const auto& info) {
  return info.param.model.substr(info.param.model.find('-') + 1) + "_" + info.param.backend + "_" +
         DTypeName(info.param.format);
});

}  // namespace
}  // namespace moe
