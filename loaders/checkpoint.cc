#include "loaders/checkpoint.h"

#include <map>
#include <set>

#include "loaders/json_text.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxShards = 10000;

// tensor → shard. Every shard is a plain file name.
using WeightMap = std::map<std::string, std::string>;

StatusOr<WeightMap> ReadIndex(const ModelFiles& files, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const std::shared_ptr<const FileView> view, files.Open(name));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(view->text(), name));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return InvalidError(name, ": weight_map is absent or not an object");
  }
  WeightMap map;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    // Checked for all entries before the first file is opened; says nothing about what the path leads to.
    if (!shard.is_string() || !IsPlainFileName(shard.get_ref<const std::string&>())) {
      return InvalidError(
          name, ": weight_map gives ", Quoted(tensor), " the file ",
          shard.is_string() ? Quoted(shard.get_ref<const std::string&>()) : std::string(shard.type_name()),
          ", expected the plain name of a file in the same directory");
    }
    map.emplace(tensor, shard.get<std::string>());
  }
  return map;
}

}  // namespace

StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const ModelFiles& files) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  if (files.Has(kSingleFile)) {
    if (files.Has(kIndexFile)) {
      MOE_LOG(kWarning) << kIndexFile << " is not read, since there is a " << kSingleFile;
    }
    MOE_RETURN_IF_ERROR(checkpoint->OpenSingle(files, kSingleFile));
  } else if (files.Has(kIndexFile)) {
    MOE_RETURN_IF_ERROR(checkpoint->OpenSharded(files, kIndexFile));
  } else {
    for (const char* other :
         {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"}) {
      if (files.Has(other)) return UnsupportedError(other, ": only safetensors checkpoints can be read");
    }
    return CorruptError(kSingleFile, ": no such file in the model directory, nor a ", kIndexFile);
  }
  return checkpoint;
}

int64_t Checkpoint::Find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? -1 : it->second;
}

Status Checkpoint::OpenSingle(const ModelFiles& files, const std::string& name) {
  listing_ = name;
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(files, name));
  Add(std::move(file));
  return absl::OkStatus();
}

Status Checkpoint::OpenSharded(const ModelFiles& files, const std::string& index_name) {
  listing_ = index_name;
  MOE_ASSIGN_OR_RETURN(const WeightMap map, ReadIndex(files, index_name));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map) shards.insert(shard);
  if (shards.empty()) return InvalidError(index_name, ": weight_map is empty");
  if (shards.size() > kMaxShards) return InvalidError(index_name, ": weight_map names ", shards.size(), " files");
  for (const std::string& shard : shards) {
    if (!files.Has(shard)) return CorruptError(index_name, ": names the shard ", Quoted(shard), ", which is absent");
  }
  for (const std::string& shard : shards) {
    MOE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(files, shard));
    for (const StoredTensor& tensor : file->tensors()) {
      const auto entry = map.find(tensor.name);
      if (entry == map.end()) {
        return InvalidError(shard, ": tensor ", Quoted(tensor.name), " is not in weight_map of ", index_name);
      }
      const int64_t other = Find(tensor.name);
      if (other >= 0) {
        return InvalidError(index_name, ": tensor ", Quoted(tensor.name), " is in two shards, ", Quoted(shard), " and ",
                            Quoted(tensors_[static_cast<size_t>(other)].file->name()));
      }
    }
    Add(std::move(file));
  }
  for (const auto& [tensor, shard] : map) {
    const int64_t found = Find(tensor);
    if (found >= 0 && tensors_[static_cast<size_t>(found)].file->name() == shard) continue;
    const bool elsewhere = found >= 0;
    return InvalidError(index_name, ": tensor ", Quoted(tensor), " is not in its shard ", Quoted(shard),
                        elsewhere ? ", but in " + Quoted(tensors_[static_cast<size_t>(found)].file->name()) : "");
  }
  return absl::OkStatus();
}

void Checkpoint::Add(std::unique_ptr<SafetensorsFile> file) {
  for (const StoredTensor& tensor : file->tensors()) {
    by_name_.emplace(tensor.name, static_cast<int64_t>(tensors_.size()));
    tensors_.push_back({&tensor, file.get()});
  }
  files_.push_back(std::move(file));
}

}  // namespace moe
