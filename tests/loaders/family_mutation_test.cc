// Spoilt copies of every family's tiny checkpoint (tests/data/families, or the directory in MOE_FIXTURES): each field
// of config.json and each kind of tensor in turn. The answer is an error that names the file and the field or tensor,
// or a model that validates and whose every tensor has a rule; never a crash.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "loaders/architectures.h"
#include "loaders/json_text.h"
#include "loaders/safetensors.h"
#include "loaders/weight_store.h"
#include "parallel/base/log.h"
#include "tests/loaders/family_fixtures.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::Content;
using moe::testing::Families;
using moe::testing::FileMap;
using moe::testing::FixtureRoot;
using nlohmann::json;

constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";

// All keys at any depth.
void CollectKeys(const json& value, std::set<std::string>* keys) {
  for (const auto& [key, inner] : value.items()) {
    if (value.is_object()) keys->insert(key);
    if (inner.is_structured()) CollectKeys(inner, keys);
  }
}

// Paths of all values at any depth. What vision and audio towers have in theirs is not read.
void CollectPaths(const json& value, const json::json_pointer& at, std::vector<json::json_pointer>* paths) {
  if (!value.is_object()) return;
  for (const auto& [key, inner] : value.items()) {
    if (key == "vision_config" || key == "audio_config") continue;
    paths->push_back(at / key);
    CollectPaths(inner, at / key, paths);
  }
}

// What a value may be replaced by, none of it a copy.
std::vector<json> Replacements(const json& value) {
  std::vector<json> all = {nullptr,         -1, 0,    int64_t{1} << 62, -1e300,         json{{"__float__", "NaN"}},
                           "no such thing", "", true, json::array(),    json::object(), json::array({-1, "x"})};
  if (value.is_array() && !value.empty()) {
    json shorter = value;
    shorter.erase(shorter.size() - 1);
    json longer = value;
    longer.push_back(value.back());
    all.push_back(shorter);
    all.push_back(longer);
    for (const json& other : {json(nullptr), json(-1), json(int64_t{1} << 62), json("no such thing"), json::array()}) {
      json changed = value;
      changed[0] = other;
      all.push_back(changed);
    }
  }
  std::erase(all, value);
  return all;
}

class FamilyMutation : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    directory_ = FixtureRoot() + "/" + GetParam();
    config_ = std::move(ParseJson(Content(directory_ + "/" + kConfig), kConfig, {.non_finite = true})).value();
    CollectKeys(config_, &keys_);
  }

  // Names of fields that errors may name though the file has them under another or lacks them.
  bool NamesAField(const std::string& message, const std::string& mutated) const {
    const auto has = [&](const std::string& word) { return message.find(word) != std::string::npos; };
    if (has(mutated)) return true;
    if (std::any_of(keys_.begin(), keys_.end(), [&](const std::string& key) { return key.size() > 3 && has(key); })) {
      return true;
    }
    for (const char* field : {"rope", "num_experts", "num_experts_per_tok", "topk_group", "n_group", "head_dim",
                              "num_hidden_layers", "layer_types", "intermediate_size"}) {
      if (has(field)) return true;
    }
    return false;
  }

  // A config that is read must leave no tensor without a rule. (What a checkpoint of its shapes would look like is not
  // asked here.)
  void ExpectPlanned(const ModelDescription& model, const std::string& what) const {
    std::set<std::string> seen;
    ForEachRequiredTensor(model.spec, [&](const TensorNeed& need) {
      const CanonicalName name = ParseCanonicalName(need.name);
      if (model.rules.Find(need.name) != nullptr || !seen.insert(name.pattern).second) return;
      EXPECT_NE(model.rules.Find(name.pattern), nullptr) << what << ": no rule for " << need.name;
    });
  }

  // Where a contradiction is none: what heads there are follows from other fields, or the fixture has no layer of the
  // kind; the model may have no experts at all; drafts are ignored.
  bool IsFree(const std::string& field) const {
    const std::string& family = GetParam();
    return (field == "num_key_value_heads" && (family == "jetmoe" || family == "inkling_text")) ||
           (field == "num_local_experts" && family == "granitemoehybrid") || field == "mtp_layers_block_type";
  }

  // Whether the config was read.
  bool ExpectSound(const json& config, const std::string& field, const std::string& what) const {
    const StatusOr<ModelDescription> model = ReadModelConfig(config.dump());
    if (model.ok()) {
      ExpectPlanned(*model, what);
      return true;
    }
    const std::string kind = ErrorKind(model.status());
    const std::string message(model.status().message());
    EXPECT_TRUE(kind == "INVALID" || kind == "UNSUPPORTED") << what << ": " << model.status();
    EXPECT_TRUE(message.starts_with(kConfig)) << what << ": " << message;
    EXPECT_TRUE(NamesAField(message, field)) << what << ": " << message;
    EXPECT_LT(message.size(), 2000u) << what;
    return false;
  }

  void ExpectRefused(const json& config, const std::string& field, const std::string& what) const {
    EXPECT_FALSE(ExpectSound(config, field, what)) << what << " is accepted";
  }

  std::string directory_;
  json config_;
  std::set<std::string> keys_;
};

