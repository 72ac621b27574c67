// Families with other switches than their fixtures', against what transformers computed (tests/data/variants.json, by
// tests/reference/make_variants.py): a family's checkpoint with some fields of config.json replaced and tensors added.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "loaders/architectures.h"
#include "loaders/json_text.h"
#include "tests/engine/model/test_model.h"
#include "tests/loaders/family_fixtures.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::Content;
using moe::testing::FileMap;
using nlohmann::json;

constexpr double kTolerance = 2e-4;

json Document() {
  return json::parse(Content(std::string(MOE_TEST_DATA_DIR) + "/variants.json"));
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  const json document = Document();
  for (const json& one : document["cases"]) names.push_back(one["name"]);
  return names;
}

// As the script makes them.
std::vector<float> ExtraValues(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t whole = (i * 37 + 11 * static_cast<int64_t>(name.size())) % 101 - 50;
    values.push_back(static_cast<float>(static_cast<double>(whole) / 250.0));
  }
  return values;
}

// Of the model.safetensors that is there.
void EditStored(FileMap* files, const std::function<void(moe::testing::TinyFile*)>& edit) {
  std::string& stored = (*files)["model.safetensors"];
  uint64_t size = 0;
  std::memcpy(&size, stored.data(), sizeof(size));
  moe::testing::TinyFile file;
  file.header = nlohmann::ordered_json::parse(stored.substr(sizeof(size), size));
  file.data = stored.substr(sizeof(size) + size);
  edit(&file);
  stored = moe::testing::Pack(file);
}

FileMap Files(const json& variant) {
  const std::string directory =
      std::string(MOE_TEST_DATA_DIR) + "/families/" + variant["family"].get<std::string>() + "/";
  json config = *ParseJson(Content(directory + "config.json"), "config.json", {.non_finite = true});
  for (const auto& [path, value] : variant["config"].items()) {
    const size_t dot = path.find('.');
    json& where = dot == std::string::npos ? config : config[path.substr(0, dot)];
    where[dot == std::string::npos ? path : path.substr(dot + 1)] = value;
  }
  FileMap files = {{"config.json", config.dump()}, {"model.safetensors", Content(directory + "model.safetensors")}};
  EditStored(&files, [&variant](moe::testing::TinyFile* file) {
    for (const auto& [name, sides] : variant["tensors"].items()) {
      const auto shape = sides.get<std::vector<int64_t>>();
      const size_t begin = file->data.size();
      file->data += moe::testing::Floats(ExtraValues(name, shape));
      file->header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, file->data.size()}}};
    }
  });
  return files;
}

// A sequence as the scheduler would start it.
TestSequence* Start(TestModel* model, const json& prompt, size_t new_tokens) {
  TestSequence* s = model->Add(prompt.get<std::vector<int32_t>>());
  s->init.logprobs = 0;
  s->init.prompt_logprobs = 0;
  const int64_t border = model->spec().LongContextBorder();
  s->init.long_context = border > 0 && s->init.prompt_len + static_cast<int64_t>(new_tokens) > border;
  return s;
}

std::vector<uint32_t> Bits(const TestSequence& s) {
  std::vector<uint32_t> bits;
  for (const auto* list : {&s.prompt_tokens, &s.tokens}) {
    for (const TokenInfo& token : *list) {
      bits.push_back(static_cast<uint32_t>(token.id));
      bits.push_back(std::bit_cast<uint32_t>(token.logprob));
    }
  }
  return bits;
}

class Variant : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const json document = Document();
    for (const json& one : document["cases"]) {
      if (one["name"] == GetParam()) variant_ = one;
    }
  }
  json variant_;
};

TEST_P(Variant, TransformersNumbers) {
  for (const char* backend : {"reference", "auto"}) {
    TestModel model(moe::testing::InMemory(Files(variant_)), {.backend = backend});
    double worst = 0;
    for (const json& one : variant_["prompts"]) {
      const auto want_ids = one["continuation"].get<std::vector<int32_t>>();
      const auto want = one["logprobs"].get<std::vector<double>>();
      TestSequence* s = Start(&model, one["prompt"], want_ids.size());
      const auto new_tokens = static_cast<int64_t>(want_ids.size());
      model.Run({s}, new_tokens, 7);
      ASSERT_EQ(static_cast<int64_t>(want.size()), s->init.prompt_len + new_tokens - 1);
      for (size_t p = 0; p < want.size(); ++p) {
        const size_t next = p + 1;
        const auto prompt_len = static_cast<size_t>(s->init.prompt_len);
        const TokenInfo& token = next < prompt_len ? s->prompt_tokens[next] : s->tokens[next - prompt_len];
        EXPECT_NEAR(token.logprob, want[p], kTolerance) << backend << " position " << p << " of " << want.size();
        worst = std::max(worst, std::abs(token.logprob - want[p]));
        if (next >= prompt_len) {
          EXPECT_EQ(token.id, want_ids[next - prompt_len]);
        }
      }
      model.Drop(s);
      if (HasFailure()) return;
    }
    std::cout << GetParam() << " " << backend << ": largest difference " << worst << "\n";
  }
}

