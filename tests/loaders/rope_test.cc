// Frequencies against values computed from the published formulas in double precision.
#include "loaders/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "loaders/json_text.h"

namespace moe {
namespace {

struct Result {
  RopeSpec rope;
  Status status;
};

Result Read(const std::string& text, RopeDefaults defaults) {
  const StatusOr<nlohmann::json> json = ParseJson(text, "config.json");
  EXPECT_TRUE(json.ok()) << json.status();
  ConfigReader config(&*json, "config.json");
  Result result{ReadRope(&config, defaults), {}};
  result.status = config.status();
  return result;
}

void ExpectFrequencies(const RopeSpec& rope, const std::vector<double>& expected) {
  ASSERT_EQ(rope.inv_freq.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(rope.inv_freq[i] / expected[i], 1.0, 3e-7) << i;
}
TEST(RopeTest, Default) {
  const Result result = Read("{}", {.head_dim = 8});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.rope.rotary_dim, 8);
  EXPECT_EQ(result.rope.cos_sin_scale, 1.0);
  ExpectFrequencies(result.rope, {1, 0.1, 0.01, 0.001});
}

TEST(RopeTest, Linear) {
  const Result result = Read(R"({"rope_scaling": {"type": "linear", "factor": 4.0}})", {.head_dim = 8});
  ASSERT_TRUE(result.status.ok()) << result.status;
  ExpectFrequencies(result.rope, {0.25, 0.025, 0.0025, 0.00025});
}

// The second frequency is in the blended range, the first one short, the others long.
TEST(RopeTest, Llama3) {
  const Result result = Read(R"({"rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})",
                             {.head_dim = 16});
  ASSERT_TRUE(result.status.ok()) << result.status;
  ExpectFrequencies(result.rope, {1, 0.0794030092, 0.00470075387, 0.000911583092, 0.000176776695, 3.4281022e-05,
                                  6.64786987e-06, 1.28917317e-06});
}

// Llama-4 Scout: equal factors, nothing is blended.
TEST(RopeTest, Llama3WithoutABlend) {
  const Result result = Read(R"({"rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 1.0, "original_max_position_embeddings": 64}})",
                             {.head_dim = 8});
  ASSERT_TRUE(result.status.ok()) << result.status;
  ExpectFrequencies(result.rope, {1, 0.0376060309 / 8, 0.00141421356 / 8, 5.31829589e-05 / 8});
}

TEST(RopeTest, YarnOfDeepSeek) {
  const Result result = Read(R"({"rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32,
      "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})",
                             {.head_dim = 16, .layout = RopeSpec::Layout::kInterleaved});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.rope.layout, RopeSpec::Layout::kInterleaved);
  EXPECT_EQ(result.rope.cos_sin_scale, 1.0);
  ExpectFrequencies(result.rope,
                    {1, 0.316227766, 0.1, 0.0239147248, 0.005125, 0.000849862121, 2.5e-05, 7.90569415e-06});
  EXPECT_NEAR(YarnMagnitude(40, 1) * YarnMagnitude(40, 1), 1.8738542, 1e-6);
}

TEST(RopeTest, YarnOfGptOssIsNotTruncated) {
  const Result result = Read(R"({"rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
      "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096}})",
                             {.head_dim = 16});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_NEAR(result.rope.cos_sin_scale, 1.3465736, 1e-6);
  ExpectFrequencies(result.rope, {1, 0.225418, 0.0508132748, 0.00679495949, 0.000456483919, 1.81883367e-05,
                                  4.09997848e-06, 9.2420895e-07});
}

TEST(RopeTest, YarnAttentionFactor) {
  const Result ratio = Read(R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 1.0, "mscale_all_dim": 0.8,
      "original_max_position_embeddings": 32}})",
                            {.head_dim = 16});
  EXPECT_NEAR(ratio.rope.cos_sin_scale, 1.02495796, 1e-7);
  const Result given = Read(R"({"rope_scaling": {"type": "yarn", "factor": 4, "attention_factor": 1.25,
      "original_max_position_embeddings": 32}})",
                            {.head_dim = 16});
  EXPECT_EQ(given.rope.cos_sin_scale, 1.25);
}

