// Files and small tokenizers for the tests.
#ifndef MOE_TESTS_LOADERS_TOKENIZER_TEST_FILES_H_
#define MOE_TESTS_LOADERS_TOKENIZER_TEST_FILES_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "loaders/tokenizer/tokenizer.h"

namespace moe {

inline constexpr std::string_view kFixtureKinds[] = {"deepseek_v2", "deepseek_v3", "gemma",         "gpt2",
                                                     "gpt_neox",    "llama3",      "metaspace_bpe", "mixtral",
                                                     "o200k",       "qwen2",       "unigram",       "unigram_bytes"};

// The bytes of tests/data/tokenizers/<kind>/<name>.
std::string ReadFixture(std::string_view kind, std::string_view name);

// The tokenizer of a fixture. Ends the test program when it does not load.
std::unique_ptr<Tokenizer> LoadFixture(std::string_view kind);

// Loads a tokenizer.json. Ends the test program when it does not load.
std::unique_ptr<Tokenizer> LoadJson(const nlohmann::json& file);

// A tokenizer.json whose vocabulary is `tokens`, with ids in order, and no merges.
nlohmann::json BpeFile(const std::vector<std::string>& tokens);

nlohmann::json AddedTokenJson(int id, std::string_view content, bool special);

}  // namespace moe

#endif  // MOE_TESTS_LOADERS_TOKENIZER_TEST_FILES_H_
