#include "loaders/config_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "loaders/json_text.h"

namespace moe {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

nlohmann::json Parse(const std::string& text) {
  StatusOr<nlohmann::json> json = ParseJson(text, "config.json", {.non_finite = true});
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : nlohmann::json();
}

TEST(ConfigReaderTest, ReadsEveryType) {
  const nlohmann::json json =
      Parse(R"({"i": 3, "f": 0.5, "g": 2, "b": true, "s": "x", "l": [1, 2], "t": ["a"], "n": null})");
  ConfigReader config(&json, "config.json");
  EXPECT_EQ(config.Int("i", 1, 9), 3);
  EXPECT_EQ(config.Float("f", 0, 1), 0.5);
  EXPECT_EQ(config.Float("g", 0, 9), 2.0);
  EXPECT_TRUE(config.Bool("b"));
  EXPECT_EQ(config.String("s"), "x");
  EXPECT_EQ(config.IntList("l", 0, 9), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(config.IntOrList("i", 0, 9), (std::vector<int64_t>{3}));
  EXPECT_EQ(config.StringList("t"), std::vector<std::string>{"a"});
  EXPECT_EQ(config.IntOr("n", 7, 0, 9), 7);
  EXPECT_EQ(config.IntOr("absent", 8, 0, 9), 8);
  EXPECT_FALSE(config.OptionalInt("n", 0, 9).has_value());
  EXPECT_FALSE(config.BoolOr("n", true));
  EXPECT_TRUE(config.BoolOr("absent", true));
  EXPECT_TRUE(config.ok()) << config.status();
}

TEST(ConfigReaderTest, MessageNamesFieldValueAndExpectation) {
  const nlohmann::json json = Parse(R"({"a": {"hidden_size": "eight"}})");
  ConfigReader root(&json, "config.json");
  ConfigReader config = root.Object("a");
  config.Int("hidden_size", 1, 100);
  EXPECT_EQ(DescribeError(root.status()),
            "INVALID: config.json: a.hidden_size is \"eight\", expected an integer from 1 to 100");
}

TEST(ConfigReaderTest, FirstErrorStays) {
  const nlohmann::json json = Parse("{}");
  ConfigReader config(&json, "config.json");
  EXPECT_EQ(config.Int("first", 5, 9), 5);
  config.Int("second", 5, 9);
  EXPECT_NE(std::string(config.status().message()).find("first"), std::string::npos);
}

TEST(ConfigReaderTest, NonFiniteInBothSpellings) {
  const nlohmann::json json = Parse(R"({"a": [0.0, Infinity], "b": [-Infinity, {"__float__": "Infinity"}],
    "c": NaN, "text": "Infinity, \"NaN\" -Infinity"})");
  ConfigReader config(&json, "config.json");
  EXPECT_EQ(config.FloatList("a", 0, kInfinity), (std::vector<double>{0, kInfinity}));
  EXPECT_EQ(config.FloatList("b", -kInfinity, kInfinity), (std::vector<double>{-kInfinity, kInfinity}));
  EXPECT_EQ(config.String("text"), "Infinity, \"NaN\" -Infinity");
  EXPECT_TRUE(config.ok()) << config.status();
  config.Float("c", -kInfinity, kInfinity);
  EXPECT_EQ(ErrorKind(config.status()), "INVALID");
}

TEST(ConfigReaderTest, BareNonFiniteIsNotAPartOfAWord) {
  EXPECT_FALSE(ParseJson("{\"a\": Infinityx}", "f", {.non_finite = true}).ok());
  EXPECT_FALSE(ParseJson("{\"a\": 1Infinity}", "f", {.non_finite = true}).ok());
  EXPECT_FALSE(ParseJson("{\"a\": Infinity}", "f").ok());
}

TEST(ConfigReaderTest, SpellingsMustAgree) {
  const nlohmann::json json = Parse(R"({"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 5})");
  ConfigReader agree(&json, "config.json");
  EXPECT_EQ(agree.Int({"num_experts", "num_local_experts"}, 1, 9), 4);
  EXPECT_TRUE(agree.ok());
  ConfigReader disagree(&json, "config.json");
  disagree.Int({"num_experts", "n_routed_experts"}, 1, 9);
  const std::string message(disagree.status().message());
  EXPECT_EQ(ErrorKind(disagree.status()), "INVALID");
  EXPECT_NE(message.find("num_experts is 4"), std::string::npos) << message;
  EXPECT_NE(message.find("n_routed_experts is 5"), std::string::npos) << message;
}

TEST(ConfigReaderTest, NestedFallsBackToTheOuterObject) {
  const nlohmann::json json = Parse(R"({"tie": true, "width": 1, "text_config": {"width": 2}})");
  ConfigReader root(&json, "config.json");
  ConfigReader text = root.Nested("text_config");
  EXPECT_EQ(text.Int("width", 0, 9), 2);
  EXPECT_TRUE(text.Bool("tie"));
  text.Int("absent", 0, 9);
  EXPECT_NE(std::string(root.status().message()).find("text_config.absent"), std::string::npos);
  ConfigReader same = ConfigReader(&json, "config.json").Nested("none");
  EXPECT_EQ(same.Int("width", 0, 9), 1);
}