TEST(RopeTest, AlphaStretchesTheBase) {
  const Result result =
      Read(R"({"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}})", {.head_dim = 8});
  ASSERT_TRUE(result.status.ok()) << result.status;
  ExpectFrequencies(result.rope, {1, 0.01, 0.0001, 1e-06});
}

TEST(RopeTest, StylesAgree) {
  const RopeDefaults defaults{.head_dim = 16, .max_positions = 64};
  const Result old_style = Read(R"({"rope_theta": 50000, "rope_scaling": {"type": "linear", "factor": 2}})", defaults);
  const Result new_style =
      Read(R"({"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 50000}})", defaults);
  const Result both = Read(R"({"rope_theta": 50000, "rope_scaling": {"type": "linear", "factor": 2},
      "rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 50000}})",
                           defaults);
  ASSERT_TRUE(old_style.status.ok() && new_style.status.ok() && both.status.ok()) << both.status;
  EXPECT_EQ(old_style.rope.inv_freq, new_style.rope.inv_freq);
  EXPECT_EQ(old_style.rope.inv_freq, both.rope.inv_freq);
}

TEST(RopeTest, PerLayerType) {
  const std::string text =
      R"({"rope_parameters": {"full_attention": {"rope_theta": 500000, "partial_rotary_factor": 0.5},
      "sliding_attention": {"rope_theta": 10000}}})";
  const Result full = Read(text, {.head_dim = 16, .layer_type = "full_attention"});
  const Result sliding = Read(text, {.head_dim = 16, .layer_type = "sliding_attention"});
  ASSERT_TRUE(full.status.ok() && sliding.status.ok());
  EXPECT_EQ(full.rope.rotary_dim, 8);
  EXPECT_EQ(sliding.rope.rotary_dim, 16);
  EXPECT_NE(full.rope.inv_freq[1], sliding.rope.inv_freq[1]);
}

TEST(RopeTest, PartialRounding) {
  const Result result = Read(R"({"partial_rotary_factor": 0.334})", {.head_dim = 192});
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.rope.rotary_dim, 64);
}

TEST(RopeTest, UnknownKindIsUnsupportedAndNamed) {
  for (const char* text : {R"({"rope_scaling": {"rope_type": "spiral"}})", R"({"rope_scaling": {"type": "spiral"}})",
                           R"({"rope_parameters": {"rope_type": "spiral"}})"}) {
    const Result result = Read(text, {.head_dim = 16});
    EXPECT_EQ(ErrorKind(result.status), "UNSUPPORTED") << text;
    EXPECT_NE(std::string(result.status.message()).find("type: is \"spiral\""), std::string::npos) << result.status;
  }
}

TEST(RopeTest, DynamicChangesNothingUpToTheModelsLength) {
  const Result result = Read(R"({"rope_scaling": {"type": "dynamic", "factor": 2}})", {.head_dim = 8});
  ASSERT_TRUE(result.status.ok()) << result.status;
  ExpectFrequencies(result.rope, {1, 0.1, 0.01, 0.001});
}

TEST(RopeTest, LongRopeHasFrequenciesForShortAndForLongContexts) {
  const Result result = Read(R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 2, 4, 5],
      "long_factor": [9, 9, 9, 9], "original_max_position_embeddings": 64}})",
                             {.head_dim = 8, .max_positions = 256});
  ASSERT_TRUE(result.status.ok()) << result.status;
  ExpectFrequencies(result.rope, {1, 0.05, 0.0025, 0.0002});
  EXPECT_NEAR(result.rope.cos_sin_scale, std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-12);
  EXPECT_EQ(result.rope.original_positions, 64);
  EXPECT_EQ(result.rope.long_cos_sin_scale, result.rope.cos_sin_scale);
  ASSERT_EQ(result.rope.long_inv_freq.size(), 4u);
  const double plain[] = {1, 0.1, 0.01, 0.001};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(result.rope.long_inv_freq[i], plain[i] / 9, 1e-7 * plain[i]);
  EXPECT_EQ(ErrorKind(Read(R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 2, 4, 5], "long_factor": [9],
      "original_max_position_embeddings": 64}})",
                           {.head_dim = 8, .max_positions = 256})
                          .status),
            "INVALID");
}

