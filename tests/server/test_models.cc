#include <fstream>
#include <sstream>

#include "loaders/model_files.h"
#include "parallel/base/check.h"
#include "tests/server/server_fixture.h"

namespace moe::testing {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}";

std::string ReadDemoFile(const std::string& name) {
  std::ifstream file(MOE_SOURCE_DIR "/loaders/demo/shakespeare-nemotronh/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::unique_ptr<LoadedModel> LoadFiles(std::vector<std::pair<std::string, std::string>> files) {
  LoadOptions options;
  options.weights = false;
  auto model = LoadModel(*InMemoryModelFiles("test model", std::move(files)), options);
  MOE_CHECK(model.ok()) << model.status().message();
  return *std::move(model);
}

}  // namespace

std::unique_ptr<LoadedModel> TestModel() {
  return LoadFiles({{"config.json", ReadDemoFile("config.json")},
                    {"tokenizer.json", ReadDemoFile("tokenizer.json")},
                    {"tokenizer_config.json",
                     Cat(R"({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": ")", kTemplate, "\"}")}});
}

std::unique_ptr<LoadedModel> TestModelWithoutText() {
  return LoadFiles({{"config.json", ReadDemoFile("config.json")}});
}

std::vector<int32_t> Ids(const LoadedModel& model, const std::string& text) {
  auto ids = model.tokenizer->Encode(text, {});
  MOE_CHECK(ids.ok()) << ids.status().message();
  return *std::move(ids);
}

}  // namespace moe::testing
