#include "tests/loaders/tokenizer/test_files.h"

#include <fstream>
#include <iterator>

#include "parallel/base/check.h"

namespace moe {

std::string ReadFixture(std::string_view kind, std::string_view name) {
  const std::string path = Cat(MOE_TEST_DATA_DIR, "/tokenizers/", kind, "/", name);
  std::ifstream file(path, std::ios::binary);
  MOE_CHECK(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::unique_ptr<Tokenizer> LoadFixture(std::string_view kind) {
  auto tokenizer = Tokenizer::Create(ReadFixture(kind, "tokenizer.json"), ReadFixture(kind, "tokenizer_config.json"));
  MOE_CHECK(tokenizer.ok()) << kind << ": " << DescribeError(tokenizer.status());
  return std::move(tokenizer).value();
}

std::unique_ptr<Tokenizer> LoadJson(const nlohmann::json& file) {
  auto tokenizer = Tokenizer::Create(file.dump(), "");
  MOE_CHECK(tokenizer.ok()) << DescribeError(tokenizer.status());
  return std::move(tokenizer).value();
}

nlohmann::json BpeFile(const std::vector<std::string>& tokens) {
  nlohmann::json vocab = nlohmann::json::object();
  for (size_t i = 0; i < tokens.size(); ++i) vocab[tokens[i]] = i;
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", nullptr},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
}

nlohmann::json AddedTokenJson(int id, std::string_view content, bool special) {
  return {{"id", id},
          {"content", std::string(content)},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", false},
          {"special", special}};
}

}  // namespace moe
