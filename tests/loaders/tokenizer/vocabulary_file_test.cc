// Tokenizers without a tokenizer.json: SentencePiece models and tiktoken files, against what their libraries wrote
// down.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <random>

#include "loaders/tokenizer/incremental_detokenizer.h"
#include "loaders/tokenizer/tiktoken_file.h"
#include "parallel/base/check.h"
#include "tests/loaders/tokenizer/test_files.h"

namespace moe {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

constexpr std::string_view kKinds[] = {"bpe",  "bpe_ernie",        "bpe_odd",     "hunyuan",         "kimi",
                                       "qwen", "tiktoken_default", "unigram_odd", "unigram_unknown", "unigram"};

// Empty where the kind has no such file.
std::string Read(std::string_view kind, std::string_view name) {
  std::ifstream file(Cat(MOE_TEST_DATA_DIR, "/vocabulary_files/", kind, "/", name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The files of a kind, to be changed by a test.
struct Files {
  explicit Files(std::string_view kind)
      : cases(json::parse(Read(kind, "cases.json"))),
        name(cases["file"]),
        bytes(Read(kind, name)),
        config(Read(kind, "tokenizer_config.json")),
        added_tokens(Read(kind, "added_tokens.json")),
        vocab_size(cases["vocab_size"]) {}

  StatusOr<std::unique_ptr<Tokenizer>> Load() const {
    return Tokenizer::Create({.name = name,
                              .bytes = bytes,
                              .config_json = config,
                              .added_tokens_json = added_tokens,
                              .family = family,
                              .vocab_size = vocab_size});
  }

  json cases;
  std::string name;
  std::string bytes;
  std::string config;
  std::string added_tokens;
  std::string family;
  int32_t vocab_size;
};

class VocabularyFileTest : public testing::TestWithParam<std::string_view> {
 protected:
  VocabularyFileTest() : files_(GetParam()) {
    auto tokenizer = files_.Load();
    MOE_CHECK(tokenizer.ok()) << DescribeError(tokenizer.status());
    tokenizer_ = std::move(tokenizer).value();
  }

  void CheckStream(const Ids& ids, bool keep_special, const std::string& decoded) {
    IncrementalDetokenizer detokenizer(*tokenizer_, keep_special);
    std::string joined;
    for (const int32_t id : ids) joined += detokenizer.Push(id);
    EXPECT_EQ(joined + detokenizer.Finish(), decoded);
  }

  Files files_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(VocabularyFileTest, Encode) {
  ASSERT_FALSE(files_.cases["encode"].empty());
  for (const json& item : files_.cases["encode"]) {
    const std::string text = item["text"];
    SCOPED_TRACE(item["text"].dump(-1, ' ', true));
    const auto ids = tokenizer_->Encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, item["ids"].get<Ids>());
    const auto with_special = tokenizer_->Encode(text, {});
    ASSERT_TRUE(with_special.ok());
    EXPECT_EQ(*with_special, item["ids_with_special"].get<Ids>());
    EXPECT_EQ(tokenizer_->Decode(*ids, true), item["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer_->Decode(*with_special, false), item["decoded_skip_special"].get<std::string>());
    CheckStream(*ids, true, item["decoded"]);
    CheckStream(*with_special, false, item["decoded_skip_special"]);
  }
}

TEST_P(VocabularyFileTest, Decode) {
  ASSERT_FALSE(files_.cases["decode"].empty());
  for (const json& item : files_.cases["decode"]) {
    const Ids ids = item["ids"];
    SCOPED_TRACE(item["ids"].dump());
    EXPECT_EQ(tokenizer_->Decode(ids, true), item["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer_->Decode(ids, false), item["decoded_skip_special"].get<std::string>());
    CheckStream(ids, true, item["decoded"]);
    CheckStream(ids, false, item["decoded_skip_special"]);
  }
}

TEST_P(VocabularyFileTest, EveryIdIsThere) {
  EXPECT_EQ(tokenizer_->vocab_size(), files_.vocab_size);
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    ASSERT_TRUE(tokenizer_->IsValidId(id)) << id;
    EXPECT_EQ(tokenizer_->TokenToId(tokenizer_->IdToToken(id)), id);
  }
}

// A message can not spell a special token, whatever the kind of file.
TEST_P(VocabularyFileTest, UntrustedTextMakesNoSpecialToken) {
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (!tokenizer_->IsSpecial(id) || tokenizer_->IdToToken(id) == tokenizer_->unk_token()) continue;
    const std::string text = Cat("a ", tokenizer_->IdToToken(id), "b", tokenizer_->IdToToken(id));
    const auto ids = tokenizer_->Encode(text, {.add_special_tokens = false, .recognize_special = false});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(std::count(ids->begin(), ids->end(), id), 0) << text;
  }
}

// A file that ends early, and bytes that have changed, give an error of a known kind or a tokenizer that works.
TEST_P(VocabularyFileTest, DamagedFiles) {
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    Files files = files_;
    if (round < 100) {
      files.bytes.resize(random() % files.bytes.size());
    } else {
      for (int i = 0; i < 1 + round % 4; ++i) files.bytes[random() % files.bytes.size()] = static_cast<char>(random());
    }
    const auto tokenizer = files.Load();
    if (!tokenizer.ok()) {
      const std::string kind = ErrorKind(tokenizer.status());
      EXPECT_TRUE(kind == "CORRUPT" || kind == "INVALID" || kind == "UNSUPPORTED") << tokenizer.status();
      continue;
    }
    for (const char* text : {"Hello <s> w\u00f6rld  ab \u65e5\u672c", "\uFB01\u00bd \t\n"}) {
      if (const auto ids = (*tokenizer)->Encode(text, {}); ids.ok()) (*tokenizer)->Decode(*ids, true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, VocabularyFileTest, testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param); });

// A serialized ModelProto, field by field.
class Proto {
 public:
  Proto& Varint(uint32_t field, uint64_t value) {
    Number(field << 3);
    Number(value);
    return *this;
  }
  Proto& Bytes(uint32_t field, std::string_view value) {
    Number(field << 3 | 2);
    Number(value.size());
    bytes_ += value;
    return *this;
  }
  Proto& Float(uint32_t field, float value) {
    Number(field << 3 | 5);
    bytes_.append(reinterpret_cast<const char*>(&value), 4);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

std::string Piece(std::string_view text, float score, int type) {
  return Proto().Bytes(1, text).Float(2, score).Varint(3, static_cast<uint64_t>(type)).bytes();
}

Status LoadModel(const std::string& bytes, const std::string& config = "") {
  return Tokenizer::Create({.name = "tokenizer.model",
                            .bytes = bytes,
                            .config_json = config,
                            .added_tokens_json = "",
                            .family = "",
                            .vocab_size = 1000})
      .status();
}

void ExpectError(const Status& status, const char* kind, const std::vector<std::string>& naming) {
  EXPECT_EQ(ErrorKind(status), kind) << status;
  for (const std::string& part : naming) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << part << " in " << status;
  }
}

TEST(SentencePieceFile, WhatIsWrongIsNamed) {
  const std::string unknown = Piece("<unk>", 0, 2);
  const std::string good = Proto().Bytes(1, unknown).Bytes(1, Piece("a", -1, 1)).bytes();
  EXPECT_TRUE(LoadModel(good).ok()) << LoadModel(good);
  const auto with = [&](const Proto& more) { return good + more.bytes(); };
  ExpectError(LoadModel(""), "CORRUPT", {"tokenizer.model", "no pieces"});
  ExpectError(LoadModel(good.substr(0, good.size() - 1)), "CORRUPT", {"tokenizer.model", "field 1", "bytes"});
  ExpectError(LoadModel(Proto().Bytes(1, Piece("a", -1, 1)).bytes()), "INVALID", {"tokenizer.model", "UNKNOWN"});
  ExpectError(LoadModel(with(Proto().Bytes(1, unknown))), "INVALID", {"pieces[2]", "<unk>", "twice"});
  ExpectError(LoadModel(with(Proto().Bytes(1, Piece("<u2>", 0, 2)))), "INVALID", {"pieces[2].type", "pieces[0]"});
  ExpectError(LoadModel(with(Proto().Bytes(1, Piece("b", 0, 7)))), "UNSUPPORTED", {"pieces[2].type", "7"});
  ExpectError(LoadModel(with(Proto().Bytes(1, Piece("", 0, 1)))), "INVALID", {"pieces[2].piece", "empty"});
  ExpectError(LoadModel(with(Proto().Bytes(1, Piece("\xFF", 0, 1)))), "CORRUPT", {"pieces[2].piece", "UTF-8"});
  ExpectError(LoadModel(with(Proto().Bytes(1, Piece(std::string(5000, 'x'), 0, 1)))), "INVALID", {"5000"});
  ExpectError(LoadModel(with(Proto().Bytes(1, Piece("b", std::numeric_limits<float>::quiet_NaN(), 1)))), "INVALID",
              {"pieces[2].score", "nan"});
  ExpectError(LoadModel(with(Proto().Bytes(1, Proto().Varint(2, 1).bytes()))), "CORRUPT",
              {"pieces[2]", "field 2", "wire type 0", "expected 5"});
  ExpectError(LoadModel(with(Proto().Bytes(1, Piece("<0xZZ>", 0, 6)))), "INVALID", {"pieces[2]", "<0xZZ>"});
  ExpectError(LoadModel(with(Proto().Bytes(2, Proto().Varint(3, 3).bytes()))), "UNSUPPORTED",
              {"trainer_spec.model_type", "3", "UNIGRAM"});
  ExpectError(LoadModel(with(Proto().Bytes(2, Proto().Varint(35, 1).bytes()))), "INVALID", {"byte_fallback", "byte 0"});
  ExpectError(LoadModel(with(Proto().Bytes(3, Proto().Bytes(2, "abcdefgh").bytes()))), "CORRUPT",
              {"normalizer_spec.precompiled_charsmap"});
  ExpectError(LoadModel(with(Proto().Bytes(5, Proto().Bytes(2, "abcd").bytes()))), "UNSUPPORTED",
              {"denormalizer_spec"});
  ExpectError(LoadModel(good + "\x0B"), "CORRUPT", {"wire type 3"});
}

TEST(SentencePieceFile, TokensOfTheConfig) {
  const std::string model =
      Proto().Bytes(1, Piece("<unk>", 0, 2)).Bytes(1, Piece("a", -1, 1)).Bytes(1, Piece("b", -1, 1)).bytes();
  ExpectError(LoadModel(model, R"({"added_tokens_decoder": {"x": {"content": "y"}}})"), "INVALID",
              {"tokenizer_config.json", "added_tokens_decoder[\"x\"]", "id"});
  ExpectError(LoadModel(model, R"({"added_tokens_decoder": {"1": "y"}})"), "INVALID", {"added_tokens_decoder[\"1\"]"});
  ExpectError(LoadModel(model, R"({"added_tokens_decoder": {"1": {"content": "b"}}})"), "INVALID",
              {"added_tokens_decoder[\"1\"]", "\"b\"", "id 2"});
  ExpectError(LoadModel(model, R"({"added_tokens_decoder": {"9": {"content": "b"}}})"), "INVALID", {"\"b\"", "id 9"});
  ExpectError(LoadModel(model, R"({"added_tokens_decoder": {"5": {"content": "z", "special": 1}}})"), "INVALID",
              {"added_tokens_decoder[\"5\"].special"});
  ExpectError(LoadModel(model, R"({"legacy": "no"})"), "INVALID", {"legacy"});
  ExpectError(LoadModel(model, R"({"extra_special_tokens": 3})"), "INVALID", {"extra_special_tokens"});
  ExpectError(LoadModel(model, "["), "CORRUPT", {"tokenizer_config.json"});
  // Names swapped.
  EXPECT_TRUE(LoadModel(model, R"({"added_tokens_decoder": {"1": {"content": "b"}, "2": {"content": "a"}}})").ok());
}

TEST(TiktokenFile, WhatIsWrongIsNamed) {
  const auto parse = [](std::string_view text) { return ParseTiktokenFile(text, "x.tiktoken", false).status(); };
  EXPECT_TRUE(parse("YQ== 0\nYg== 1\r\n\nYWI= 2").ok());
  ExpectError(parse(""), "CORRUPT", {"x.tiktoken", "no tokens"});
  ExpectError(parse("YQ== 0\nYg= 1\n"), "CORRUPT", {"x.tiktoken: line 2", "Base64"});
  ExpectError(parse("YQ== 0\nYh== 1\n"), "CORRUPT", {"line 2"});  // Bits that stand for nothing.
  ExpectError(parse("YQ== 0\nYg==\n"), "CORRUPT", {"line 2", "number"});
  ExpectError(parse("YQ== 0\nYg== 1x\n"), "CORRUPT", {"line 2", "number"});
  ExpectError(parse("YQ== 0\nYg== 0\n"), "INVALID", {"line 2", "rank 0"});
  ExpectError(parse("YQ== 0\nYQ== 1\n"), "INVALID", {"line 2", "repeats a token"});
  ExpectError(parse("YQ== -1\n"), "INVALID", {"line 1", "-1"});
  ExpectError(parse("YQ== 99999999\n"), "INVALID", {"line 1", "99999999"});
}

TEST(TiktokenFile, FamilyTellsHowTextIsCut) {
  Files files("kimi");
  json config = json::parse(files.config);
  config.erase("tokenizer_class");
  files.config = config.dump();
  ASSERT_TRUE(files.Load().ok());  // By auto_map.
  const auto expected = (*files.Load())->Encode("HelloWorld \u65e5\u672cabc", {});
  config.erase("auto_map");
  files.config = config.dump();
  files.family = "kimi_linear";
  ASSERT_TRUE(files.Load().ok());
  EXPECT_EQ(*(*files.Load())->Encode("HelloWorld \u65e5\u672cabc", {}), *expected);
  config["tokenizer_class"] = "GuessTokenizer";
  files.config = config.dump();
  ExpectError(files.Load().status(), "UNSUPPORTED",
              {"tokenizer_class", "GuessTokenizer", "tiktoken.model", "HYTokenizer"});
}

// What the family names beyond the model's vocabulary is an error of the model loader; what nobody names is left out.
TEST(TiktokenFile, ReservedTokensEndWithTheVocabulary) {
  Files files("hunyuan");
  const int32_t whole = files.vocab_size;
  files.vocab_size = whole - 10;
  ASSERT_TRUE(files.Load().ok());
  EXPECT_EQ((*files.Load())->vocab_size(), whole - 10);
  files.vocab_size = std::numeric_limits<int32_t>::max();
  EXPECT_EQ((*files.Load())->vocab_size(), whole);
}

// Kimi's class cuts words of more than 25,000 characters, and everything at 400,000.
TEST(TiktokenFile, LongTextIsCutWhereThePublishedClassCutsIt) {
  const Files files("kimi");
  const auto tokenizer = *files.Load();
  const auto encode = [&](const std::string& text) { return *tokenizer->Encode(text, {}); };
  const auto concat = [](Ids a, const Ids& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  std::string run;
  while (run.size() < 25'000) run += "hello";
  EXPECT_EQ(encode(run.substr(2) + "helloWorld"), concat(encode(run.substr(2) + "he"), encode("lloWorld")));
  std::string words;
  while (words.size() < 400'000) words += "hello ";
  words.resize(399'998);
  EXPECT_EQ(encode(words + "hello"), concat(encode(words + "he"), encode("llo")));
}

}  // namespace
}  // namespace moe
