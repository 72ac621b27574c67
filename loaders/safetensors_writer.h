// Writes one safetensors file, tensor by tensor, so that a large model never has to be in memory. The file appears
// under its name only when it is complete and on disk: a crash or an error leaves no half file there.
#ifndef MOE_LOADERS_SAFETENSORS_WRITER_H_
#define MOE_LOADERS_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/base/dtype.h"
#include "parallel/base/status.h"

namespace moe {

struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes() const;
};

// The 8-byte length and the header, padded with spaces so that the data starts at a multiple of 8.
// Names must be unique and the shapes not negative: INVALID otherwise.
StatusOr<std::string> SafetensorsHeader(const std::vector<TensorToWrite>& tensors,
                                        const std::map<std::string, std::string>& metadata);

class SafetensorsWriter {
 public:
  // Creates PATH.tmp-PID beside `path` and writes the header.
  static StatusOr<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path,
                                                             const std::vector<TensorToWrite>& tensors,
                                                             const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();  // without Commit(): removes the temporary file
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // The next bytes of data, in the order of `tensors`; pieces of any size.
  Status Append(std::span<const std::byte> data);

  // All data was appended (else INVALID): flushes to disk and renames.
  Status Commit();

 private:
  SafetensorsWriter(std::string path, std::string temporary, int fd, uint64_t data_bytes);
  Status Failed(const char* what) const;

  std::string path_;
  std::string temporary_;
  int fd_;
  uint64_t data_bytes_;  // still to come
};

}  // namespace moe

#endif  // MOE_LOADERS_SAFETENSORS_WRITER_H_
