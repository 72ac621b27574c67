// Files that are damaged, contradict themselves or ask for what we do not have.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/loaders/tokenizer/test_files.h"

namespace moe {
namespace {

using nlohmann::json;

Status Load(const std::string& text, const std::string& config = "") {
  return Tokenizer::Create(text, config).status();
}

struct BadFile {
  const char* name;
  const char* kind;                 // Of the error.
  std::vector<const char*> naming;  // What the message has to say.
  std::function<void(json*)> spoil;
};

TEST(MalformedTokenizer, EachIsRefusedByName) {
  const std::vector<BadFile> files = {
      {"duplicate id", "INVALID", {"model.vocab", "id 2"}, [](json* f) { (*f)["model"]["vocab"]["zz"] = 2; }},
      {"unknown model",
       "UNSUPPORTED",
       {"model.type", "Telepathy"},
       [](json* f) { (*f)["model"]["type"] = "Telepathy"; }},
      {"WordPiece", "UNSUPPORTED", {"model.type", "WordPiece"}, [](json* f) { (*f)["model"]["type"] = "WordPiece"; }},
      {"no model", "INVALID", {"model"}, [](json* f) { f->erase("model"); }},
      {"model a list", "INVALID", {"model"}, [](json* f) { (*f)["model"] = json::array(); }},
      {"no vocab", "INVALID", {"model.vocab", "missing"}, [](json* f) { (*f)["model"].erase("vocab"); }},
      {"no merges", "INVALID", {"model.merges"}, [](json* f) { (*f)["model"].erase("merges"); }},
      {"id 2^31", "INVALID", {"model.vocab", "2147483648"}, [](json* f) { (*f)["model"]["vocab"]["q"] = 2147483648; }},
      {"id 2^64-1", "INVALID", {"id"}, [](json* f) { (*f)["model"]["vocab"]["q"] = 18446744073709551615u; }},
      {"id -1", "INVALID", {"id -1"}, [](json* f) { (*f)["model"]["vocab"]["q"] = -1; }},
      {"id 1.5", "INVALID", {"integer"}, [](json* f) { (*f)["model"]["vocab"]["q"] = 1.5; }},
      {"id a string", "INVALID", {"string"}, [](json* f) { (*f)["model"]["vocab"]["q"] = "7"; }},
      {"merge of unknown token", "INVALID", {"merges[0]", "\"q\""}, [](json* f) { (*f)["model"]["merges"] = {"a q"}; }},
      {"merge to unknown token",
       "INVALID",
       {"merges[0]", "\"ba\""},
       [](json* f) { (*f)["model"]["merges"] = {"b a"}; }},
      {"merge of three", "INVALID", {"merges[0]"}, [](json* f) { (*f)["model"]["merges"] = {"a b c"}; }},
      {"merge a number", "INVALID", {"merges[0]"}, [](json* f) { (*f)["model"]["merges"] = {1}; }},
      {"dropout", "UNSUPPORTED", {"model.dropout", "0.1"}, [](json* f) { (*f)["model"]["dropout"] = 0.1; }},
      {"flag a string", "INVALID", {"fuse_unk"}, [](json* f) { (*f)["model"]["fuse_unk"] = "yes"; }},
      {"normalizer",
       "UNSUPPORTED",
       {"normalizer.type", "Upside"},
       [](json* f) {
         (*f)["normalizer"] = {{"type", "Upside"}};
       }},
      {"normalizer no type", "INVALID", {"normalizer.type"}, [](json* f) { (*f)["normalizer"] = json::object(); }},
      {"nested normalizer",
       "UNSUPPORTED",
       {"normalizer.normalizers[1].type", "Nope"},
       [](json* f) {
         (*f)["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Nope"}}}}};
       }},
      {"pre-tokenizer",
       "UNSUPPORTED",
       {"pre_tokenizer.type", "Chop"},
       [](json* f) {
         (*f)["pre_tokenizer"] = {{"type", "Chop"}};
       }},
      {"bad regex",
       "UNSUPPORTED",
       {"pre_tokenizer.pattern.Regex", "compile"},
       [](json* f) {
         (*f)["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
       }},
      {"bad behavior",
       "UNSUPPORTED",
       {"behavior", "Explode"},
       [](json* f) {
         (*f)["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Explode"}};
       }},
      {"decoder",
       "UNSUPPORTED",
       {"decoder.type", "CTC"},
       [](json* f) {
         (*f)["decoder"] = {{"type", "CTC"}};
       }},
      {"decoder order",
       "UNSUPPORTED",
       {"decoders[1].type", "ByteFallback"},
       [](json* f) {
         (*f)["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}}};
       }},
      {"strip count",
       "INVALID",
       {"decoder.start"},
       [](json* f) {
         (*f)["decoder"] = {{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}};
       }},
      {"post-processor",
       "UNSUPPORTED",
       {"post_processor.type", "Stamp"},
       [](json* f) {
         (*f)["post_processor"] = {{"type", "Stamp"}};
       }},
      {"post-processor id",
       "INVALID",
       {"post_processor", "id 77"},
       [](json* f) {
         (*f)["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"[C]", 77}}, {"sep", {"[S]", 0}}};
       }},
      {"template",
       "INVALID",
       {"post_processor.special_tokens"},
       [](json* f) {
         (*f)["post_processor"] = {{"type", "TemplateProcessing"},
                                   {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                                   {"special_tokens", json::object()}};
       }},
      {"added id twice",
       "INVALID",
       {"added_tokens[1]", "id 7"},
       [](json* f) {
         (*f)["added_tokens"] = {AddedTokenJson(7, "<x>", true), AddedTokenJson(7, "<y>", true)};
       }},
      {"added content twice",
       "INVALID",
       {"added_tokens[1]", "<x>"},
       [](json* f) {
         (*f)["added_tokens"] = {AddedTokenJson(7, "<x>", true), AddedTokenJson(8, "<x>", true)};
       }},
      {"added against vocab",
       "INVALID",
       {"added_tokens", "id 1"},
       [](json* f) { (*f)["added_tokens"] = {AddedTokenJson(1, "<x>", true)}; }},
      {"added elsewhere in vocab",
       "INVALID",
       {"added_tokens", "\"b\""},
       [](json* f) { (*f)["added_tokens"] = {AddedTokenJson(9, "b", true)}; }},
      {"added without id",
       "INVALID",
       {"added_tokens[0].id"},
       [](json* f) {
         (*f)["added_tokens"] = {{{"content", "x"}}};
       }},
      {"added not a list", "INVALID", {"added_tokens"}, [](json* f) { (*f)["added_tokens"] = 3; }},
      {"replacement",
       "INVALID",
       {"replacement"},
       [](json* f) {
         (*f)["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "ab"}};
       }},
      {"unigram pair",
       "INVALID",
       {"model.vocab[0]"},
       [](json* f) {
         (*f)["model"] = {{"type", "Unigram"}, {"vocab", {{"a"}}}};
       }},
      {"unigram unk_id",
       "INVALID",
       {"unk_id", "5"},
       [](json* f) {
         (*f)["model"] = {{"type", "Unigram"}, {"unk_id", 5}, {"vocab", json::array({json::array({"a", -1.0})})}};
       }},
  };
  for (const BadFile& bad : files) {
    SCOPED_TRACE(bad.name);
    json file = BpeFile({"a", "b", "c"});
    file["model"]["vocab"]["ab"] = 3;
    file["model"]["merges"] = {"a b"};
    ASSERT_TRUE(Load(file.dump()).ok()) << Load(file.dump());
    bad.spoil(&file);
    const Status status = Load(file.dump());
    EXPECT_EQ(ErrorKind(status), bad.kind) << status;
    const std::string message(status.message().data(), status.message().size());
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
    for (const char* part : bad.naming) EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

TEST(MalformedTokenizer, CutAnywhere) {
  const std::string whole = ReadFixture("mixtral", "tokenizer.json");
  for (size_t size = 0; size + 1 < whole.size(); size += size < 600 ? 7 : 997) {
    const Status status = Load(whole.substr(0, size));
    EXPECT_EQ(ErrorKind(status), "CORRUPT") << size << ": " << status;
  }
  for (const char* text : {"", "\xFF", "[", "{\"a\":\"\xC3\"}", "{} x"}) EXPECT_EQ(ErrorKind(Load(text)), "CORRUPT");
  for (const char* text : {"[]", "3", "null", "{}"}) EXPECT_EQ(ErrorKind(Load(text)), "INVALID");
}

TEST(MalformedTokenizer, DeepNesting) {
  const std::string deep(2'000'000, '[');
  EXPECT_EQ(ErrorKind(Load("{\"x\":" + deep)), "INVALID");
  std::string normalizer = "{\"type\":\"NFC\"}";
  for (int i = 0; i < 1000; ++i) {
    normalizer = "{\"type\":\"Sequence\",\"normalizers\":[" + normalizer;
    normalizer += "]}";
  }
  EXPECT_EQ(ErrorKind(Load("{\"normalizer\":" + normalizer + "}")), "INVALID");
}

TEST(MalformedTokenizer, Config) {
  const std::string good = BpeFile({"a"}).dump();
  EXPECT_EQ(ErrorKind(Load(good, "{")), "CORRUPT");
  EXPECT_EQ(ErrorKind(Load(good, "[]")), "INVALID");
  const Status status = Load(good, R"({"bos_token": 3})");
  EXPECT_EQ(ErrorKind(status), "INVALID");
  EXPECT_NE(status.message().find("tokenizer_config.json: bos_token"), absl::string_view::npos) << status;
  const auto tokenizer =
      Tokenizer::Create(good, R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": null,
                                   "add_bos_token": true, "mask_token": "<m>"})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos_token(), "<s>");
  EXPECT_EQ((*tokenizer)->eos_token(), "");
  EXPECT_EQ((*tokenizer)->special_tokens().at("mask_token"), "<m>");
  EXPECT_EQ((*tokenizer)->special_tokens().count("add_bos_token"), 0u);
}

// Any change of a byte gives an error or a tokenizer that works, nothing else.
TEST(MalformedTokenizer, RandomChanges) {
  json file = BpeFile({"a", "b", "c", "▁", "<unk>"});
  file["model"]["vocab"]["ab"] = 5;
  file["model"]["merges"] = {"a b"};
  file["model"]["unk_token"] = "<unk>";
  file["added_tokens"] = {AddedTokenJson(6, "<s>", true)};
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", {{{"type", "NFC"}}, {{"type", "Prepend"}, {"prepend", "▁"}}}}};
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "[a&&[^\\s]]+|\\p{L}{1,3}+"}}}, {"behavior", "Isolated"}};
  file["decoder"] = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  const std::string good = file.dump();
  ASSERT_TRUE(Load(good).ok()) << Load(good);
  std::mt19937 random(7);
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (int i = 0; i < 1 + round % 3; ++i) {
      const size_t at = random() % text.size();
      const char* const bytes = "\"{}[],:0129-\\ab\x80";
      if (random() % 4 == 0) {
        text.erase(at, 1 + random() % 4);
      } else {
        text[at] = bytes[random() % 17];
      }
    }
    const auto tokenizer = Tokenizer::Create(text, "");
    if (!tokenizer.ok()) continue;
    const auto ids = (*tokenizer)->Encode("ab <s> cab\u00e9", {});
    if (ids.ok()) (*tokenizer)->Decode(*ids, true);
  }
}

}  // namespace
}  // namespace moe
