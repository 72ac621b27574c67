#include "loaders/safetensors.h"

namespace moe {

StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const ModelFiles& files, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(std::shared_ptr<const FileView> view, files.Open(name));
  const std::span<const std::byte> bytes = view->bytes();
  if (bytes.size() < 8) {
    return CorruptError(name, ": ", bytes.size(), " bytes, too short for the 8 bytes of the header length");
  }
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | static_cast<uint64_t>(bytes[static_cast<size_t>(i)]);
  if (header_bytes == 0) return CorruptError(name, ": the header length is 0");
  if (header_bytes > bytes.size() - 8) {
    return CorruptError(name, ": the header length ", header_bytes, " exceeds the file (", bytes.size(), " bytes)");
  }
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return InvalidError(name, ": the header length ", header_bytes, " exceeds the limit of ",
                        kMaxSafetensorsHeaderBytes, " bytes");
  }
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->name_ = name;
  file->data_ = bytes.subspan(8 + header_bytes);
  const std::string_view header = view->text().substr(8, header_bytes);
  MOE_ASSIGN_OR_RETURN(file->tensors_, ParseSafetensorsHeader(header, file->data_.size(), name));
  file->view_ = std::move(view);
  return file;
}

}  // namespace moe
