// One safetensors file: an 8-byte little-endian header length, a JSON header, tensor bytes. The header is checked
// completely before anything is used: every tensor inside the data, no overlap, no hole, nothing left over.
#ifndef MOE_LOADERS_SAFETENSORS_H_
#define MOE_LOADERS_SAFETENSORS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loaders/model_files.h"
#include "parallel/base/dtype.h"
#include "parallel/base/status.h"

namespace moe {

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = uint64_t{100} << 20;

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // outermost first; empty: a scalar
  uint64_t begin = 0;          // bytes, from the start of the data section
  uint64_t end = 0;
};

// "[2, 4]"
std::string ShapeText(const std::vector<int64_t>& shape);

// Header names of dtypes: "F32", "BF16", … Unknown: false.
bool DTypeFromSafetensors(const std::string& name, DType* out);
const char* SafetensorsDTypeName(DType dtype);

// Parses `header` (the JSON text) of a file whose data section has `data_bytes` bytes. `file` is the base name.
// The tensors come in the order of their data.
StatusOr<std::vector<StoredTensor>> ParseSafetensorsHeader(std::string_view header, uint64_t data_bytes,
                                                           const std::string& file);

class SafetensorsFile {
 public:
  // `name`: base name, for messages and from `files`.
  static StatusOr<std::unique_ptr<SafetensorsFile>> Open(const ModelFiles& files, const std::string& name);

  const std::string& name() const { return name_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  std::span<const std::byte> bytes(const StoredTensor& tensor) const {
    return data_.subspan(tensor.begin, tensor.end - tensor.begin);
  }
  const FileView& view() const { return *view_; }

 private:
  SafetensorsFile() = default;
  std::string name_;
  std::shared_ptr<const FileView> view_;
  std::span<const std::byte> data_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace moe

#endif  // MOE_LOADERS_SAFETENSORS_H_
