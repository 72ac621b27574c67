#include "tests/loaders/tiny_checkpoint.h"

#include <cstring>

namespace moe::testing {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kHidden = 8, kHeads = 2, kKvHeads = 1, kHeadDim = 4, kExperts = 2, kInner = 4, kVocab = 20;

int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

// Different for every name, the same wherever a tensor is in the file.
std::vector<float> DefaultValues(const TinyTensor& tensor) {
  uint32_t seed = 0;
  for (const char c : tensor.name) seed = seed * 31 + static_cast<unsigned char>(c);
  std::vector<float> values(static_cast<size_t>(Count(tensor.shape)));
  for (size_t k = 0; k < values.size(); ++k) {
    values[k] = static_cast<float>(static_cast<int>((seed + k * 131) % 251) - 125) / 256;
  }
  return values;
}

// A code point below U+0800 as UTF-8.
std::string Utf8(int code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace

json TinyConfig() {
  return json{{"architectures", json::array({"Qwen3MoeForCausalLM"})},
              {"model_type", "qwen3_moe"},
              {"torch_dtype", "float32"},
              {"vocab_size", kVocab},
              {"hidden_size", kHidden},
              {"intermediate_size", 8},
              {"moe_intermediate_size", kInner},
              {"num_hidden_layers", 1},
              {"num_attention_heads", kHeads},
              {"num_key_value_heads", kKvHeads},
              {"head_dim", kHeadDim},
              {"num_experts", kExperts},
              {"num_experts_per_tok", 1},
              {"norm_topk_prob", true},
              {"decoder_sparse_step", 1},
              {"mlp_only_layers", json::array()},
              {"hidden_act", "silu"},
              {"max_position_embeddings", 64},
              {"rms_norm_eps", 1e-6},
              {"rope_theta", 10000.0},
              {"tie_word_embeddings", false},
              {"bos_token_id", 0},
              {"eos_token_id", 1},
              {"attention_bias", false}};
}

std::vector<TinyTensor> TinyTensors() {
  const std::string layer = "model.layers.0.";
  std::vector<TinyTensor> tensors = {{"model.embed_tokens.weight", {kVocab, kHidden}},
                                     {layer + "input_layernorm.weight", {kHidden}},
                                     {layer + "post_attention_layernorm.weight", {kHidden}},
                                     {layer + "self_attn.q_proj.weight", {kHeads * kHeadDim, kHidden}},
                                     {layer + "self_attn.k_proj.weight", {kKvHeads * kHeadDim, kHidden}},
                                     {layer + "self_attn.v_proj.weight", {kKvHeads * kHeadDim, kHidden}},
                                     {layer + "self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim}},
                                     {layer + "self_attn.q_norm.weight", {kHeadDim}},
                                     {layer + "self_attn.k_norm.weight", {kHeadDim}},
                                     {layer + "mlp.gate.weight", {kExperts, kHidden}}};
  for (int e = 0; e < kExperts; ++e) {
    const std::string expert = layer + "mlp.experts." + std::to_string(e) + ".";
    tensors.push_back({expert + "gate_proj.weight", {kInner, kHidden}});
    tensors.push_back({expert + "up_proj.weight", {kInner, kHidden}});
    tensors.push_back({expert + "down_proj.weight", {kHidden, kInner}});
  }
  tensors.push_back({"model.norm.weight", {kHidden}});
  tensors.push_back({"lm_head.weight", {kVocab, kHidden}});
  return tensors;
}

json TinyTokenizer() {
  json vocab = {{"<s>", 0}, {"</s>", 1}};
  for (const char c : std::string("abcdehilnorstw")) vocab[std::string(1, c)] = vocab.size();
  vocab[Utf8(0x120)] = vocab.size();  // how byte-level BPE spells a space
  for (const char* merged : {"he", "ll", "hell"}) vocab[merged] = vocab.size();
  json added = json::array();
  for (const char* token : {"<s>", "</s>"}) {
    added.push_back({{"id", added.size()},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", added},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false},
                {"vocab", vocab},
                {"merges", json::array({"h e", "l l", "he ll"})}}}};
}

TinyFile LayOut(const std::vector<TinyTensor>& tensors) {
  TinyFile file;
  file.header = ordered_json::object();
  for (const TinyTensor& tensor : tensors) {
    const std::string data = tensor.data.empty() ? Floats(DefaultValues(tensor)) : tensor.data;
    file.header[tensor.name] = {{"dtype", tensor.dtype},
                                {"shape", tensor.shape},
                                {"data_offsets", {file.data.size(), file.data.size() + data.size()}}};
    file.data += data;
  }
  return file;
}

std::string Pack(const std::string& header, const std::string& data) {
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(header.size() >> shift & 0xff);
  return out + header + data;
}

std::string Pack(const TinyFile& file) {
  return Pack(file.header.dump(), file.data);
}

FileMap SoundFiles() {
  return {{"config.json", TinyConfig().dump(1)},
          {"generation_config.json", R"({"bos_token_id": 0, "eos_token_id": 1})"},
          {"tokenizer.json", TinyTokenizer().dump()},
          {"tokenizer_config.json",
           R"({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"})"},
          {"model.safetensors", Pack(LayOut(TinyTensors()))}};
}

json Shard(FileMap* files) {
  const std::vector<TinyTensor> tensors = TinyTensors();
  const auto half = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2);
  json weight_map = json::object();
  files->erase("model.safetensors");
  int number = 0;
  for (const auto& part :
       {std::vector<TinyTensor>(tensors.begin(), half), std::vector<TinyTensor>(half, tensors.end())}) {
    const std::string name = "model-0000" + std::to_string(++number) + "-of-00002.safetensors";
    (*files)[name] = Pack(LayOut(part));
    for (const TinyTensor& tensor : part) weight_map[tensor.name] = name;
  }
  return {{"metadata", {{"total_size", 3008}}}, {"weight_map", weight_map}};
}

void EditConfig(FileMap* files, const std::function<void(json*)>& edit) {
  json config = json::parse((*files)["config.json"]);
  edit(&config);
  (*files)["config.json"] = config.dump(1);
}

void EditHeader(FileMap* files, const std::function<void(TinyFile*)>& edit) {
  TinyFile file = LayOut(TinyTensors());
  edit(&file);
  (*files)["model.safetensors"] = Pack(file);
}

void EditTensors(FileMap* files, const std::function<void(std::vector<TinyTensor>*)>& edit) {
  std::vector<TinyTensor> tensors = TinyTensors();
  edit(&tensors);
  (*files)["model.safetensors"] = Pack(LayOut(tensors));
}

std::unique_ptr<ModelFiles> InMemory(const FileMap& files) {
  return InMemoryModelFiles("memory", {files.begin(), files.end()});
}

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace moe::testing
