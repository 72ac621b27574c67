// Writes a checkpoint with random weights for benchmarks: Qwen3-MoE in bfloat16, by default the one of about a billion
// parameters that the figures in tests/README.md are for.
//   make_model DIR [--hidden 1024 --layers 12 --experts 32 --top-k 4 --intermediate 768 --heads 16 --kv-heads 4
//                   --head-dim 64 --vocab 32000 --seed 1]
#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "loaders/safetensors_writer.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

struct Shape {
  std::string directory;
  int64_t hidden = 1024;
  int64_t layers = 12;
  int64_t experts = 32;
  int64_t top_k = 4;
  int64_t intermediate = 768;
  int64_t heads = 16;
  int64_t kv_heads = 4;
  int64_t head_dim = 64;
  int64_t vocab = 32000;
  uint64_t seed = 1;
};

std::vector<TensorToWrite> Tensors(const Shape& s) {
  std::vector<TensorToWrite> out;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    out.push_back({name, DType::kBF16, std::move(shape)});
  };
  add("model.embed_tokens.weight", {s.vocab, s.hidden});
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string p = Cat("model.layers.", l, ".");
    add(p + "input_layernorm.weight", {s.hidden});
    add(p + "self_attn.q_proj.weight", {s.heads * s.head_dim, s.hidden});
    add(p + "self_attn.k_proj.weight", {s.kv_heads * s.head_dim, s.hidden});
    add(p + "self_attn.v_proj.weight", {s.kv_heads * s.head_dim, s.hidden});
    add(p + "self_attn.o_proj.weight", {s.hidden, s.heads * s.head_dim});
    add(p + "self_attn.q_norm.weight", {s.head_dim});
    add(p + "self_attn.k_norm.weight", {s.head_dim});
    add(p + "post_attention_layernorm.weight", {s.hidden});
    add(p + "mlp.gate.weight", {s.experts, s.hidden});
    for (int64_t e = 0; e < s.experts; ++e) {
      const std::string q = Cat(p, "mlp.experts.", e, ".");
      add(q + "gate_proj.weight", {s.intermediate, s.hidden});
      add(q + "up_proj.weight", {s.intermediate, s.hidden});
      add(q + "down_proj.weight", {s.hidden, s.intermediate});
    }
  }
  add("model.norm.weight", {s.hidden});
  add("lm_head.weight", {s.vocab, s.hidden});
  return out;
}

void WriteConfig(const Shape& s) {
  const nlohmann::ordered_json config{{"architectures", {"Qwen3MoeForCausalLM"}},
                                      {"model_type", "qwen3_moe"},
                                      {"torch_dtype", "bfloat16"},
                                      {"vocab_size", s.vocab},
                                      {"hidden_size", s.hidden},
                                      {"intermediate_size", s.intermediate},
                                      {"moe_intermediate_size", s.intermediate},
                                      {"num_hidden_layers", s.layers},
                                      {"num_attention_heads", s.heads},
                                      {"num_key_value_heads", s.kv_heads},
                                      {"head_dim", s.head_dim},
                                      {"num_experts", s.experts},
                                      {"num_experts_per_tok", s.top_k},
                                      {"norm_topk_prob", true},
                                      {"decoder_sparse_step", 1},
                                      {"mlp_only_layers", nlohmann::json::array()},
                                      {"hidden_act", "silu"},
                                      {"max_position_embeddings", 40960},
                                      {"rms_norm_eps", 1e-6},
                                      {"rope_theta", 1000000.0},
                                      {"attention_bias", false},
                                      {"tie_word_embeddings", false},
                                      {"bos_token_id", 0},
                                      {"eos_token_id", 1}};
  std::ofstream(s.directory + "/config.json") << config.dump(1) << "\n";
  std::ofstream(s.directory + "/generation_config.json") << R"({"eos_token_id": 1, "do_sample": false})"
                                                         << "\n";
}

// Uniform with the standard deviation 1/sqrt(fan in), norms around one: activations neither vanish nor blow up.
Status WriteWeights(const Shape& s) {
  const std::vector<TensorToWrite> tensors = Tensors(s);
  MOE_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::Create(s.directory + "/model.safetensors", tensors));
  uint64_t state = s.seed * 0x9e3779b97f4a7c15ull + 1;
  std::vector<bf16_t> data;
  for (const TensorToWrite& tensor : tensors) {
    const bool norm = tensor.shape.size() == 1;
    const float width = norm ? 0.1f : std::sqrt(3.0f / static_cast<float>(tensor.shape.back()));
    data.resize(tensor.bytes() / sizeof(bf16_t));
    for (bf16_t& value : data) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      const float u = static_cast<float>(state >> 40) * 0x1p-24f;
      value = FloatToBf16((norm ? 1.0f : 0.0f) + width * (2.0f * u - 1.0f));
    }
    MOE_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(data))));
  }
  return writer->Commit();
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  moe::Shape shape;
  CLI::App app("Writes a Qwen3-MoE checkpoint with random bfloat16 weights.");
  app.add_option("directory", shape.directory)->required();
  app.add_option("--hidden", shape.hidden)->capture_default_str();
  app.add_option("--layers", shape.layers)->capture_default_str();
  app.add_option("--experts", shape.experts)->capture_default_str();
  app.add_option("--top-k", shape.top_k)->capture_default_str();
  app.add_option("--intermediate", shape.intermediate)->capture_default_str();
  app.add_option("--heads", shape.heads)->capture_default_str();
  app.add_option("--kv-heads", shape.kv_heads)->capture_default_str();
  app.add_option("--head-dim", shape.head_dim)->capture_default_str();
  app.add_option("--vocab", shape.vocab)->capture_default_str();
  app.add_option("--seed", shape.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::filesystem::create_directories(shape.directory);
  moe::WriteConfig(shape);
  const moe::Status status = moe::WriteWeights(shape);
  if (!status.ok()) std::cerr << moe::DescribeError(status) << "\n";
  return status.ok() ? 0 : 1;
}
