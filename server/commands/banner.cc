#include "server/commands/banner.h"

#include <algorithm>
#include <cstdio>
#include <variant>

#include "engine/tools/describe_model.h"
#include "loaders/model_loader.h"

namespace moe {
namespace {

// "9 layers (4 recurrent, 2 attention, 3 MoE)"
std::string LayersText(const ModelSpec& spec) {
  int attention = 0;
  int recurrent = 0;
  int dense = 0;
  for (const LayerSpec& layer : spec.layers) {
    const bool has_state = CacheOf(layer.mixer).state > 0;
    recurrent += has_state ? 1 : 0;
    attention += !has_state && !std::holds_alternative<std::monostate>(layer.mixer) ? 1 : 0;
    dense += std::holds_alternative<MlpSpec>(layer.ffn) ? 1 : 0;
  }
  std::string text = Cat(spec.layers.size(), " layers (");
  const char* separator = "";
  const auto add = [&](size_t count, const char* name) {
    if (count == 0) return;
    text += Cat(separator, count, " ", name);
    separator = ", ";
  };
  add(recurrent, "recurrent");
  add(attention, "attention");
  add(spec.MoeLayers().size(), "MoE");
  add(dense, "dense MLP");
  return text + ")";
}

std::string ExpertsText(const ModelSpec& spec) {
  const std::vector<int64_t> layers = spec.MoeLayers();
  if (layers.empty()) return "no experts";
  const auto& moe = std::get<MoeSpec>(spec.layers[layers.front()].ffn);
  std::string text = Cat(moe.num_experts, " experts a MoE layer, router ", DescribeRouter(moe));
  if (moe.shared.has_value()) text += Cat(", ", moe.shared->count, " shared");
  if (moe.latent_size > 0) text += Cat(", latent ", moe.latent_size);
  return text;
}

}  // namespace

std::string BytesText(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::vector<std::string> BannerLines(const std::string& served_name, const Engine& engine) {
  const LoadedModel& model = engine.model();
  const EngineInfo& info = engine.info();
  std::vector<std::string> lines;
  lines.push_back(Cat("model ", served_name, " from ", model.path, ": ", model.spec.architecture, ", ",
                      LayersText(model.spec), ", hidden ", model.spec.hidden_size, ", vocabulary ",
                      model.spec.vocab_size));
  lines.push_back(ExpertsText(model.spec));
  std::string compute = Cat("weights ", info.weight_dtype, ", activations ", info.act_dtype, ", backend ", info.backend,
                            ", ", info.threads, info.threads == 1 ? " thread" : " threads");
  if (info.ranks > 1) compute += Cat(", experts over ", info.ranks, " ranks");
  lines.push_back(compute);
  const int64_t kv_tokens = info.kv_blocks * info.kv_block_tokens;
  std::string memory = Cat("memory: weights ", BytesText(info.weight_bytes), ", K/V ", BytesText(info.kv_bytes), " (",
                           info.kv_blocks, " blocks, ", kv_tokens, " tokens)");
  if (info.state_slots > 0) memory += Cat(", ", info.state_slots, " recurrent state slots");
  lines.push_back(memory);
  std::string context = Cat("context up to ", info.max_model_len, " tokens");
  if (info.max_model_len > 0 && kv_tokens > 0) {
    context += Cat("; ", std::max<int64_t>(1, kv_tokens / info.max_model_len), " sequences of full length fit at once");
  }
  lines.push_back(context);
  lines.insert(lines.end(), info.notes.begin(), info.notes.end());
  char seconds[64];
  std::snprintf(seconds, sizeof(seconds), "loaded and warmed up in %.2f s", info.load_seconds);
  lines.emplace_back(seconds);
  return lines;
}

}  // namespace moe
