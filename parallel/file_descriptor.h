// FileDescriptor: owns a file descriptor of the system.
#ifndef MOE_PARALLEL_FILE_DESCRIPTOR_H_
#define MOE_PARALLEL_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace moe {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace moe

#endif  // MOE_PARALLEL_FILE_DESCRIPTOR_H_
