// Checkpoints with one defect each: the right kind of error, naming the file and saying the word, and no crash.
#include <gtest/gtest.h>

#include "loaders/architectures.h"
#include "loaders/weight_store.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::EditConfig;
using moe::testing::EditHeader;
using moe::testing::EditTensors;
using moe::testing::FileMap;
using moe::testing::LayOut;
using moe::testing::Pack;
using moe::testing::Shard;
using moe::testing::SoundFiles;
using moe::testing::TinyFile;
using moe::testing::TinyTensor;
using moe::testing::TinyTensors;
using nlohmann::json;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kConfig = "config.json";
constexpr const char* kSecondShard = "model-00002-of-00002.safetensors";

struct Defect {
  const char* name;
  const char* kind;  // "" loads
  const char* file;
  const char* hint;
  std::function<void(FileMap*)> spoil;
};

std::ostream& operator<<(std::ostream& out, const Defect& defect) {
  return out << defect.name;
}

std::string HeaderLength(uint64_t length, const std::string& file) {
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(length >> shift & 0xff);
  return out + file.substr(8);
}

std::function<void(FileMap*)> Header(std::function<void(TinyFile*)> edit) {
  return [edit](FileMap* files) { EditHeader(files, edit); };
}
std::function<void(FileMap*)> Config(const char* field, json value) {
  return [field, value](FileMap* files) { EditConfig(files, [&](json* config) { (*config)[field] = value; }); };
}
std::function<void(FileMap*)> NoField(const char* field) {
  return [field](FileMap* files) { EditConfig(files, [&](json* config) { config->erase(field); }); };
}
std::function<void(FileMap*)> Index(std::function<void(json*, FileMap*)> edit) {
  return [edit](FileMap* files) {
    json index = Shard(files);
    edit(&index, files);
    (*files)[kIndex] = index.dump();
  };
}
std::function<void(FileMap*)> Tensors(std::function<void(std::vector<TinyTensor>*)> edit) {
  return [edit](FileMap* files) { EditTensors(files, edit); };
}
TinyTensor* Find(std::vector<TinyTensor>* tensors, const std::string& name) {
  for (TinyTensor& tensor : *tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const std::vector<Defect>& Defects() {
  static const auto* defects = new std::vector<Defect>{
      {"control_single", "", "", "", [](FileMap*) {}},
      {"control_sharded", "", "", "", Index([](json*, FileMap*) {})},

      {"empty_file", "CORRUPT", kWeights, "header", [](FileMap* f) { (*f)[kWeights] = ""; }},
      {"short_prefix", "CORRUPT", kWeights, "header", [](FileMap* f) { (*f)[kWeights] = std::string("\x10\0\0\0", 4); }},
      {"header_length_zero", "CORRUPT", kWeights, "header",
       [](FileMap* f) { (*f)[kWeights] = HeaderLength(0, (*f)[kWeights]); }},
      {"header_length_max", "CORRUPT", kWeights, "header",
       [](FileMap* f) { (*f)[kWeights] = HeaderLength(UINT64_MAX, (*f)[kWeights]); }},
      {"header_length_past_end", "CORRUPT", kWeights, "header",
       [](FileMap* f) { (*f)[kWeights] = HeaderLength(uint64_t{90} << 20, (*f)[kWeights]); }},
      {"header_not_json", "CORRUPT", kWeights, "JSON",
       [](FileMap* f) { (*f)[kWeights] = Pack(std::string("{\xff\xfe garbage}"), ""); }},
      {"header_is_list", "INVALID", kWeights, "header", [](FileMap* f) { (*f)[kWeights] = Pack("[1,2,3]", ""); }},
      {"header_is_number", "INVALID", kWeights, "header", [](FileMap* f) { (*f)[kWeights] = Pack("7", ""); }},
      {"header_entry_is_list", "INVALID", kWeights, "header", [](FileMap* f) { (*f)[kWeights] = Pack("{\"a\":[]}", ""); }},
      {"header_field_absent", "INVALID", kWeights, "header",
       Header([](TinyFile* f) { f->header["lm_head.weight"].erase("shape"); })},
      {"header_field_unknown", "INVALID", kWeights, "header",
       Header([](TinyFile* f) { f->header["lm_head.weight"]["colour"] = "blue"; })},
      {"deep_json", "INVALID", kWeights, "header",
       [](FileMap* f) {
         (*f)[kWeights] = Pack("{\"__metadata__\":{\"x\":" + std::string(3000, '[') + std::string(3000, ']') + "}}", "");
       }},
      {"duplicate_name", "INVALID", kWeights, "duplicate",
       [](FileMap* f) {
         const TinyFile file = LayOut(TinyTensors());
         std::string text = file.header.dump();
         text.back() = ',';
         (*f)[kWeights] = Pack(text + "\"model.norm.weight\":" + file.header["model.norm.weight"].dump() + "}", file.data);
       }},
      {"offsets_reversed", "INVALID", kWeights, "offset", Header([](TinyFile* f) {
         auto& offsets = f->header["model.norm.weight"]["data_offsets"];
         std::swap(offsets[0], offsets[1]);
       })},
      {"offsets_three", "INVALID", kWeights, "offset",
       Header([](TinyFile* f) { f->header["model.norm.weight"]["data_offsets"].push_back(0); })},
      {"offsets_wrap", "INVALID", kWeights, "offset",
       [](FileMap* f) {
         TinyFile file = LayOut(TinyTensors());
         std::string text = file.header.dump();
         const std::string old = file.header["model.norm.weight"]["data_offsets"].dump();
         text.replace(text.find(old), old.size(), "[18446744073709551600,18446744073709551632]");
         (*f)[kWeights] = Pack(text, file.data);
       }},
      {"data_cut", "CORRUPT", kWeights, "size", [](FileMap* f) { (*f)[kWeights].pop_back(); }},
      {"trailing_bytes", "INVALID", kWeights, "size", [](FileMap* f) { (*f)[kWeights] += std::string(16, '\0'); }},
      {"overlap", "INVALID", kWeights, "overlap", Header([](TinyFile* f) {
         f->header["model.norm.weight"]["data_offsets"] =
             f->header["model.layers.0.input_layernorm.weight"]["data_offsets"];
       })},
      {"hole", "INVALID", kWeights, "offset", Header([](TinyFile* f) {
         auto& offsets = f->header["lm_head.weight"]["data_offsets"];
         const size_t begin = offsets[0].get<size_t>();
         offsets = {begin + 32, offsets[1].get<size_t>() + 32};
         f->data.insert(begin, 32, '\0');
       })},
      {"shape_negative", "INVALID", kWeights, "shape",
       Header([](TinyFile* f) { f->header["model.norm.weight"]["shape"] = {-8}; })},
      {"shape_fraction", "INVALID", kWeights, "shape",
       Header([](TinyFile* f) { f->header["model.norm.weight"]["shape"] = {8.5}; })},
      {"shape_overflow", "INVALID", kWeights, "shape",
       Header([](TinyFile* f) { f->header["model.norm.weight"]["shape"] = {4294967296, 4294967296}; })},
      {"shape_rank", "INVALID", kWeights, "shape",
       Header([](TinyFile* f) { f->header["model.norm.weight"]["shape"] = std::vector<int>(1000, 1); })},
      {"shape_bytes_mismatch", "INVALID", kWeights, "shape",
       Header([](TinyFile* f) { f->header["lm_head.weight"]["shape"] = {20, 1000}; })},
      {"unknown_dtype", "UNSUPPORTED", kWeights, "dtype",
       Header([](TinyFile* f) { f->header["model.norm.weight"]["dtype"] = "Q9_K"; })},
      {"integer_weights", "UNSUPPORTED", kWeights, "dtype",
       Header([](TinyFile* f) { f->header["model.norm.weight"]["dtype"] = "I32"; })},
      {"weights_absent", "CORRUPT", kWeights, "no such file", [](FileMap* f) { f->erase(kWeights); }},
      {"only_pickle", "UNSUPPORTED", "pytorch_model.bin", "safetensors",
       [](FileMap* f) {
         f->erase(kWeights);
         (*f)["pytorch_model.bin"] = "x";
       }},

      {"tensor_absent", "INVALID", kWeights, "model.layers.0.mlp.experts.1.down_proj.weight",
       Tensors([](std::vector<TinyTensor>* t) {
         std::erase_if(*t, [](const TinyTensor& x) { return x.name.ends_with("experts.1.down_proj.weight"); });
       })},
      {"tensor_wrong_shape", "INVALID", kWeights, "[8, 4], expected [4, 8]", Tensors([](std::vector<TinyTensor>* t) {
         Find(t, "model.layers.0.mlp.experts.0.up_proj.weight")->shape = {8, 4};
       })},
      {"tensor_extra", "INVALID", kWeights, "model.layers.0.mlp.bonus.weight",
       Tensors([](std::vector<TinyTensor>* t) { t->push_back({"model.layers.0.mlp.bonus.weight", {4}}); })},
      {"both_expert_forms", "INVALID", kWeights, "model.layers.0.mlp.experts.gate_up_proj",
       Tensors([](std::vector<TinyTensor>* t) { t->push_back({"model.layers.0.mlp.experts.gate_up_proj", {2, 8, 8}}); })},

      {"shard_absent", "CORRUPT", kIndex, kSecondShard, Index([](json*, FileMap* f) { f->erase(kSecondShard); })},
      {"index_parent_path", "INVALID", kIndex, "weight_map",
       Index([](json* i, FileMap*) { (*i)["weight_map"]["lm_head.weight"] = "../elsewhere/model.safetensors"; })},
      {"index_number", "INVALID", kIndex, "weight_map",
       Index([](json* i, FileMap*) { (*i)["weight_map"]["lm_head.weight"] = 7; })},
      {"index_no_map", "INVALID", kIndex, "weight_map", Index([](json* i, FileMap*) { i->erase("weight_map"); })},
      {"index_empty_map", "INVALID", kIndex, "weight_map",
       Index([](json* i, FileMap*) { (*i)["weight_map"] = json::object(); })},
      {"index_cut", "CORRUPT", kIndex, "JSON",
       [](FileMap* f) {
         const std::string text = Shard(f).dump();
         (*f)[kIndex] = text.substr(0, text.size() / 2);
       }},
      {"index_wrong_shard", "INVALID", kIndex, "model.norm.weight",
       Index([](json* i, FileMap*) { (*i)["weight_map"]["model.norm.weight"] = "model-00001-of-00002.safetensors"; })},
      {"index_incomplete", "INVALID", kSecondShard, "model.norm.weight",
       Index([](json* i, FileMap*) { (*i)["weight_map"].erase("model.norm.weight"); })},
      {"index_extra", "INVALID", kIndex, "ghost",
       Index([](json* i, FileMap*) { (*i)["weight_map"]["ghost"] = kSecondShard; })},
      {"tensor_in_two_shards", "INVALID", kIndex, "two shards",
       Index([](json*, FileMap* f) {
         std::vector<TinyTensor> tensors = TinyTensors();
         tensors.erase(tensors.begin() + 1, tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2));
         (*f)[kSecondShard] = Pack(LayOut(tensors));
       })},

      {"config_cut", "CORRUPT", kConfig, "JSON", [](FileMap* f) { (*f)[kConfig].resize(120); }},
      {"config_absent", "CORRUPT", kConfig, "config.json", [](FileMap* f) { f->erase(kConfig); }},
      {"config_is_list", "INVALID", kConfig, "object", [](FileMap* f) { (*f)[kConfig] = "[]"; }},
      {"config_deep", "INVALID", kConfig, "nested",
       [](FileMap* f) { (*f)[kConfig] = std::string(100000, '[') + std::string(100000, ']'); }},
      {"config_duplicate", "INVALID", kConfig, "duplicate",
       [](FileMap* f) { (*f)[kConfig] = R"({"hidden_size": 8, "hidden_size": 16})"; }},
      {"layers_absent", "INVALID", kConfig, "num_hidden_layers", NoField("num_hidden_layers")},
      {"layers_zero", "INVALID", kConfig, "num_hidden_layers", Config("num_hidden_layers", 0)},
      {"layers_negative", "INVALID", kConfig, "num_hidden_layers", Config("num_hidden_layers", -1)},
      {"layers_absurd", "INVALID", kConfig, "num_hidden_layers", Config("num_hidden_layers", 1000000000)},
      {"layers_beyond_64_bits", "INVALID", kConfig, "num_hidden_layers", Config("num_hidden_layers", UINT64_MAX)},
      {"k_above_experts", "INVALID", kConfig, "num_experts_per_tok", Config("num_experts_per_tok", 3)},
      {"k_zero", "INVALID", kConfig, "num_experts_per_tok", Config("num_experts_per_tok", 0)},
      {"experts_absurd", "INVALID", kConfig, "num_experts", Config("num_experts", 1000000000)},
      {"experts_disagree", "INVALID", kConfig, "num_local_experts", Config("num_local_experts", 4)},
      {"heads_do_not_divide", "INVALID", kConfig, "num_key_value_heads", Config("num_key_value_heads", 3)},
      {"head_dim_odd", "INVALID", kConfig, "head_dim", Config("head_dim", 3)},
      {"width_absurd", "INVALID", kConfig, "hidden_size", Config("hidden_size", int64_t{1} << 40)},
      {"width_text", "INVALID", kConfig, "hidden_size", Config("hidden_size", "eight")},
      {"width_fraction", "INVALID", kConfig, "hidden_size", Config("hidden_size", 8.5)},
      {"theta_zero", "INVALID", kConfig, "rope_theta", Config("rope_theta", 0)},
      {"eps_text", "INVALID", kConfig, "rms_norm_eps", Config("rms_norm_eps", "small")},
      {"eps_infinite", "INVALID", kConfig, "rms_norm_eps", Config("rms_norm_eps", {{"__float__", "Infinity"}})},
      {"bool_as_number", "INVALID", kConfig, "norm_topk_prob", Config("norm_topk_prob", 1)},
      {"layer_list_text", "INVALID", kConfig, "mlp_only_layers[0]", Config("mlp_only_layers", json::array({"first"}))},
      {"eos_outside_vocab", "INVALID", kConfig, "eos_token_id", Config("eos_token_id", 20)},
      {"unknown_architecture", "UNSUPPORTED", kConfig, "architecture", Config("architectures", json::array({"FancyMoeForCausalLM"}))},
      {"no_architecture", "UNSUPPORTED", kConfig, "architecture",
       [](FileMap* f) {
         EditConfig(f, [](json* c) {
           c->erase("architectures");
           c->erase("model_type");
         });
       }},
      {"unknown_activation", "UNSUPPORTED", kConfig, "gelu_new", Config("hidden_act", "gelu_new")},
      {"unknown_rope", "UNSUPPORTED", kConfig, "spiral", Config("rope_scaling", {{"rope_type", "spiral"}})},
      {"rope_disagrees", "INVALID", kConfig, "rope_theta", Config("rope_parameters", {{"rope_theta", 5}})},
  };
  return *defects;
}

Status Load(const FileMap& content) {
  const std::unique_ptr<ModelFiles> files = moe::testing::InMemory(content);
  MOE_ASSIGN_OR_RETURN(const auto config, files->Open("config.json"));
  MOE_ASSIGN_OR_RETURN(ModelDescription model, ReadModelConfig(config->text()));
  return OpenWeightStore(*files, &model.spec, model.rules).status();
}

class DefectTest : public ::testing::TestWithParam<Defect> {};

TEST_P(DefectTest, GivesTheRightError) {
  const Defect& defect = GetParam();
  FileMap files = SoundFiles();
  defect.spoil(&files);
  const Status status = Load(files);
  const std::string message(status.message());
  if (*defect.kind == '\0') {
    EXPECT_TRUE(status.ok()) << DescribeError(status);
    return;
  }
  EXPECT_EQ(ErrorKind(status), defect.kind) << message;
  EXPECT_NE(message.find(defect.file), std::string::npos) << message;
  EXPECT_NE(message.find(defect.hint), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000u) << message;
}

INSTANTIATE_TEST_SUITE_P(All, DefectTest, ::testing::ValuesIn(Defects()),
                         [](const ::testing::TestParamInfo<Defect>& info) { return info.param.name; });

}  // namespace
}  // namespace moe