TEST(RopeTest, OriginalPositionsBesideTheSettingsWin) {
  const Result result = Read(R"({"original_max_position_embeddings": 32, "rope_scaling": {"type": "longrope",
      "short_factor": [1, 1], "long_factor": [1, 1], "original_max_position_embeddings": 64}})",
                             {.head_dim = 4, .max_positions = 256});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.rope.original_positions, 32);
}

TEST(RopeTest, ProportionalLeavesPairsOfTheWholeHeadAlone) {
  const Result result = Read(R"({"rope_parameters": {"full_attention": {"rope_type": "proportional",
      "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "factor": 2.0}}})",
                             {.head_dim = 8, .layer_type = "full_attention"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.rope.rotary_dim, 8);
  ASSERT_EQ(result.rope.inv_freq.size(), 4u);
  EXPECT_FLOAT_EQ(static_cast<float>(result.rope.inv_freq[1]), 0.05f);
  EXPECT_EQ(result.rope.inv_freq[2], 0);
  EXPECT_EQ(result.rope.inv_freq[3], 0);
}

// 5 of 16: six dimensions turn, at the frequencies of five.
TEST(RopeTest, OddPartIsRoundedUp) {
  const Result result = Read(R"({"partial_rotary_factor": 0.334})", {.head_dim = 16});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.rope.rotary_dim, 6);
  ExpectFrequencies(result.rope, {1, std::pow(10000.0, -0.4), std::pow(10000.0, -0.8)});
}

TEST(RopeTest, SettingsByLayerTypeNeedAFamilyThatHasThem) {
  const char* text = R"({"rope_parameters": {"full_attention": {"rope_theta": 100.0}}})";
  EXPECT_EQ(ErrorKind(Read(text, {.head_dim = 8}).status), "UNSUPPORTED");
  EXPECT_EQ(ErrorKind(Read(text, {.head_dim = 8, .layer_type = "sliding_attention"}).status), "INVALID");
}

TEST(RopeTest, FamilyDefaults) {
  RopeDefaults defaults{.head_dim = 8, .theta = 100, .settings = {{"rope_type", "linear"}, {"factor", 2.0}}};
  ExpectFrequencies(Read("{}", defaults).rope, {0.5, 0.5 / std::pow(10.0, 0.5), 0.05, 0.05 / std::pow(10.0, 0.5)});
  // Any settings of the file's own replace them.
  ExpectFrequencies(Read(R"({"rope_parameters": {"rope_theta": 10000.0}})", defaults).rope, {1, 0.1, 0.01, 0.001});
  defaults.fixed_theta = 10000;
  ExpectFrequencies(Read(R"({"rope_theta": [1, 2], "rope_parameters": {}})", defaults).rope, {1, 0.1, 0.01, 0.001});
  defaults.fixed_theta = 0;
  defaults.theta_field = "swa_rope_theta";
  const std::string two = R"({"rope_theta": 7, "swa_rope_theta": 10000.0, "rope_scaling": {"type": "default"}})";
  ExpectFrequencies(Read(two, defaults).rope, {1, 0.1, 0.01, 0.001});
  defaults.whole_head = true;
  EXPECT_EQ(ErrorKind(Read(R"({"partial_rotary_factor": 0.5})", defaults).status), "UNSUPPORTED");
}

TEST(RopeTest, BadValuesAreInvalid) {
  for (const char* text :
       {R"({"rope_scaling": {"type": "linear"}})", R"({"rope_scaling": {"type": "linear", "factor": 0}})",
        R"({"rope_scaling": {"type": "linear", "factor": "two"}})", R"({"rope_scaling": 7})", R"({"rope_theta": -1})",
        R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 3}})",
        R"({"rope_scaling": {"type": "yarn", "factor": 0.5}})", R"({"partial_rotary_factor": 1.5})",
        R"({"partial_rotary_factor": 0.01})", R"({"rope_theta": 1, "rope_parameters": {"rope_theta": 2}})",
        R"({"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 4}})"}) {
    EXPECT_EQ(ErrorKind(Read(text, {.head_dim = 16, .max_positions = 64}).status), "INVALID") << text;
  }
}

}  // namespace
}  // namespace moe
