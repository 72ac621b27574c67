#include "loaders/weight_index.h"

#include <utility>

#include "loaders/json_text.h"

namespace moe {
namespace {

constexpr size_t kMaxShards = 10000;

// Of metadata, which nobody is obliged to write; some write it as a floating point number.
int64_t TotalSize(const nlohmann::json& index) {
  constexpr double kMost = 9e18;
  if (!index.contains("metadata") || !index["metadata"].is_object()) return 0;
  const nlohmann::json size = index["metadata"].value("total_size", nlohmann::json());
  if (!size.is_number()) return 0;
  const double bytes = size.get<double>();
  return bytes > 0 && bytes < kMost ? static_cast<int64_t>(bytes) : 0;
}

}  // namespace

StatusOr<WeightIndex> ReadWeightIndex(const ModelFiles& files, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const std::shared_ptr<const FileView> view, files.Open(name));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(view->text(), name));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return InvalidError(name, ": weight_map is absent or not an object");
  }
  WeightIndex index;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    // Checked for all entries before the first file is opened; says nothing about what the path leads to.
    if (!shard.is_string() || !IsPlainFileName(shard.get_ref<const std::string&>())) {
      return InvalidError(
          name, ": weight_map gives ", Quoted(tensor), " the file ",
          shard.is_string() ? Quoted(shard.get_ref<const std::string&>()) : std::string(shard.type_name()),
          ", expected the plain name of a file in the same directory");
    }
    index.shards.insert(shard.get_ref<const std::string&>());
    index.shard_of.emplace(tensor, shard.get_ref<const std::string&>());
  }
  if (index.shards.empty()) return InvalidError(name, ": weight_map is empty");
  if (index.shards.size() > kMaxShards) {
    return InvalidError(name, ": weight_map names ", index.shards.size(), " files");
  }
  index.total_size = TotalSize(json);
  return index;
}

IndexReport CheckWeightIndex(const WeightIndex& index, const ModelFiles& files, ModelSpec* spec,
                             const TensorRules& rules) {
  std::vector<std::string_view> names;
  names.reserve(index.shard_of.size());
  for (const auto& [tensor, shard] : index.shard_of) names.emplace_back(tensor);
  NameMatcher matcher(rules, std::move(names));
  const std::vector<int64_t> unknown;
  rules.ApplySettlement([&](const std::string& name) { return index.shard_of.contains(name) ? &unknown : nullptr; },
                        spec);
  ForEachRequiredTensor(*spec, [&matcher](const TensorNeed& need) { matcher.Find(need); });
  for (const int64_t layer : matcher.without_select_bias()) {
    std::get<MoeSpec>(spec->layers[static_cast<size_t>(layer)].ffn).router.select_bias = false;
  }

  IndexReport report;
  const int64_t head = spec->tied_head ? matcher.SpareHead() : -1;
  if (head >= 0) {
    matcher.set_used(head, true);
    ++report.ignored["a head beside tied embeddings, which may equal them"];
  }
  report.tensors = static_cast<int64_t>(index.shard_of.size());
  report.total_size = index.total_size;
  report.shards = static_cast<int64_t>(index.shards.size());
  for (const std::string& shard : index.shards) report.shards_here += files.Has(shard) ? 1 : 0;
  NameMatcher::Unused unused = matcher.SortUnused();
  report.missing = matcher.missing();
  report.unknown = std::move(unused.unknown);
  report.ignored.merge(unused.ignored);
  report.quantized = matcher.FirstQuantized();
  return report;
}

}  // namespace moe
