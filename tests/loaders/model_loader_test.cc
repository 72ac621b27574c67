#include "loaders/model_loader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::FileMap;
using moe::testing::SoundFiles;
using nlohmann::json;

StatusOr<std::unique_ptr<LoadedModel>> Load(const FileMap& files, const LoadOptions& options = {}) {
  return LoadModel(*moe::testing::InMemory(files), options);
}

std::string Prompt(const LoadedModel& model) {
  ChatRenderInput input;
  input.messages = nlohmann::ordered_json::array({{{"role", "user"}, {"content", "hell"}}});
  const auto pieces = model.chat_template->Render(input);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  return pieces.ok() ? JoinPieces(*pieces) : "";
}

void ExpectError(const FileMap& files, const char* kind, const std::string& file, const std::string& word) {
  const Status status = Load(files).status();
  EXPECT_EQ(ErrorKind(status), kind) << file << " " << word << ": " << status;
  EXPECT_NE(std::string(status.message()).find(file), std::string::npos) << status;
  EXPECT_NE(std::string(status.message()).find(word), std::string::npos) << status;
}

TEST(ModelLoaderTest, EmbeddedDemoIsComplete) {
  const auto model = LoadModel(*OpenEmbeddedDemo(), {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->path, "embedded:shakespeare-nemotronh");
  EXPECT_NE((*model)->weights, nullptr);
  ASSERT_NE((*model)->tokenizer, nullptr);
  ASSERT_NE((*model)->chat_template, nullptr);
  EXPECT_EQ((*model)->tokenizer->vocab_size(), 2048);
  EXPECT_EQ((*model)->eos_token_ids, (std::vector<int32_t>{2047, 2045}));  // generation_config.json's
  EXPECT_EQ((*model)->spec.eos_token_ids, std::vector<int32_t>{2047});
  EXPECT_EQ((*model)->generation.top_k, 40);
  EXPECT_EQ((*model)->generation.temperature, 0.8);
  EXPECT_EQ((*model)->generation.max_new_tokens, 200);
  EXPECT_FALSE((*model)->generation.min_p.has_value());
  EXPECT_EQ(Prompt(**model), "<|im_start|>user\nhell<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ModelLoaderTest, GenerationSettingsThatAreNotImplementedAreNamed) {
  FileMap files = SoundFiles();
  files["generation_config.json"] = R"({"typical_p": 0.9, "no_repeat_ngram_size": 3, "stop_strings": ["x"],
      "bad_words_ids": [[3]], "suppress_tokens": [4], "num_beams": 1, "sequence_bias": {}, "min_length": 0})";
  auto model = Load(files);
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<std::string> unused = (*model)->generation.unused;
  std::sort(unused.begin(), unused.end());
  EXPECT_EQ(unused, (std::vector<std::string>{"bad_words_ids", "no_repeat_ngram_size", "stop_strings",
                                              "suppress_tokens", "typical_p"}));
  files["generation_config.json"] = R"({"typical_p": 1, "no_repeat_ngram_size": 0, "stop_strings": null})";
  model = Load(files);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->generation.unused.empty());
}

TEST(ModelLoaderTest, OptionalFilesMayBeAbsent) {
  FileMap files = SoundFiles();
  files.erase("generation_config.json");
  files.erase("tokenizer.json");
  files.erase("tokenizer_config.json");
  const auto model = Load(files);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tokenizer, nullptr);
  EXPECT_EQ((*model)->chat_template, nullptr);
  EXPECT_EQ((*model)->eos_token_ids, std::vector<int32_t>{1});
}

TEST(ModelLoaderTest, DescriptionWithoutWeights) {
  FileMap files = SoundFiles();
  files.erase("model.safetensors");
  const auto model = Load(files, {.weights = false});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights, nullptr);
  EXPECT_NE((*model)->tokenizer, nullptr);
  EXPECT_FALSE(Load(files).ok());
}

TEST(ModelLoaderTest, TemplateFileWinsOverTheConfig) {
  FileMap files = SoundFiles();
  files["tokenizer_config.json"] = R"({"bos_token": "<s>", "chat_template": "config {{ bos_token }}"})";
  auto model = Load(files);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Prompt(**model), "config <s>");
  files["chat_template.jinja"] = "file {{ bos_token }} {{ messages[0].content }}";
  model = Load(files);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Prompt(**model), "file <s> hell");
}

// A serialized SentencePiece model of the pieces "<unk>", "<s>", "▁", "h", "e" and "▁he".
std::string TinySentencePiece() {
  std::string model;
  int score = 0;
  for (const auto& [text, type] :
       {std::pair<std::string, char>("<unk>", 2), {"<s>", 3}, {"▁", 1}, {"h", 1}, {"e", 1}, {"he", 1}, {"▁he", 1}}) {
    // Scores are -0, -1, …: only their order counts here.
    const float value = -static_cast<float>(score++);
    const std::string piece = std::string("\x0A") + static_cast<char>(text.size()) + text + "\x15" +
                              std::string(reinterpret_cast<const char*>(&value), 4) + "\x18" + type;
    model += std::string("\x0A") + static_cast<char>(piece.size()) + piece;
  }
  return model + "\x12\x02\x18\x02";  // trainer_spec.model_type: BPE
}

