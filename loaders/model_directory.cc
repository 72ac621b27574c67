// ModelFiles over a directory: files are mapped, read-only and private.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "loaders/model_files.h"

namespace moe {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class MappedFile : public FileView {
 public:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  ~MappedFile() override {
    if (size_ > 0) ::munmap(const_cast<std::byte*>(data_), size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const override { return {data_, size_}; }

  void Release(std::span<const std::byte> range) const override {
    // Only whole pages inside the range: its border pages may hold a neighbour that is still in use.
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
    const auto end = (reinterpret_cast<uintptr_t>(range.data()) + range.size()) / page * page;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }

 private:
  const std::byte* data_;
  size_t size_;
};

class ModelDirectory : public ModelFiles {
 public:
  ModelDirectory(std::string path, int fd) : path_(std::move(path)), directory_(fd) {}

  bool Has(const std::string& name) const override {
    // Not following links: a dangling link is an absent file that Open() reports, not an optional file left out.
    struct stat info;
    return IsPlainFileName(name) && ::fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  }

  StatusOr<std::shared_ptr<const FileView>> Open(const std::string& name) const override {
    if (!IsPlainFileName(name)) return InvalidError("not a plain file name");
    // O_NONBLOCK: opening a FIFO must not wait for a writer. Links are followed, since hub caches consist of them.
    const FileDescriptor fd(::openat(directory_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd.get() < 0) {
      const int error = errno;
      if (error == ENOENT) return CorruptError(name, ": no such file in the model directory");
      return InvalidError(name, ": cannot be opened: ", std::strerror(error));
    }
    struct stat info;
    if (::fstat(fd.get(), &info) != 0) return InvalidError(name, ": ", std::strerror(errno));
    if (!S_ISREG(info.st_mode)) return InvalidError(name, ": not a regular file");
    if (info.st_size == 0) return std::shared_ptr<const FileView>(new MappedFile(nullptr, 0));
    const auto size = static_cast<size_t>(info.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return InvalidError(name, ": cannot be mapped: ", std::strerror(errno));
    // A core dump must not copy the weights. No hint about access order: some tensors are packed once and released,
    // others are read from the map in every step.
    ::madvise(data, size, MADV_DONTDUMP);
    return std::shared_ptr<const FileView>(new MappedFile(static_cast<const std::byte*>(data), size));
  }

  std::string description() const override { return path_; }

 private:
  std::string path_;
  FileDescriptor directory_;
};

}  // namespace

bool IsPlainFileName(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  for (const char c : name) {
    if (c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return true;
}

StatusOr<std::unique_ptr<ModelFiles>> OpenModelDirectory(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) return InvalidError("model directory: not a path");
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return InvalidError("model directory ", path, ": ", std::strerror(errno),
                        " (a local directory with config.json and safetensors is needed; nothing is downloaded)");
  }
  return std::unique_ptr<ModelFiles>(new ModelDirectory(path, fd));
}

}  // namespace moe
