// Both demo models against what transformers computed from them (tests/data/demo), at the level of the rank worker.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/engine/model/test_model.h"

namespace moe {
namespace {

using Json = nlohmann::json;

std::string DemoDir(const std::string& name) {
  return std::string(MOE_SOURCE_DIR) + "/loaders/demo/" + name;
}

Json Golden(const std::string& name) {
  std::ifstream in(std::string(MOE_TEST_DATA_DIR) + "/demo/" + name + ".golden.json");
  return Json::parse(in);
}

// logits [V] → log-probability of each token.
std::vector<double> LogSoftmax(const std::vector<double>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double v : logits) sum += std::exp(v - max);
  std::vector<double> out;
  for (double v : logits) out.push_back(v - max - std::log(sum));
  return out;
}

struct Case {
  std::string model;
  std::string backend;
};

class DemoGolden : public testing::TestWithParam<Case> {};

TEST_P(DemoGolden, GreedyTokensAndLogProbabilities) {
  const Json golden = Golden(GetParam().model);
  TestModel model(DemoDir(GetParam().model), {.backend = GetParam().backend});
  for (const Json& prompt : golden["prompts"]) {
    TestSequence* s = model.Add(prompt["prompt_ids"].get<std::vector<int32_t>>());
    s->init.logprobs = -1;
    model.Run({s}, 64, 512);
    const auto expected = LogSoftmax(prompt["last_logits"].get<std::vector<double>>());
    ASSERT_EQ(s->tokens[0].top.size(), expected.size());
    double worst = 0;
    for (const TokenProb& p : s->tokens[0].top) worst = std::max(worst, std::abs(p.logprob - expected[p.id]));
    EXPECT_LE(worst, 2e-3) << prompt["name"];
    std::vector<int32_t> ids;
    for (const TokenInfo& t : s->tokens) ids.push_back(t.id);
    EXPECT_EQ(ids, prompt["greedy_ids"].get<std::vector<int32_t>>())
        << prompt["name"] << ", smallest gap " << prompt["greedy_min_gap"];
    model.Drop(s);
  }
}

// The first windows of the validation text: loss and routing.
TEST_P(DemoGolden, ValidationLossAndRouting) {
  const Json golden = Golden(GetParam().model);
  const Json& validation = golden["validation"];
  const auto ids = validation["ids"].get<std::vector<int32_t>>();
  const int64_t window = validation["window"].get<int64_t>();
  TestModel model(DemoDir(GetParam().model), {.backend = GetParam().backend});
  const int64_t windows = GetParam().backend == "reference" ? 3 : validation["windows"].get<int64_t>();
  double total = 0;
  for (int64_t w = 0; w < windows; ++w) {
    TestSequence* s = model.Add({ids.begin() + w * window, ids.begin() + (w + 1) * window});
    s->init.prompt_logprobs = 0;
    model.Run({s}, 1, 512);
    model.Drop(s);
    double loss = 0;
    for (int64_t i = 1; i < window; ++i) loss -= s->prompt_tokens[i].logprob;
    loss /= static_cast<double>(window - 1);
    total += loss;
    EXPECT_NEAR(loss, validation["window_losses"][w].get<double>(), 1e-4) << "window " << w;
  }
  if (windows != validation["windows"].get<int64_t>()) return;
  EXPECT_NEAR(total / static_cast<double>(windows), validation["loss"].get<double>(), 1e-5);
  std::vector<int64_t> counts;
  for (const Json& layer : validation["routing_counts"]) {
    for (const Json& count : layer) counts.push_back(count.get<int64_t>());
  }
  ASSERT_EQ(model.expert_tokens().size(), counts.size());
  int64_t different = 0;
  for (size_t i = 0; i < counts.size(); ++i) different += std::abs(counts[i] - model.expert_tokens()[i]);
  // A nearly tied selection may fall either way; of 20,480 tokens × layers × 4 choices next to none does.
  EXPECT_LE(different, 8);
}

INSTANTIATE_TEST_SUITE_P(Models, DemoGolden,
                         testing::Values(Case{"shakespeare-nemotronh", "reference"},
                                         Case{"shakespeare-qwen3moe", "reference"},
                                         Case{"shakespeare-nemotronh", "auto"}, Case{"shakespeare-qwen3moe", "auto"}),
                         [](const auto& info) {
                           return info.param.model.substr(info.param.model.find('-') + 1) + "_" + info.param.backend;
                         });

}  // namespace
}  // namespace moe