TEST_P(FamilyMutation, Config) {
  ASSERT_TRUE(ReadModelConfig(config_.dump()).ok()) << ReadModelConfig(config_.dump()).status();
  std::vector<json::json_pointer> paths;
  CollectPaths(config_, json::json_pointer(), &paths);
  for (const json::json_pointer& path : paths) {
    const std::string field = path.back();
    json config = config_;
    config.at(path.parent_pointer()).erase(field);
    ExpectSound(config, field, Cat("without ", path.to_string()));
    for (const json& value : Replacements(config_.at(path))) {
      config.at(path.parent_pointer())[field] = value;
      ExpectSound(config, field, Cat(path.to_string(), " = ", value.dump()));
    }
  }
}

// Contradictions between fields, each of them in range.
TEST_P(FamilyMutation, Contradictions) {
  const StatusOr<ModelDescription> sound = ReadModelConfig(config_.dump());
  ASSERT_TRUE(sound.ok()) << sound.status();
  bool grouped_queries = false;
  for (const LayerSpec& layer : sound->spec.layers) {
    grouped_queries = grouped_queries || std::holds_alternative<AttentionSpec>(layer.mixer);
  }
  std::vector<json::json_pointer> paths;
  CollectPaths(config_, json::json_pointer(), &paths);
  for (const json::json_pointer& path : paths) {
    const std::string field = path.back();
    if (IsFree(field)) continue;
    const json& value = config_.at(path);
    const auto refuse = [&](const json& other) {
      json config = config_;
      config[path] = other;
      ExpectRefused(config, field, Cat(path.to_string(), " = ", other.dump()));
    };
    if (path == json::json_pointer("/architectures")) {
      refuse(json::array({"NoSuchForCausalLM"}));
      continue;
    }
    if (value.is_array() && field.find("layer") != std::string::npos && value.size() > 1 && value[0].is_string()) {
      json kinds = value;
      kinds[0] = "no such kind";
      refuse(kinds);
    }
    if (!value.is_number_integer()) continue;
    const int64_t number = value;
    for (const char* top_k : {"num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"}) {
      if (field == top_k) refuse(sound->spec.MaxExperts() + 100);
    }
    if (grouped_queries && (field == "num_key_value_heads" || field == "kv_n_heads") && number > 1) {
      // 5 divides no number of heads here, and has none to choose from where they are chosen.
      refuse(5);
    }
    if (field == "n_group" || field == "num_expert_group") {
      refuse(7);
      refuse(number * 1000);
    }
    if (field == "topk_group") refuse(number + 1000);
    if (field == "num_hidden_layers" || field == "n_layers") {
      refuse(-number);
      refuse(0);
    }
    for (const char* count : {"hidden_size", "vocab_size", "num_attention_heads", "num_experts", "num_local_experts",
                              "n_routed_experts", "moe_num_experts", "moe_intermediate_size"}) {
      // Only there: other objects repeat some of these names, as the object around the text model's does.
      const json::json_pointer text("/text_config");
      const bool inside = path.parent_pointer() == text;
      const bool outside = path.parent_pointer().empty() && !config_.contains(text / field);
      if (field != count || (!inside && !outside)) continue;
      refuse(-1);
      if (field != "moe_intermediate_size") refuse(0);
      refuse(int64_t{1} << 40);
      refuse("many");
    }
  }
}

