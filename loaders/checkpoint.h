// The tensors of a checkpoint by their own names: one model.safetensors, or shards with an index.
#ifndef MOE_LOADERS_CHECKPOINT_H_
#define MOE_LOADERS_CHECKPOINT_H_

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "loaders/quant/quantized_weight.h"
#include "loaders/safetensors.h"

namespace moe {

class Checkpoint {
 public:
  struct Tensor {
    const StoredTensor* info = nullptr;
    const SafetensorsFile* file = nullptr;
    // Not null: the tensor is stored in parts, info says what it stands for (F32), and Dequantize has its values.
    const QuantizedWeight* quantized = nullptr;
    // What is stored (of a quantised tensor its codes).
    std::span<const std::byte> bytes() const {
      return file->bytes(quantized != nullptr ? *quantized->codes.info : *info);
    }
  };

  // With both a model.safetensors and an index the single file is read, as transformers does.
  static StatusOr<std::unique_ptr<Checkpoint>> Open(const ModelFiles& files);

  // Replaces the parts of quantised weights by the weights that they make up.
  Status JoinQuantized(const QuantizationConfig& config);

  // Every tensor, files in the order of their names, tensors in the order of their data.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Index into tensors(), or -1.
  int64_t Find(const std::string& name) const;
  // The file that says which tensors there are (the index, or the single file), for messages.
  const std::string& listing() const { return listing_; }

 private:
  Checkpoint() = default;
  Status OpenSingle(const ModelFiles& files, const std::string& name);
  Status OpenSharded(const ModelFiles& files, const std::string& index_name);
  void Add(std::unique_ptr<SafetensorsFile> file);

  std::string listing_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Tensor> tensors_;
  std::vector<QuantizedWeight> quantized_;
  std::vector<StoredTensor> quantized_infos_;
  std::unordered_map<std::string, int64_t> by_name_;
};

}  // namespace moe

#endif  // MOE_LOADERS_CHECKPOINT_H_
