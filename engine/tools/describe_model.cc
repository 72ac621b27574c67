#include "engine/tools/describe_model.h"

#include <cstdio>
#include <map>

#include "engine/cache/kv_store.h"
#include "engine/cache/state_store.h"
#include "engine/core/memory_plan.h"
#include "loaders/parameter_count.h"

namespace moe {
namespace {

using Json = nlohmann::ordered_json;

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
    const std::string ffn = DescribeFfn(spec.layers[l].ffn) + DescribeBeside(spec.layers[l]);
    groups[Cat(mixer, mixer.empty() || ffn.empty() ? "" : " + ", ffn)].push_back(static_cast<int64_t>(l));
  }
  return groups;
}

std::string Some(const SomeNames& names) {
  std::string out;
  for (const std::string& name : names.first) out += (out.empty() ? "" : ", ") + name;
  return out + (names.count > static_cast<int64_t>(names.first.size()) ? ", …" : "");
}

std::string DescribeIndex(const IndexReport& index) {
  return Cat("an index of ", index.tensors, " tensors in ", index.shards, index.shards == 1 ? " file" : " files",
             index.total_size > 0 ? Cat(", ", Size(static_cast<double>(index.total_size))) : "", "; ",
             index.shards_here == 0 ? "none" : Cat(index.shards_here), " of them here");
}

// What is wrong with the names, or that nothing is.
std::string DescribeNames(const IndexReport& index) {
  if (!index.quantized.empty()) {
    return Cat("quantised, so they are not those of the float model; the first: ", index.quantized);
  }
  std::string out;
  if (index.missing.count > 0) out += Cat(index.missing.count, " missing: ", Some(index.missing));
  if (index.unknown.count > 0) {
    out += Cat(out.empty() ? "" : "; ", index.unknown.count,
               " that this architecture does not use: ", Some(index.unknown));
  }
  if (out.empty()) out = "all that are needed are there";
  for (const auto& [reason, count] : index.ignored) out += Cat("; ", count, " skipped (", reason, ")");
  return out;
}

Json IndexJson(const IndexReport& index) {
  const auto names = [](const SomeNames& some) { return Json{{"count", some.count}, {"first", some.first}}; };
  Json out = {{"sound", index.sound()},          {"tensors", index.tensors},        {"files", index.shards},
              {"files_here", index.shards_here}, {"total_bytes", index.total_size}, {"missing", names(index.missing)},
              {"unknown", names(index.unknown)}, {"ignored", Json::object()}};
  for (const auto& [reason, count] : index.ignored) out["ignored"][reason] = count;
  if (!index.quantized.empty()) out["quantized"] = index.quantized;
  return out;
}

// Of the expert weights: the stored one, or what config.json declares as long as there are none.
DType FormatOf(const LoadedModel& model) {
  if (model.weights != nullptr) return model.weights->expert_dtype();
  if (model.declared_dtype == "float32") return DType::kF32;
  return model.declared_dtype == "float16" ? DType::kF16 : DType::kBF16;
}

}  // namespace

std::string Ranges(const std::vector<int64_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    // As far as the step stays the same; a step of more than one needs more than two numbers to be worth a word.
    const int64_t step = i + 1 < numbers.size() ? numbers[i + 1] - numbers[i] : 1;
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + step) ++j;
    if (step > 1 && j < i + 3) j = i;
    out += Cat(out.empty() ? "" : ", ", numbers[i], j > i ? Cat("-", numbers[j]) : "",
               j > i && step > 1 ? Cat(" by ", step) : "");
    i = j + 1;
  }
  return out;
}

Json DescribeModelJson(const LoadedModel& model) {
  const ModelSpec& spec = model.spec;
  const DType format = FormatOf(model);
  const DType act = format == DType::kBF16 ? DType::kBF16 : DType::kF32;
  Json out;
  out["path"] = model.path;
  out["architecture"] = spec.architecture;
  out["family"] = spec.family;
  const ParameterCount parameters = CountParameters(spec);
  out["parameters"] = parameters.total;
  out["active_parameters"] = parameters.active;
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
  if (!model.quantization.method.empty()) out["quantization"] = model.quantization.method;
  if (model.weights != nullptr && model.weights->quantized_weights() > 0) {
    out["quantized_weights"] = model.weights->quantized_weights();
  }
  out["eos_token_ids"] = model.eos_token_ids;
  out["weights_found"] = model.weights != nullptr;
  if (model.weights != nullptr) {
    out["expert_dtype"] = DTypeName(format);
    out["checkpoint_bytes"] = model.weights->total_bytes();
    out["ignored_tensors"] = model.weights->ignored_tensors();
  }
  if (model.index) out["index"] = IndexJson(*model.index);
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
  line("parameters", Cat(Count(json["parameters"].get<double>()), ", ", Count(json["active_parameters"].get<double>()),
                         " active for a token"));
  line("hidden size", Cat(spec.hidden_size, ", vocabulary ", spec.vocab_size, spec.tied_head ? ", tied head" : "",
                          spec.hyper ? Cat(", residual of ", spec.hyper->streams, " streams") : ""));
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
  } else if (model.index) {
    line("checkpoint", DescribeIndex(*model.index));
    line("tensor names", DescribeNames(*model.index));
  } else {
    line("checkpoint", Cat("no weights in this directory; ", DTypeName(FormatOf(model)),
                           model.declared_dtype.empty() ? " assumed" : " as config.json says"));
  }
  if (!model.quantization.method.empty()) {
    line("quantisation",
         Cat(model.quantization.method,
             model.weights != nullptr ? Cat(", ", model.weights->quantized_weights(), " weights of the model") : "",
             "; they are widened while loading, and the memory below is what they then take"));
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