// The tensors of the checkpoint: missing, renamed, one too many, turned over, of another rank or dtype.
class TensorMutation : public FamilyMutation {
 protected:
  void SetUp() override {
    FamilyMutation::SetUp();
    files_ = {{kConfig, Content(directory_ + "/" + kConfig)}};
    const std::string file = Content(directory_ + "/" + kWeights);
    ASSERT_GT(file.size(), 8u);
    uint64_t length = 0;
    for (int i = 0; i < 8; ++i) length |= uint64_t{static_cast<unsigned char>(file[static_cast<size_t>(i)])} << 8 * i;
    header_ = nlohmann::ordered_json::parse(file.substr(8, length));
    header_.erase("__metadata__");
    data_ = file.substr(8 + length);
    std::set<std::string> patterns;
    for (const auto& [name, info] : header_.items()) {
      std::string pattern;  // one of each name without its numbers
      for (const char c : name) pattern += std::isdigit(static_cast<unsigned char>(c)) != 0 ? '#' : c;
      if (patterns.insert(pattern).second) examples_.push_back(name);
    }
    level_ = GetLogLevel();
    SetLogLevel(LogLevel::kError);  // what is ignored is said each time
  }
  void TearDown() override { SetLogLevel(level_); }

  // Opens the checkpoint with another header.
  Status Open(const nlohmann::ordered_json& header, const std::string& data) {
    files_[kWeights] = moe::testing::Pack(header.dump(), data);
    const std::unique_ptr<ModelFiles> files = moe::testing::InMemory(files_);
    MOE_ASSIGN_OR_RETURN(ModelDescription model, ReadModelConfig(files_[kConfig]));
    MOE_ASSIGN_OR_RETURN(const auto weights, OpenWeightStore(*files, &model.spec, model.rules));
    return absl::OkStatus();
  }

  void ExpectNamed(const Status& status, const std::string& tensor, const std::string& what) {
    EXPECT_FALSE(status.ok()) << what << " is accepted";
    if (status.ok()) return;
    const std::string kind = ErrorKind(status);
    const std::string message(status.message());
    EXPECT_TRUE(kind == "INVALID" || kind == "UNSUPPORTED") << what << ": " << status;
    EXPECT_TRUE(message.starts_with(kWeights)) << what << ": " << message;
    EXPECT_NE(message.find(tensor), std::string::npos) << what << ": " << message;
  }

  // Cuts a tensor out of header and data.
  void Remove(const std::string& name, nlohmann::ordered_json* header, std::string* data) const {
    const uint64_t begin = header_[name]["data_offsets"][0];
    const uint64_t end = header_[name]["data_offsets"][1];
    *header = header_;
    header->erase(name);
    *data = data_.substr(0, begin) + data_.substr(end);
    for (auto& [other, info] : header->items()) {
      for (auto& offset : info["data_offsets"]) {
        if (offset.get<uint64_t>() >= end) offset = offset.get<uint64_t>() - (end - begin);
      }
    }
  }

  FileMap files_;
  nlohmann::ordered_json header_;
  std::string data_;
  std::vector<std::string> examples_;
  LogLevel level_ = LogLevel::kInfo;
};

