// Speculative decoding on every model family and both demo models: whatever is guessed, true or false, tokens,
// log-probabilities and experts are the bits of a run without guesses.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <random>

#include "nlohmann/json.hpp"
#include "tests/engine/model/test_model.h"

namespace moe {
namespace {

constexpr int64_t kNewTokens = 40;  // past a border of blocks, wherever the prompt ends
constexpr int64_t kMostGuesses = 7;

std::vector<std::string> Directories() {
  std::vector<std::string> directories;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(MOE_TEST_DATA_DIR) + "/families", error)) {
    if (std::filesystem::exists(entry.path() / "golden.json")) directories.push_back(entry.path());
  }
  std::sort(directories.begin(), directories.end());
  for (const char* demo : {"shakespeare-nemotronh", "shakespeare-qwen3moe"}) {
    directories.push_back(std::string(MOE_SOURCE_DIR) + "/loaders/demo/" + demo);
  }
  return directories;
}

// Three prompts of any tokens: one shorter than convolutions look back, one that crosses a border of blocks soon.
std::vector<std::vector<int32_t>> Prompts(int64_t vocab) {
  std::mt19937_64 random(5);
  std::vector<std::vector<int32_t>> prompts;
  for (const size_t length : {2, 29, 50}) {
    std::vector<int32_t>& prompt = prompts.emplace_back();
    while (prompt.size() < length) prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
  }
  return prompts;
}

TestSequence* AddWatched(TestModel& model, const std::vector<int32_t>& prompt, int rank) {
  TestSequence* s = model.Add(prompt, rank);
  s->init.logprobs = 20;
  s->init.routed_experts = true;
  s->init.sampling.seed = prompt.size();
  if (prompt.size() % 2 == 1) {  // sampled, with everything that depends on the tokens before
    s->init.sampling.temperature = 0.9f;
    s->init.sampling.repetition_penalty = 1.1f;
    s->init.sampling.frequency_penalty = 0.3f;
    s->init.sampling.top_p = 0.95f;
    s->init.min_new_tokens = 20;
    s->init.end_ids = {3, 7};
  }
  return s;
}

// Of the first kNewTokens; a run with guesses may have more.
std::vector<uint32_t> Bits(const ModelSpec& spec, const TestSequence& s) {
  std::vector<uint32_t> bits;
  for (int64_t t = 0; t < kNewTokens; ++t) {
    const TokenInfo& token = s.tokens[static_cast<size_t>(t)];
    bits.push_back(static_cast<uint32_t>(token.id));
    bits.push_back(std::bit_cast<uint32_t>(token.logprob));
    bits.push_back(token.rank);
    for (const TokenProb& p : token.top) {
      bits.push_back(static_cast<uint32_t>(p.id));
      bits.push_back(std::bit_cast<uint32_t>(p.logprob));
    }
  }
  const auto positions = s.init.prompt_len + kNewTokens - 1;  // that went through the model for these
  const int64_t width = static_cast<int64_t>(spec.MoeLayers().size()) * spec.MaxTopK();
  bits.insert(bits.end(), s.expert_ids.begin(), s.expert_ids.begin() + positions * width);
  return bits;
}

class Speculation : public testing::TestWithParam<std::string> {};

TEST_P(Speculation, SameBits) {
  int64_t accepted = 0;
  int64_t refused = 0;
  for (const DType format : {DType::kF32, DType::kBF16}) {
    std::vector<std::vector<uint32_t>> want;
    std::vector<std::vector<int32_t>> truth;  // the tokens to come, known to the guesser
    std::vector<std::vector<int32_t>> prompts;
    {
      TestModel model(GetParam(), {.backend = "auto", .format = format});
      prompts = Prompts(model.spec().vocab_size);
      for (const std::vector<int32_t>& prompt : prompts) {
        TestSequence* s = AddWatched(model, prompt, 0);
        model.Run({s}, kNewTokens + kMostGuesses + 1, 1000);
        want.push_back(Bits(model.spec(), *s));
        truth.push_back(s->init.tokens);
        model.Drop(s);
      }
    }
    for (const int ranks : {1, 3}) {
      TestModel model(GetParam(), {.backend = "auto", .format = format, .ranks = ranks, .threads = ranks == 1 ? 2 : 1});
      std::vector<TestSequence*> all;
      for (const std::vector<int32_t>& prompt : prompts) {
        all.push_back(AddWatched(model, prompt, static_cast<int>(all.size()) % ranks));
      }
      std::mt19937_64 random(static_cast<uint64_t>(ranks));
      for (;;) {
        std::vector<TestModel::Part> parts;
        std::vector<int64_t> before;
        for (size_t i = 0; i < all.size(); ++i) {
          TestSequence& s = *all[i];
          if (static_cast<int64_t>(s.tokens.size()) >= kNewTokens) continue;
          TestModel::Part& part = parts.emplace_back(TestModel::Part{&s, 1 + static_cast<int64_t>(random() % 40)});
          before.push_back(static_cast<int64_t>(s.tokens.size()));
          if (s.computed < s.init.prompt_len) continue;
          const size_t count = random() % (kMostGuesses + 1);
          const size_t wrong = random() % 2 == 0 ? count : random() % (kMostGuesses + 1);
          for (size_t g = 0; g < count; ++g) {
            const int32_t token = truth[i][s.init.tokens.size() + g];
            part.draft.push_back(g == wrong ? (token + 1) % static_cast<int32_t>(model.spec().vocab_size) : token);
          }
        }
        if (parts.empty()) break;
        model.Step(parts);
        for (size_t p = 0; p < parts.size(); ++p) {
          const TestSequence& s = *parts[p].sequence;
          const int64_t drawn = static_cast<int64_t>(s.tokens.size()) - before[p];
          const auto guesses = static_cast<int64_t>(parts[p].draft.size());
          accepted += std::max<int64_t>(drawn - 1, 0);
          refused += drawn > 0 ? guesses - (drawn - 1) : 0;
        }
      }
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_TRUE(Bits(model.spec(), *all[i]) == want[i])
            << DTypeName(format) << " prompt " << i << ", " << ranks << " ranks";
      }
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

INSTANTIATE_TEST_SUITE_P(Models, Speculation, testing::ValuesIn(Directories()), [](const auto& info) {
  std::string name = std::filesystem::path(info.param).filename();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace moe
