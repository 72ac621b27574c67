#include "engine/tools/describe_model.h"

#include <cstdio>
#include <map>

#include "engine/cache/kv_store.h"
#include "engine/cache/state_store.h"
#include "engine/core/memory_plan.h"

namespace moe {
namespace {

using Json = nlohmann::ordered_json;

const char* ActivationName(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kGeluErf:
      return "gelu";
    case Activation::kRelu2:
      return "relu2";
  }
  return "?";
}

std::string DescribeMlp(const MlpSpec& mlp) {
  return Cat(mlp.gated ? "gated " : "", ActivationName(mlp.activation), " of width ", mlp.intermediate_size,
             mlp.bias ? " with biases" : "");
}

std::string Size(double bytes) {
  char text[32];
  const bool gib = bytes >= 1e9;
  std::snprintf(text, sizeof(text), gib ? "%.2f GiB" : "%.1f MiB",
                bytes / (gib ? 1024.0 * 1024 * 1024 : 1024.0 * 1024));
  return text;
}

std::string Count(double n) {
  char text[32];
  std::snprintf(text, sizeof(text), n >= 1e9 ? "%.2f billion" : "%.2f million", n / (n >= 1e9 ? 1e9 : 1e6));
  return text;
}

// Equal descriptions of consecutive or alternating layers, with the layers that share them.
std::map<std::string, std::vector<int64_t>> GroupLayers(const ModelSpec& spec) {
  std::map<std::string, std::vector<int64_t>> groups;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const std::string mixer = DescribeMixer(spec.layers[l].mixer);
    const std::string ffn = DescribeFfn(spec.layers[l].ffn);
    groups[Cat(mixer, mixer.empty() || ffn.empty() ? "" : " + ", ffn)].push_back(static_cast<int64_t>(l));
  }
  return groups;
}

// "0-3, 5, 7-8".
std::string Ranges(const std::vector<int64_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    out += Cat(out.empty() ? "" : ", ", numbers[i], j > i ? Cat("-", numbers[j]) : "");
    i = j + 1;
  }
  return out;
}

DType FormatOf(const LoadedModel& model) {
  return model.weights == nullptr ? DType::kBF16 : model.weights->expert_dtype();
}

}  // namespace

std::string DescribeRouter(const MoeSpec& moe) {
  const RouterSpec& r = moe.router;
  std::string out = r.score == RouterSpec::Score::kSoftmax ? "softmax" : "sigmoid";
  if (r.normalize == RouterSpec::Normalize::kSoftmaxOverChosen) out = "softmax over the chosen";
  out += Cat(", top ", moe.top_k, " of ", moe.num_experts);
  if (r.num_groups > 1) out += Cat(" in the best ", r.top_groups, " of ", r.num_groups, " groups");
  if (r.select_bias) out += ", selection bias";
  if (r.logit_bias) out += ", logit bias";
  if (r.normalize == RouterSpec::Normalize::kSum) out += ", weights renormalised";
  if (r.scale != 1.0f) out += Cat(", times ", r.scale);
  return out;
}

std::string DescribeMixer(const MixerSpec& mixer) {
  if (const auto* a = std::get_if<AttentionSpec>(&mixer)) {
    std::string out = Cat("attention (", a->num_heads, " heads of ", a->head_dim, ", ", a->num_kv_heads, " K/V heads");
    out += a->rope ? Cat(", RoPE on ", a->rope->rotary_dim, " dims") : ", no position embedding";
    if (a->qk_norm != QkNorm::kNone) out += ", QK-norm";
    if (a->window > 0) out += Cat(", window ", a->window);
    return out + ")";
  }
  if (const auto* m = std::get_if<Mamba2Spec>(&mixer)) {
    return Cat("Mamba-2 (", m->num_heads, " heads of ", m->head_dim, ", state ", m->state_size, ", ", m->num_groups,
               " groups, convolution ", m->conv_kernel, ")");
  }
  return "";
}

std::string DescribeFfn(const FfnSpec& ffn) {
  if (const auto* mlp = std::get_if<MlpSpec>(&ffn)) return Cat("MLP (", DescribeMlp(*mlp), ")");
  if (const auto* moe = std::get_if<MoeSpec>(&ffn)) {
    std::string out = Cat("MoE (", moe->num_experts, " experts, top ", moe->top_k, ", ", DescribeMlp(moe->expert));
    if (moe->shared) out += Cat("; shared expert, ", DescribeMlp(moe->shared->mlp));
    if (moe->latent_size > 0) out += Cat("; latent ", moe->latent_size);
    return out + ")";
  }
  return "";
}

int64_t CountParameters(const ModelSpec& spec) {
  int64_t count = 0;
  for (const TensorNeed& need : RequiredTensors(spec)) count += need.rows * need.cols;
  return count;
}