TEST_P(TensorMutation, Tensors) {
  ASSERT_TRUE(Open(header_, data_).ok()) << Open(header_, data_);
  // Which tensors are used, and which of them may be absent.
  const StatusOr<ModelDescription> model = ReadModelConfig(files_[kConfig]);
  const std::unique_ptr<ModelFiles> files = moe::testing::InMemory(files_);
  ModelSpec spec = model->spec;
  const auto weights = OpenWeightStore(*files, &spec, model->rules);
  ASSERT_TRUE(weights.ok());
  std::set<std::string> used, turnable;
  ForEachRequiredTensor(spec, [&](const TensorNeed& need) {
    if (!(*weights)->Has(need.name)) return;
    const std::string name = (*weights)->SourceName(need.name);
    const std::string pattern = ParseCanonicalName(need.name).pattern;
    if (!model->rules.allow_no_select_bias() || !pattern.ends_with(".select_bias")) used.insert(name);
    // A family may declare both orientations under one name.
    const std::vector<TensorRule>* rules = model->rules.Find(need.name);
    if (rules == nullptr) rules = model->rules.Find(pattern);
    std::set<std::string> names;
    for (const TensorRule& rule : *rules) {
      if (!names.insert(rule.checkpoint).second) turnable.insert(name);
    }
  });

  for (const std::string& name : examples_) {
    const bool needed = used.contains(name);
    nlohmann::ordered_json header;
    std::string data;
    Remove(name, &header, &data);
    const Status missing = Open(header, data);
    if (needed) {
      // Another tensor may go by one of its names, and be found too large or too small.
      const bool taken = std::string(missing.message()).find("has the shape") != std::string::npos;
      if (!taken) ExpectNamed(missing, name, "without " + name);
    } else {
      EXPECT_TRUE(missing.ok()) << "without the unused " << name << ": " << missing;
    }
    if (!needed) continue;
    const json shape = header_[name]["shape"];
    const size_t rank = shape.size();
    // A side of 1 is one of a convolution or a vector, where it means nothing.
    if (rank >= 2 && shape[rank - 1] != shape[rank - 2] && shape[rank - 1] != 1 && shape[rank - 2] != 1 &&
        !turnable.contains(name)) {
      header = header_;
      header[name]["shape"][rank - 1] = shape[rank - 2];
      header[name]["shape"][rank - 2] = shape[rank - 1];
      ExpectNamed(Open(header, data_), name, "turned " + name);
    }
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    if (rank >= 2 && count != shape[rank - 1]) {
      header = header_;
      header[name]["shape"] = json::array({count});
      const Status flat = Open(header, data_);
      if (!flat.ok()) ExpectNamed(flat, name, "flat " + name);
    }
    header = header_;
    header[name]["dtype"] = header_[name]["dtype"] == "F32" ? "U32" : "U16";
    if (header_[name]["dtype"] == "F32" || header_[name]["dtype"] == "BF16") {
      ExpectNamed(Open(header, data_), name, "whole numbers in " + name);
    }
  }

  // Tensors that nobody asked for, in the layers and beside them; and one under another name.
  for (const std::string extra : {"model.layers.0.no_such.weight", "no_such_tensor", "model.no_such.bias"}) {
    nlohmann::ordered_json header = header_;
    header[extra] = {{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {data_.size(), data_.size() + 8}}};
    ExpectNamed(Open(header, data_ + std::string(8, '\0')), extra, "with " + extra);
  }
  const std::string& first = *used.begin();
  nlohmann::ordered_json header = header_;
  header[first + "x"] = header_[first];
  header.erase(first);
  ExpectNamed(Open(header, data_), first, first + " renamed");
}

const auto kName = [](const auto& info) { return info.param; };
INSTANTIATE_TEST_SUITE_P(Families, FamilyMutation, ::testing::ValuesIn(Families()), kName);
INSTANTIATE_TEST_SUITE_P(Families, TensorMutation, ::testing::ValuesIn(Families()), kName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FamilyMutation);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TensorMutation);

}  // namespace
}  // namespace moe
