// Every configuration of tests/data/configs at full size, without weights: it is read and accepted, has as many
// parameters as is published, and its tensors are planned such that of an index of these names nothing is missing or
// unknown but what the test takes out and puts in.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "loaders/architectures.h"
#include "loaders/name_matcher.h"
#include "loaders/parameter_count.h"
#include "loaders/tensor_plan.h"
#include "loaders/weight_index.h"

namespace moe {
namespace {

struct Published {
  const char* name;
  // Elements in the published files, where these hold the language model and nothing else.
  int64_t stored = 0;
  // In billions, as precise as they are stated. Empty: not known, or not of the language model alone.
  const char* total = "";
  const char* active = "";
};

constexpr Published kPublished[] = {
    {"Aleph-Alpha--Kolibri-1", 78103074560, "78"},
    {"CohereLabs--North-Mini-Code-1.0", 30484303872, "30", "3"},
    {"CohereLabs--command-a-plus-05-2026", 0, "218", "25"},
    {"JetBrains--Mellum2-12B-A2.5B-Thinking", 12149923072, "12", "2.5"},
    {"LGAI-EXAONE--K-EXAONE-236B-A23B", 0, "236", "23"},
    {"LiquidAI--LFM2-8B-A1B", 0, "8.3", "1.5"},
    {"LiquidAI--LFM2.5-8B-A1B", 8467856832, "", "1.5"},
    {"MiniMaxAI--MiniMax-M2", 0, "230", "10"},
    {"MiniMaxAI--MiniMax-M3", 0, "428", "23"},
    {"MiniMaxAI--MiniMax-Text-01", 456089655296, "456", "45.9"},
    {"MiniMaxAI--MiniMax-Text-01-hf", 0, "456", "45.9"},
    {"Qwen--Qwen1.5-MoE-A2.7B-Chat", 14315784192, "14.3", "2.7"},
    {"Qwen--Qwen3-235B-A22B", 235093634560, "235", "22"},
    {"Qwen--Qwen3-30B-A3B", 30532122624, "30.5", "3.3"},
    {"Qwen--Qwen3-Next-80B-A3B-Instruct", 0, "80", "3"},
    {"Qwen--Qwen3-Omni-30B-A3B-Instruct", 0, "30", "3"},
    {"Qwen--Qwen3-VL-30B-A3B-Instruct", 0, "30", "3"},
    {"Qwen--Qwen3.5-35B-A3B", 0, "35", "3"},
    {"Qwen--Qwen3.5-397B-A17B", 0, "397", "17"},
    {"Qwen--Qwen3.8-Flash-Next", 0, "176", "6"},  // 125 and 51 of n-gram tables
    {"RecursiveSI--flint"},
    {"Snowflake--snowflake-arctic-instruct", 0, "480", "17"},
    {"TitanML--tiny-mixtral", 0, "0.247"},
    {"XiaomiMiMo--MiMo-V2-Flash", 0, "309", "15"},
    {"XiaomiMiMo--MiMo-V2.5-Pro", 0, "1020", "42"},
    {"Zyphra--ZAYA1-8B", 8840489464, "", "0.76"},
    {"ai21labs--Jamba-tiny-dev", 0, "0.319"},
    {"ai21labs--Jamba-v0.1", 51570323328, "52", "12"},
    {"allenai--Flex-reddit-2x7B-1T"},
    {"allenai--OLMoE-1B-7B-0924-Instruct", 6919161856, "6.9", "1.3"},
    {"arcee-ai--Trinity-Large-Base", 398635286016, "398", "13"},
    {"arcee-ai--Trinity-Nano-Preview", 0, "6", "1"},
    {"baidu--ERNIE-4.5-21B-A3B-PT", 0, "21", "3"},
    {"baidu--ERNIE-4.5-VL-28B-A3B-PT", 0, "", "3"},
    {"bharatgenai--Param2-17B-A2.4B-Thinking", 0, "17", "2.4"},
    {"databricks--dbrx-instruct", 131596523520, "132", "36"},
    {"deepseek-ai--DeepSeek-V2", 235741434880, "236", "21"},
    {"deepseek-ai--DeepSeek-V2-Lite-Chat", 15706484224, "15.7", "2.4"},
    {"deepseek-ai--DeepSeek-V3", 0, "671", "37"},
    {"deepseek-ai--DeepSeek-V3.2", 0, "671", "37"},
    {"deepseek-ai--DeepSeek-V4-Flash", 0, "284", "13"},
    {"dots-studio--dots3-note-prev", 0, "280", "16"},
    {"google--gemma-4-26B-A4B", 0, "26", "4"},
    {"google--gemma-4-E2B-it", 0, "", "2.3"},
    {"hpcai-tech--grok-1", 0, "314"},
    {"ibm--PowerMoE-3b", 0, "3.3", "0.8"},
    {"ibm-granite--granite-4.0-h-small", 0, "32", "9"},
    {"ibm-granite--granite-swash-3b-a600m", 0, "3", "0.6"},
    {"ibm-research--moe-7b-1b-active-shared-experts", 0, "7", "1"},
    {"inclusionAI--Ling-3.0-flash", 0, "124"},
    {"inclusionAI--Ling-lite-1.5", 0, "16.8", "2.75"},
    {"inclusionAI--Ling-mini-2.0", 0, "16", "1.4"},
    {"inclusionAI--Ring-2.5-1T", 1012231160320, "1000", "63"},
    {"jetmoe--jetmoe-8b", 0, "8", "2.2"},
    {"meituan-longcat--LongCat-Flash-Chat-FP8", 0, "560", "31.3"},  // at most: 18.6 with many identity experts
    {"meituan-longcat--LongCat-Flash-Lite", 0, "68.5"},
    {"meta-llama--Llama-4-Maverick-17B-128E-Instruct", 0, "400", "17"},
    {"meta-llama--Llama-4-Scout-17B-16E-Instruct", 0, "109", "17"},
    {"microsoft--Phi-3.5-MoE-instruct", 0, "41.9", "6.6"},
    {"mistralai--Mistral-Small-4-119B-2603", 0, "119", "6.5"},
    {"mistralai--Mixtral-8x22B-v0.1", 0, "141", "39"},
    {"mistralai--Mixtral-8x7B-v0.1", 46702792704, "46.7", "12.9"},
    {"moonshotai--Kimi-K2-Instruct", 0, "1000", "32"},
    {"moonshotai--Kimi-K2.5", 0, "1000", "32"},
    {"moonshotai--Kimi-Linear-48B-A3B-Instruct", 49122681728, "48", "3"},
    {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B", 0, "31.6", "3.6"},
    {"nvidia--NVIDIA-Nemotron-3-Super-120B-A12B", 0, "120", "12"},
    {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B", 0, "550", "55"},
    {"openai--gpt-oss-120b", 0, "117", "5.1"},
    {"openai--gpt-oss-20b", 20914757184, "21", "3.6"},
    {"poolside--Laguna-XS.2", 33442617088, "33", "3"},
    {"rednote-hilab--dots.llm1.inst", 0, "142", "14"},
    {"reflection--Beam-1.0-501B-A23B", 0, "501", "23"},
    {"rhymes-ai--Aria", 0, "24.9", "3.5"},
    {"sarvamai--sarvam-105b", 106031767424, "105", "10.3"},
    {"sarvamai--sarvam-30b", 32152650368, "", "2.4"},
    {"skt--A.X-K1", 0, "519", "33"},
    {"skt--A.X-K2", 0, "688", "33"},
    {"stepfun-ai--Step-3.5-Flash", 0, "196", "11"},
    {"stepfun-ai--Step-3.7-Flash", 0, "196", "11"},
    {"stepfun-ai--step3", 0, "316", "38"},
    {"tencent--Hunyuan-A13B-Instruct", 0, "80", "13"},
    {"tencent--Hy3-preview", 0, "295", "21"},
    {"tencent--Hy4-preview", 0, "770", "49"},
    {"thinkingmachines--Inkling", 0, "975", "41"},
    {"translated--Lara-4-Mini-Base"},
    {"upstage--Solar-Open-100B", 0, "102", "12"},
    {"xai-org--grok-2", 0, "270"},
    {"zai-org--GLM-4.5-Air", 0, "106", "12"},
    {"zai-org--GLM-4.5-FP8", 0, "355", "32"},
    {"zai-org--GLM-4.5V", 0, "106", "12"},
    {"zai-org--GLM-4.7-Flash", 0, "30", "3"},
    {"zai-org--GLM-5", 0, "744", "40"},
    {"zai-org--GLM-5.2", 0, "744", "40"},
};

std::filesystem::path Folder() {
  return std::filesystem::path(MOE_TEST_DATA_DIR) / "configs";
}

// Within 3 % and what rounding to the stated digits may have changed.
bool Agrees(int64_t parameters, const std::string& stated) {
  const double billions = std::atof(stated.c_str());
  const size_t point = stated.find('.');
  const double digits = point == std::string::npos ? 0 : static_cast<double>(stated.size() - point - 1);
  return std::abs(static_cast<double>(parameters) / 1e9 - billions) <= 0.03 * billions + 0.5 * std::pow(10, -digits);
}

void CheckSize(const Published& published, const ParameterCount& count) {
  const std::string total = published.total;
  const std::string active = published.active;
  EXPECT_TRUE(total.empty() || Agrees(count.total, total)) << count.total << ", published " << total << " billion";
  if (active.empty()) return;
  const int64_t without_embedding = count.active - count.embedding;
  EXPECT_TRUE(Agrees(count.active, active) || Agrees(without_embedding, active) ||
              Agrees(without_embedding - count.head, active))
      << count.active << ", " << without_embedding << " without the embedding, " << without_embedding - count.head
      << " without the head; published " << active << " billion";
}

// How many of the needed tensors are in this one of the checkpoint.
int64_t HeldBy(const std::string& tensor, const ModelDescription& model) {
  int64_t count = 0;
  ForEachRequiredTensor(model.spec, [&](const TensorNeed& need) {
    const CanonicalName name = ParseCanonicalName(need.name);
    count += FillPattern(RulesOf(model.rules, need, name).front().checkpoint, name.layer, name.expert) == tensor;
  });
  return count;
}

// Of an index of all planned names but one, and with one that nothing uses, exactly that is said.
void CheckNames(WeightIndex index, ModelDescription* model) {
  const auto middle = std::next(index.shard_of.begin(), static_cast<std::ptrdiff_t>(index.shard_of.size() / 2));
  const std::string removed = middle->first;
  index.shard_of.erase(middle);
  index.shard_of.emplace("model.layers.0.surplus.weight", "");
  const IndexReport report = CheckWeightIndex(index, *InMemoryModelFiles("", {}), &model->spec, model->rules);
  EXPECT_FALSE(report.sound());
  EXPECT_EQ(report.missing.count, HeldBy(removed, *model)) << removed;
  for (const std::string& name : report.missing.first) EXPECT_TRUE(name.starts_with(removed)) << name;
  EXPECT_EQ(report.unknown.count, 1) << report.unknown.first[0];
  EXPECT_EQ(report.quantized, "");
  EXPECT_TRUE(report.ignored.empty());
}

class FullSizeTest : public ::testing::TestWithParam<Published> {};

TEST_P(FullSizeTest, IsReadSizedAndPlanned) {
  const Published& published = GetParam();
  const std::filesystem::path path = Folder() / (std::string(published.name) + ".json");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  auto model = ReadModelConfig(text.str(), path.filename());
  ASSERT_TRUE(model.ok()) << model.status();
  CheckSize(published, CountParameters(model->spec));

  WeightIndex index;
  const TensorPlan plan =
      PlanTensors(model->spec, model->rules, [&index](const std::string& name) { index.shard_of.emplace(name, ""); });
  ASSERT_EQ(plan.count, static_cast<int64_t>(index.shard_of.size()));
  if (published.stored > 0) {
    EXPECT_EQ(plan.parameters, published.stored);
  }
  // Few patterns, whatever the number of layers and experts.
  EXPECT_LT(plan.tensors.size(), 200u);
  CheckNames(std::move(index), &*model);
}

INSTANTIATE_TEST_SUITE_P(Configs, FullSizeTest, ::testing::ValuesIn(kPublished), [](const auto& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(FullSizeTableTest, EveryFileIsInTheTable) {
  std::set<std::string> names;
  for (const Published& published : kPublished) names.insert(published.name);
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    if (entry.path().extension() == ".json") {
      EXPECT_TRUE(names.contains(entry.path().stem())) << entry.path();
    }
  }
}

}  // namespace
}  // namespace moe