int64_t CountActiveParameters(const ModelSpec& spec) {
  int64_t count = CountParameters(spec);
  for (const LayerSpec& layer : spec.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    if (moe == nullptr) continue;
    const int64_t width = moe->expert_width(spec.hidden_size);
    const int64_t expert = width * moe->expert.intermediate_size * (moe->expert.gated ? 3 : 2);
    count -= (moe->num_experts - moe->top_k) * expert;
  }
  return count;
}

Json DescribeModelJson(const LoadedModel& model) {
  const ModelSpec& spec = model.spec;
  const DType format = FormatOf(model);
  const DType act = format == DType::kBF16 ? DType::kBF16 : DType::kF32;
  Json out;
  out["path"] = model.path;
  out["architecture"] = spec.architecture;
  out["family"] = spec.family;
  out["parameters"] = CountParameters(spec);
  out["active_parameters"] = CountActiveParameters(spec);
  out["hidden_size"] = spec.hidden_size;
  out["vocab_size"] = spec.vocab_size;
  out["max_positions"] = spec.max_positions;
  out["tied_head"] = spec.tied_head;
  out["layers"] = spec.layers.size();
  out["moe_layers"] = spec.MoeLayers();
  for (int64_t l : spec.MoeLayers()) {
    const auto& moe = std::get<MoeSpec>(spec.layers[l].ffn);
    out["experts"] = moe.num_experts;
    out["experts_per_token"] = moe.top_k;
    out["router"] = DescribeRouter(moe);
    out["shared_experts"] = moe.shared ? moe.shared->count : 0;
    out["latent_size"] = moe.latent_size;
    break;
  }
  for (const auto& [description, layers] : GroupLayers(spec)) {
    out["layer_kinds"].push_back({{"layers", layers}, {"what", description}});
  }
  out["eos_token_ids"] = model.eos_token_ids;
  out["weights_found"] = model.weights != nullptr;
  if (model.weights != nullptr) {
    out["expert_dtype"] = DTypeName(format);
    out["checkpoint_bytes"] = model.weights->total_bytes();
    out["ignored_tensors"] = model.weights->ignored_tensors();
  }
  out["memory"] = {{"weight_bytes", PackedWeightBytes(spec, format)},
                   {"weight_bytes_float32", PackedWeightBytes(spec, DType::kF32)},
                   {"kv_bytes_per_token", KvStore::BytesPerBlock(spec, act) / kKvBlockTokens},
                   {"state_bytes_per_sequence", StateStore::BytesPerSlot(spec)}};
  out["tokenizer"] = model.tokenizer != nullptr;
  out["chat_template"] = model.chat_template != nullptr;
  return out;
}

std::string DescribeModelText(const LoadedModel& model) {
  const ModelSpec& spec = model.spec;
  const Json json = DescribeModelJson(model);
  const Json& memory = json["memory"];
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    char label[32];
    std::snprintf(label, sizeof(label), "%-15s", name);
    out += Cat(label, value, "\n");
  };
  line("model", model.path);
  line("architecture", Cat(spec.architecture, " (family ", spec.family, ")"));
  line("parameters", Cat(Count(static_cast<double>(CountParameters(spec))), ", ",
                         Count(static_cast<double>(CountActiveParameters(spec))), " active for a token"));
  line("hidden size", Cat(spec.hidden_size, ", vocabulary ", spec.vocab_size, spec.tied_head ? ", tied head" : ""));
  line("context", Cat(spec.max_positions, " tokens"));
  for (const auto& [description, layers] : GroupLayers(spec)) {
    line(layers.size() == 1 ? "layer" : "layers", Cat(Ranges(layers), ": ", description));
  }
  if (json.contains("router")) line("router", json["router"].get<std::string>());
  if (model.weights != nullptr) {
    line("checkpoint",
         Cat(Size(static_cast<double>(model.weights->total_bytes())), ", experts in ", DTypeName(FormatOf(model)),
             model.weights->ignored_tensors() > 0
                 ? Cat(", ", model.weights->ignored_tensors(), " tensors skipped by rule")
                 : ""));
  } else {
    line("checkpoint", "no weights in this directory");
  }
  line("memory", Cat(Size(memory["weight_bytes"].get<double>()), " of weights (",
                     Size(memory["weight_bytes_float32"].get<double>()), " with --dtype float32), ",
                     memory["kv_bytes_per_token"].get<int64_t>(), " bytes of K/V a token",
                     spec.HasRecurrentState()
                         ? Cat(", ", Size(memory["state_bytes_per_sequence"].get<double>()), " of state a sequence")
                         : ""));
  line("tokenizer", Cat(model.tokenizer != nullptr ? "yes" : "no", ", chat template ",
                        model.chat_template != nullptr ? "yes" : "no"));
  return out;
}

}  // namespace moe