TEST(ConfigReaderTest, OuterIsWhatIsAroundANestedObject) {
  const nlohmann::json json = Parse(R"({"tie": true, "text_config": {"tie": false, "window": null}})");
  ConfigReader root(&json, "config.json");
  ConfigReader text = root.Nested("text_config");
  EXPECT_FALSE(text.Bool("tie"));
  EXPECT_TRUE(text.Outer().Bool("tie"));
  EXPECT_TRUE(root.Outer().Bool("tie"));
  EXPECT_TRUE(text.IsNull("window"));
  EXPECT_FALSE(text.IsNull("tie"));
  EXPECT_FALSE(text.IsNull("absent"));
}

TEST(ConfigReaderTest, AssumedValuesStandInForAbsentFieldsOnly) {
  const nlohmann::json json = Parse(R"({"layers": 3, "window": null, "text_config": {"width": 2}})");
  ConfigReader root(&json, "config.json");
  ConfigReader text = root.Nested("text_config");
  text.Assume({{"width", 7}, {"depth", 8}});
  text.Assume({{"window", 9}, {"num_layers", 10}});
  EXPECT_EQ(text.Int("width", 0, 99), 2);
  EXPECT_EQ(text.Int({"height", "depth"}, 0, 99), 8);
  EXPECT_EQ(text.Int({"num_layers", "layers"}, 0, 99), 3);  // another spelling is in the file
  EXPECT_FALSE(text.OptionalInt("window", 0, 99).has_value());
  EXPECT_FALSE(text.Has("depth"));
  EXPECT_FALSE(text.Outer().OptionalInt("depth", 0, 99).has_value());
  EXPECT_TRUE(root.ok()) << root.status();
}

TEST(ConfigReaderTest, PerLayerOverrides) {
  const nlohmann::json json =
      Parse(R"({"width": 1, "depth": 2, "per_layer_config": {"03": {"width": 5}, "4": {"depth": 6}}})");
  ConfigReader config(&json, "config.json");
  config.Assume({{"height", 7}});
  EXPECT_EQ(config.PerLayer(2, {"width"}).Int("width", 0, 9), 1);
  ConfigReader third = config.PerLayer(3, {"width"});
  EXPECT_EQ(third.Int("width", 0, 9), 5);
  EXPECT_EQ(third.Int("depth", 0, 9), 2);
  EXPECT_EQ(third.Int("height", 0, 9), 7);
  EXPECT_TRUE(config.ok()) << config.status();
  config.PerLayer(4, {"width"});
  EXPECT_EQ(ErrorKind(config.status()), "UNSUPPORTED");
  EXPECT_NE(std::string(config.status().message()).find("per_layer_config.4.depth"), std::string::npos);
}

TEST(ConfigReaderTest, TypesAndListsWithHoles) {
  const nlohmann::json json = Parse(R"({"s": "x", "l": [1, null, 0.5], "n": null})");
  ConfigReader config(&json, "config.json");
  EXPECT_EQ(config.TypeOf("s"), nlohmann::json::value_t::string);
  EXPECT_EQ(config.TypeOf("n"), nlohmann::json::value_t::null);
  EXPECT_EQ(config.TypeOf("absent"), nlohmann::json::value_t::null);
  EXPECT_EQ(config.FloatListOr("l", 7, 0, 9), (std::vector<double>{1, 7, 0.5}));
  EXPECT_TRUE(config.ok()) << config.status();
  config.FloatList("l", 0, 9);
  EXPECT_EQ(ErrorKind(config.status()), "INVALID");
}

TEST(ConfigReaderTest, ExpectationsAreUnsupportedNotInvalid) {
  const nlohmann::json json = Parse(R"({"act": "mish", "flag": true, "window": 128, "empty": []})");
  ConfigReader fine(&json, "config.json");
  fine.ExpectString("act", {"silu", "mish"});
  fine.ExpectString("absent", {"silu"});
  fine.ExpectBool("flag", true);
  fine.ExpectAbsent("empty");
  EXPECT_TRUE(fine.ok()) << fine.status();
  ConfigReader one(&json, "config.json"), two(&json, "config.json"), three(&json, "config.json");
  one.ExpectString("act", {"silu"});
  two.ExpectBool("flag", false);
  three.ExpectAbsent("window");
  for (const Status& status : {one.status(), two.status(), three.status()}) EXPECT_EQ(ErrorKind(status), "UNSUPPORTED");
  EXPECT_NE(std::string(one.status().message()).find("\"mish\""), std::string::npos);
}

TEST(JsonTextTest, LimitsAndDuplicates) {
  EXPECT_EQ(ErrorKind(ParseJson(std::string(65, '[') + std::string(65, ']'), "f").status()), "INVALID");
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']'), "f").ok());
  EXPECT_EQ(ErrorKind(ParseJson("{\"a\":{\"b\":1,\"b\":2}}", "f").status()), "INVALID");
  EXPECT_EQ(ErrorKind(ParseJson("{\"a\":", "f").status()), "CORRUPT");
  EXPECT_EQ(ErrorKind(ParseJson("1e999", "f").status()), "CORRUPT");
  EXPECT_EQ(ErrorKind(ParseJson("[1,2,3]", "f", {.max_bytes = 3}).status()), "INVALID");
}

TEST(JsonTextTest, QuotedIsPrintable) {
  EXPECT_EQ(Quoted("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(Quoted("\xff\xc3\xa9"), "\"\\xff\xc3\xa9\"");
  EXPECT_LT(Quoted(std::string(100000, 'x')).size(), 300u);
}

}  // namespace
}  // namespace moe
