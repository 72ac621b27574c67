#include "loaders/checkpoint.h"

#include "loaders/json_text.h"
#include "loaders/weight_index.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

constexpr const char* kCutUp =
    "a checkpoint whose tensors are cut up for tensor parallelism has to be joined first, one tensor in one piece";

}  // namespace

StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const ModelFiles& files) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  if (files.Has(kWeightFile)) {
    if (files.Has(kWeightIndexFile)) {
      MOE_LOG(kWarning) << kWeightIndexFile << " is not read, since there is a " << kWeightFile;
    }
    MOE_RETURN_IF_ERROR(checkpoint->OpenSingle(files, kWeightFile));
  } else if (files.Has(kWeightIndexFile)) {
    MOE_RETURN_IF_ERROR(checkpoint->OpenSharded(files, kWeightIndexFile));
  } else {
    for (const char* other :
         {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"}) {
      if (files.Has(other)) return UnsupportedError(other, ": only safetensors checkpoints can be read");
    }
    // Grok-2's.
    for (const char* shard : {"pytorch_model-00000-TP-common.safetensors", "pytorch_model-00000-TP-000.safetensors"}) {
      if (files.Has(shard)) return UnsupportedError(shard, ": ", kCutUp);
    }
    return CorruptError(kWeightFile, ": no such file in the model directory, nor a ", kWeightIndexFile);
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
  MOE_ASSIGN_OR_RETURN(const WeightIndex index, ReadWeightIndex(files, index_name));
  for (const std::string& shard : index.shards) {
    if (!files.Has(shard)) return CorruptError(index_name, ": names the shard ", Quoted(shard), ", which is absent");
  }
  for (const std::string& shard : index.shards) {
    MOE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(files, shard));
    for (const StoredTensor& tensor : file->tensors()) {
      if (!index.shard_of.contains(tensor.name)) {
        return InvalidError(shard, ": tensor ", Quoted(tensor.name), " is not in weight_map of ", index_name);
      }
      const int64_t other = Find(tensor.name);
      if (other >= 0) {
        return InvalidError(index_name, ": tensor ", Quoted(tensor.name), " is in two shards, ", Quoted(shard), " and ",
                            Quoted(tensors_[static_cast<size_t>(other)].file->name()),
                            shard.find("-TP-") == std::string::npos ? "" : Cat("; ", kCutUp));
      }
    }
    Add(std::move(file));
  }
  for (const auto& [tensor, shard] : index.shard_of) {
    const int64_t found = Find(tensor);
    if (found >= 0 && tensors_[static_cast<size_t>(found)].file->name() == shard) continue;
    const bool elsewhere = found >= 0;
    return InvalidError(index_name, ": tensor ", Quoted(tensor), " is not in its shard ", Quoted(shard),
                        elsewhere ? ", but in " + Quoted(tensors_[static_cast<size_t>(found)].file->name()) : "");
  }
  return absl::OkStatus();
}

Status Checkpoint::JoinQuantized(const QuantizationConfig& config) {
  std::vector<QuantPart> parts;
  parts.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) parts.push_back({tensor.info, tensor.file});
  std::vector<size_t> used;
  MOE_ASSIGN_OR_RETURN(quantized_, FindQuantizedWeights(parts, config, &used));
  if (quantized_.empty()) return absl::OkStatus();
  std::vector<bool> joined(tensors_.size());
  for (const size_t i : used) joined[i] = true;
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!joined[i]) tensors.push_back(tensors_[i]);
  }
  quantized_infos_.reserve(quantized_.size());
  for (const QuantizedWeight& weight : quantized_) {
    quantized_infos_.push_back({.name = weight.name, .dtype = DType::kF32, .shape = weight.shape});
    tensors.push_back({&quantized_infos_.back(), weight.codes.file, &weight});
  }
  tensors_ = std::move(tensors);
  by_name_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (by_name_.emplace(tensors_[i].info->name, static_cast<int64_t>(i)).second) continue;
    return InvalidError(tensors_[i].file->name(), ": tensor ", Quoted(tensors_[i].info->name),
                        " is there twice, in two quantised forms");
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
