#include "engine/device/packed_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "parallel/base/log.h"

namespace moe {
namespace {

// The file: the buffers, each at a multiple of a page; then their sizes, the identity, and the tail.
struct Tail {
  uint64_t buffers = 0;
  uint64_t identity_bytes = 0;
  uint64_t data_bytes = 0;
  char magic[8] = {'M', 'O', 'E', 'P', 'A', 'C', 'K', '1'};
};

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMostBuffers = uint64_t{1} << 24;
constexpr uint64_t kMostIdentity = uint64_t{1} << 24;

uint64_t RoundUp(uint64_t n) {
  return (n + kPage - 1) / kPage * kPage;
}

// FNV-1a, for a file name; the identity itself is compared too.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

std::string ErrorText() {
  return std::strerror(errno);
}

bool ReadAt(int fd, void* out, size_t bytes, uint64_t offset) {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t n = pread(fd, to, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

bool WriteAt(int fd, const void* data, size_t bytes, uint64_t offset) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

}  // namespace

StatusOr<std::unique_ptr<PackedCache>> PackedCache::Open(const std::string& directory, const std::string& identity) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!std::filesystem::is_directory(directory)) {
    return InvalidError("weight-cache: ", directory, " is not a directory", error ? ": " + error.message() : "");
  }
  std::unique_ptr<PackedCache> cache(new PackedCache());
  cache->identity_ = identity;
  char name[32];
  std::snprintf(name, sizeof(name), "%016llx.packed", static_cast<unsigned long long>(Hash(identity)));
  cache->path_ = (std::filesystem::path(directory) / name).string();
  if (const Status status = cache->OpenExisting(); !status.ok()) {
    if (!absl::IsNotFound(status)) {
      MOE_LOG(kWarning) << status.message() << "; packing the weights anew";
    }
    MOE_RETURN_IF_ERROR(cache->CreateNew());
  }
  return cache;
}

PackedCache::~PackedCache() {
  if (writer_.joinable()) writer_.join();
  for (const Mapping& mapping : mappings_) munmap(mapping.data, mapping.bytes);
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

// NOT_FOUND: there is none. Otherwise why the one there is not used.
Status PackedCache::OpenExisting() {
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd_ < 0 && errno == ENOENT) return absl::NotFoundError(path_);
  const auto refuse = [&](const std::string& why) {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    sizes_.clear();
    return InvalidError("weight-cache: ", path_, ": ", why);
  };
  if (fd_ < 0) return refuse(ErrorText());
  struct stat facts;
  if (fstat(fd_, &facts) != 0) return refuse(ErrorText());
  if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid()) return refuse("is not a file of this user");
  Tail tail;
  const Tail expected;
  const auto size = static_cast<uint64_t>(facts.st_size);
  if (size < sizeof(tail) || !ReadAt(fd_, &tail, sizeof(tail), size - sizeof(tail)) ||
      std::memcmp(tail.magic, expected.magic, sizeof(tail.magic)) != 0) {
    return refuse("is not a file of packed weights");
  }
  if (tail.buffers > kMostBuffers || tail.identity_bytes > kMostIdentity || tail.data_bytes > size ||
      tail.data_bytes + tail.buffers * 8 + tail.identity_bytes + sizeof(tail) != size) {
    return refuse("is cut off or damaged");
  }
  sizes_.resize(tail.buffers);
  std::string identity(tail.identity_bytes, '\0');
  if (!ReadAt(fd_, sizes_.data(), tail.buffers * 8, tail.data_bytes) ||
      !ReadAt(fd_, identity.data(), identity.size(), tail.data_bytes + tail.buffers * 8)) {
    return refuse("cannot be read");
  }
  uint64_t total = 0;
  for (const uint64_t bytes : sizes_) {
    if (bytes > size || RoundUp(bytes) > tail.data_bytes - total) return refuse("is cut off or damaged");
    total += RoundUp(bytes);
  }
  if (total != tail.data_bytes) return refuse("is cut off or damaged");
  if (identity != identity_) return refuse("holds other weights");
  hit_ = true;
  return absl::OkStatus();
}

Status PackedCache::CreateNew() {
  temporary_ = Cat(path_, ".", getpid(), ".partial");
  unlink(temporary_.c_str());  // of a process that had our number and died
  fd_ = open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd_ >= 0) return absl::OkStatus();
  const std::string why = ErrorText();
  const std::string path = std::exchange(temporary_, {});
  return InvalidError("weight-cache: cannot make ", path, ": ", why);
}

void PackedCache::GiveUp(const std::string& reason) {
  given_up_ = true;
  MOE_LOG(kWarning) << "weight-cache: " << path_ << ": " << reason << "; the other weights stay in memory only";
  if (!temporary_.empty()) unlink(std::exchange(temporary_, {}).c_str());
}

PackedCache::Buffer PackedCache::Next(size_t bytes) {
  if (given_up_ || bytes == 0) return {};
  if (hit_) {
    if (next_ >= sizes_.size() || sizes_[next_] != bytes) {
      GiveUp("its buffers are not those of this model");
      return {};
    }
    ++next_;
  } else {
    // Blocks are reserved now: a disk that fills up while pages are written would end the process by a signal.
    const int error = posix_fallocate(fd_, static_cast<off_t>(offset_), static_cast<off_t>(RoundUp(bytes)));
    if (error != 0) {
      GiveUp(std::strerror(error));
      return {};
    }
    sizes_.push_back(bytes);
  }
  const size_t mapped = RoundUp(bytes);
  void* data =
      mmap(nullptr, mapped, hit_ ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(offset_));
  if (data == MAP_FAILED) {
    GiveUp(ErrorText());
    return {};
  }
  madvise(data, mapped, MADV_WILLNEED);  // hints: failing changes nothing but speed
  madvise(data, mapped, MADV_HUGEPAGE);
  mappings_.push_back({data, mapped});
  offset_ += mapped;
  return {static_cast<std::byte*>(data), hit_};
}

void PackedCache::Keep() {
  if (hit_ || given_up_ || writer_.joinable()) return;
  writer_ = std::thread([this] {
    if (const Status status = Write(); status.ok()) {
      MOE_LOG(kInfo) << "weight-cache: kept the packed weights in " << path_;
    } else {
      MOE_LOG(kWarning) << status.message() << "; the next start packs again";
    }
  });
}

Status PackedCache::Write() {
  Tail tail;
  tail.buffers = sizes_.size();
  tail.identity_bytes = identity_.size();
  tail.data_bytes = offset_;
  uint64_t at = offset_;
  bool written = WriteAt(fd_, sizes_.data(), sizes_.size() * 8, at);
  at += sizes_.size() * 8;
  written = written && WriteAt(fd_, identity_.data(), identity_.size(), at);
  at += identity_.size();
  written = written && WriteAt(fd_, &tail, sizeof(tail), at) && fsync(fd_) == 0;
  if (!written || rename(temporary_.c_str(), path_.c_str()) != 0) {
    return absl::UnavailableError(Cat("weight-cache: cannot write ", path_, ": ", ErrorText()));
  }
  temporary_.clear();
  return absl::OkStatus();
}

std::string CheckpointIdentity(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> lines;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors") && !name.ends_with(".json")) continue;
    struct stat facts;
    if (stat(entry.path().c_str(), &facts) != 0) continue;
    lines.push_back(Cat(name, " ", facts.st_size, " ", facts.st_mtim.tv_sec, ".", facts.st_mtim.tv_nsec, "\n"));
  }
  std::sort(lines.begin(), lines.end());
  std::string identity;
  for (const std::string& line : lines) identity += line;
  return identity;
}

}  // namespace moe
