#include "loaders/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include "loaders/json_text.h"
#include "loaders/safetensors.h"

namespace moe {
namespace {

Status WriteAll(int fd, const char* data, size_t size, const std::string& path) {
  while (size > 0) {
    const ssize_t written = ::write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return absl::UnavailableError(Cat(path, ": cannot be written: ", std::strerror(errno)));
    data += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

// The rename itself is durable only when the directory is.
void SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

uint64_t TensorToWrite::bytes() const {
  uint64_t total = DTypeSize(dtype);
  for (const int64_t dim : shape) total *= static_cast<uint64_t>(dim);
  return total;
}

StatusOr<std::string> SafetensorsHeader(const std::vector<TensorToWrite>& tensors,
                                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names = {"__metadata__"};
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (!names.insert(tensor.name).second) return InvalidError("tensor name ", Quoted(tensor.name), " twice");
    for (const int64_t dim : tensor.shape) {
      if (dim < 0) return InvalidError("tensor ", Quoted(tensor.name), " has the shape ", ShapeText(tensor.shape));
    }
    header[tensor.name] = {{"dtype", SafetensorsDTypeName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  while (text.size() % 8 != 0) text += ' ';
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(text.size() >> shift & 0xff);
  return out + text;
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::string temporary, int fd, uint64_t data_bytes)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd), data_bytes_(data_bytes) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status SafetensorsWriter::Failed(const char* what) const {
  return absl::UnavailableError(Cat(path_, ": cannot be ", what, ": ", std::strerror(errno)));
}

StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, const std::vector<TensorToWrite>& tensors,
    const std::map<std::string, std::string>& metadata) {
  MOE_ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(tensors, metadata));
  const std::string temporary = Cat(path, ".tmp-", ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return absl::UnavailableError(Cat(temporary, ": cannot be created: ", std::strerror(errno)));
  uint64_t data_bytes = 0;
  for (const TensorToWrite& tensor : tensors) data_bytes += tensor.bytes();
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(path, temporary, fd, data_bytes));
  MOE_RETURN_IF_ERROR(WriteAll(fd, header.data(), header.size(), path));
  return writer;
}

Status SafetensorsWriter::Append(std::span<const std::byte> data) {
  if (data.size() > data_bytes_) return InvalidError(path_, ": more data than the tensors have");
  data_bytes_ -= data.size();
  return WriteAll(fd_, reinterpret_cast<const char*>(data.data()), data.size(), path_);
}

Status SafetensorsWriter::Commit() {
  if (data_bytes_ != 0) return InvalidError(path_, ": ", data_bytes_, " bytes of tensor data were not written");
  if (::fsync(fd_) != 0) return Failed("flushed");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Failed("put in place");
  ::close(fd_);
  fd_ = -1;
  SyncDirectoryOf(path_);
  return absl::OkStatus();
}

}  // namespace moe