TEST(ModelLoaderTest, FilesInPlaceOfTokenizerJson) {
  FileMap files = SoundFiles();
  files.erase("tokenizer.json");
  files["tokenizer_config.json"] = R"({"chat_template": "{{ bos_token }}he"})";
  files["tokenizer.model"] = TinySentencePiece();
  auto model = Load(files);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Prompt(**model), "<s>he");  // The name is the file's own.
  EXPECT_EQ(*(*model)->tokenizer->Encode("<s>he h", {}), (std::vector<int32_t>{1, 6, 2, 3}));
  files["added_tokens.json"] = R"({"<x>": 7})";
  model = Load(files);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*(*model)->tokenizer->Encode("<x>h", {}), (std::vector<int32_t>{7, 2, 3}));
  files["added_tokens.json"] = R"({"<x>": 70})";
  ExpectError(files, "INVALID", "tokenizer.model", "vocab_size");
  files["tokenizer.model"].resize(20);
  ExpectError(files, "CORRUPT", "tokenizer.model", "field");

  files = SoundFiles();
  files.erase("tokenizer.json");
  files["tokenizer_config.json"] =
      R"({"tokenizer_class": "TikTokenTokenizer", "chat_template": "{{ tools | tojson }}"})";
  files["tiktoken.model"] = "aA== 0\nZQ== 1\naGU= 2\n";
  model = Load(files);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*(*model)->tokenizer->Encode("heeh", {}), (std::vector<int32_t>{2, 1, 0}));
  // As Kimi's class does it.
  ChatRenderInput input;
  input.messages = nlohmann::ordered_json::parse(R"([{"role": "user", "content": ""}])");
  input.tools =
      nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"b": [{"d": 1, "c": 2}], "a": 3}}])");
  EXPECT_EQ(JoinPieces(*(*model)->chat_template->Render(input)),
            R"([{"function": {"a": 3, "b": [{"c": 2, "d": 1}]}, "type": "function"}])");
  files["tiktoken.model"] = "aA== 0\nZQ=";
  ExpectError(files, "CORRUPT", "tiktoken.model", "line 2");
}

TEST(ModelLoaderTest, BadTemplates) {
  FileMap files = SoundFiles();
  files["chat_template.jinja"] = "{% for %}";
  ExpectError(files, "INVALID", "chat_template.jinja", "line 1");
  files = SoundFiles();
  files["tokenizer_config.json"] = R"({"chat_template": 7})";
  ExpectError(files, "INVALID", "tokenizer_config.json", "chat_template");
}

TEST(ModelLoaderTest, BadTokenizers) {
  FileMap files = SoundFiles();
  files["tokenizer.json"].resize(400);
  ExpectError(files, "CORRUPT", "tokenizer.json", "JSON");

  json tokenizer = moe::testing::TinyTokenizer();
  tokenizer["model"]["vocab"]["hell"] = tokenizer["model"]["vocab"]["ll"];
  files["tokenizer.json"] = tokenizer.dump();
  ExpectError(files, "INVALID", "tokenizer.json", "id");

  tokenizer = moe::testing::TinyTokenizer();
  tokenizer["model"]["type"] = "Telepathy";
  files["tokenizer.json"] = tokenizer.dump();
  ExpectError(files, "UNSUPPORTED", "tokenizer.json", "model");

  tokenizer = moe::testing::TinyTokenizer();
  tokenizer["model"]["vocab"]["hello"] = 20;
  files["tokenizer.json"] = tokenizer.dump();
  ExpectError(files, "INVALID", "tokenizer.json", "vocab_size");
}

TEST(ModelLoaderTest, BadGenerationConfigs) {
  const struct {
    const char* text;
    const char* word;
  } cases[] = {
      {R"({"temperature": "hot"})", "temperature"},
      {R"({"top_p": 1.5})", "top_p"},
      {R"({"top_k": 0.5})", "top_k"},
      {R"({"max_new_tokens": 0})", "max_new_tokens"},
      {R"({"do_sample": 1})", "do_sample"},
      {R"({"eos_token_id": [1, 20]})", "eos_token_id"},
      {R"({"eos_token_id": -1})", "eos_token_id"},
      {R"({"repetition_penalty": 0})", "repetition_penalty"},
      {R"([])", "object"},
      {R"({"min_p": null, "min_p": null})", "duplicate"},
  };
  for (const auto& one : cases) {
    FileMap files = SoundFiles();
    files["generation_config.json"] = one.text;
    ExpectError(files, "INVALID", "generation_config.json", one.word);
  }
  FileMap files = SoundFiles();
  files["generation_config.json"] = "{";
  ExpectError(files, "CORRUPT", "generation_config.json", "JSON");
}

}  // namespace
}  // namespace moe