// Sequences of both sides of a border, too, may share a batch.
TEST_P(Variant, AloneAndTogether) {
  TestModel model(moe::testing::InMemory(Files(variant_)), {.backend = "auto"});
  std::vector<TestSequence*> together;
  for (const json& one : variant_["prompts"]) {
    together.push_back(Start(&model, one["prompt"], one["continuation"].size()));
  }
  model.Run(together, 8, 5);
  for (size_t i = 0; i < together.size(); ++i) {
    const json& one = variant_["prompts"][i];
    TestSequence* alone = Start(&model, one["prompt"], one["continuation"].size());
    model.Run({alone}, 8, 1000);
    EXPECT_EQ(Bits(*alone), Bits(*together[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Variant, ::testing::ValuesIn(Names()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

// The added tensors are really used: without them the checkpoint is refused; biases that nobody reads are refused too.
TEST(VariantFiles, TensorsDecide) {
  const json document = Document();
  int with_tensors = 0;
  for (const json& one : document["cases"]) {
    if (one["tensors"].empty()) continue;
    ++with_tensors;
    json without = one;
    without["tensors"] = json::object();
    const auto files = moe::testing::InMemory(Files(without));
    auto model = ReadModelConfig((*files->Open("config.json"))->text());
    ASSERT_TRUE(model.ok()) << model.status();
    const Status status = OpenWeightStore(*files, &model->spec, model->rules).status();
    EXPECT_EQ(ErrorKind(status), "INVALID") << one["name"];
    EXPECT_NE(std::string(status.message()).find("missing tensor"), std::string::npos) << status;
  }
  EXPECT_GE(with_tensors, 2);
}

// The same configs beside the tensors that the authors' own code would have written.
ModelSpec SpecBeside(const FileMap& content) {
  const auto files = moe::testing::InMemory(content);
  auto model = ReadModelConfig((*files->Open("config.json"))->text());
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const Status status = OpenWeightStore(*files, &model->spec, model->rules).status();
  EXPECT_TRUE(status.ok()) << status;
  return model->spec;
}

void Drop(FileMap* files, const std::vector<std::string>& parts) {
  EditStored(files, [&parts](moe::testing::TinyFile* file) {
    // The data stays: every byte of a file belongs to a tensor, so the rest is put together anew.
    const moe::testing::TinyFile old = *file;
    *file = {};
    for (const auto& [name, tensor] : old.header.items()) {
      const auto has = [&name](const std::string& part) { return name.find(part) != std::string::npos; };
      if (name == "__metadata__" || std::any_of(parts.begin(), parts.end(), has)) continue;
      const size_t begin = tensor["data_offsets"][0];
      const size_t end = tensor["data_offsets"][1];
      file->header[name] = tensor;
      file->header[name]["data_offsets"] = {file->data.size(), file->data.size() + end - begin};
      file->data += old.data.substr(begin, end - begin);
    }
  });
}

TEST(VariantFiles, OfTheAuthorsCode) {
  const std::string kBias = "e_score_correction_bias";
  const auto files_of = [](const char* family, const json& config, const json& tensors) {
    return Files({{"family", family}, {"config", config}, {"tensors", tensors}});
  };
  FileMap hunyuan = files_of("hunyuan_v1_moe", {{"use_qk_norm", false}, {"use_mixed_mlp_moe", false}}, json::object());
  Drop(&hunyuan, {"query_layernorm", "key_layernorm", "shared_mlp"});
  ModelSpec spec = SpecBeside(hunyuan);
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_EQ(std::get<AttentionSpec>(layer.mixer).qk_norm, QkNorm::kNone);
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    EXPECT_TRUE(moe == nullptr || !moe->shared.has_value());
  }
  FileMap minimax = files_of("minimax_m2", {{"use_qk_norm", false}, {"use_routing_bias", false}}, json::object());
  Drop(&minimax, {"q_norm", "k_norm", kBias});
  spec = SpecBeside(minimax);
  EXPECT_EQ(std::get<AttentionSpec>(spec.layers[0].mixer).qk_norm, QkNorm::kNone);
  EXPECT_FALSE(std::get<MoeSpec>(spec.layers[0].ffn).router.select_bias);
  FileMap ernie = files_of("ernie4_5_moe", {{"moe_use_aux_free", false}}, json::object());
  Drop(&ernie, {kBias});
  spec = SpecBeside(ernie);
  EXPECT_FALSE(std::get<MoeSpec>(spec.layers.back().ffn).router.select_bias);
  // Nemotron-H with biases of attention.
  const std::string root = std::string(MOE_TEST_DATA_DIR) + "/families/nemotron_h/config.json";
  const json nemotron = *ParseJson(Content(root), "config.json", {.non_finite = true});
  json biases = json::object();
  const std::string pattern = nemotron["hybrid_override_pattern"];
  for (size_t l = 0; l < pattern.size(); ++l) {
    if (pattern[l] != '*') continue;
    const std::string mixer = Cat("backbone.layers.", l, ".mixer.");
    const int64_t head = nemotron["head_dim"];
    biases[mixer + "q_proj.bias"] = {nemotron["num_attention_heads"].get<int64_t>() * head};
    biases[mixer + "k_proj.bias"] = {nemotron["num_key_value_heads"].get<int64_t>() * head};
    biases[mixer + "v_proj.bias"] = biases[mixer + "k_proj.bias"];
    biases[mixer + "o_proj.bias"] = {nemotron["hidden_size"].get<int64_t>()};
  }
  ASSERT_FALSE(biases.empty());
  spec = SpecBeside(files_of("nemotron_h", {{"attention_bias", true}}, biases));
  int attention = 0;
  for (const LayerSpec& layer : spec.layers) {
    const auto* attn = std::get_if<AttentionSpec>(&layer.mixer);
    if (attn == nullptr) continue;
    ++attention;
    EXPECT_TRUE(attn->qkv_bias && attn->output_bias);
  }
  EXPECT_GT(attention, 0);
}

}  // namespace
}  // namespace moe
