// PackedCache: packed weights kept in a file, so that a later start of the same checkpoint maps them instead of
// packing: as fast as reading, and one copy in the page cache for all processes of the machine.
//
// Buffers are handed out in the order of packing, which depends on the model alone. The first start packs into the
// mapped file; Keep() makes it visible to later ones once it is safely on disk.
#ifndef MOE_ENGINE_DEVICE_PACKED_CACHE_H_
#define MOE_ENGINE_DEVICE_PACKED_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

class PackedCache {
 public:
  // `identity` says what was packed and how (checkpoint files, format, layout); a file with another one is not used.
  // `directory` is made if it is not there. INVALID: it cannot be made, or is not a directory.
  static StatusOr<std::unique_ptr<PackedCache>> Open(const std::string& directory, const std::string& identity);
  ~PackedCache();
  PackedCache(const PackedCache&) = delete;
  PackedCache& operator=(const PackedCache&) = delete;

  // Whether an earlier start has left the weights.
  bool hit() const { return hit_; }

  struct Buffer {
    std::byte* data = nullptr;  // aligned to pages, valid while the cache lives; null: none, the caller keeps its own
    bool packed = false;        // holds what was packed earlier; else zeros
  };
  // The next buffer. One thread at a time. Where the file cannot hold it (a full disk, a damaged file): none from here
  // on, said once in the log.
  Buffer Next(size_t bytes);

  // All buffers are packed. Writes them to disk and gives the file its name, in a thread of its own that the destructor
  // waits for. Nothing where they came from the file.
  void Keep();

  const std::string& path() const { return path_; }

 private:
  PackedCache() = default;
  Status OpenExisting();
  Status CreateNew();
  void GiveUp(const std::string& reason);
  Status Write();

  std::string path_;
  std::string temporary_;  // not empty: the file being made
  std::string identity_;
  int fd_ = -1;
  bool hit_ = false;
  bool given_up_ = false;
  std::vector<uint64_t> sizes_;  // of the buffers, in their order
  size_t next_ = 0;
  uint64_t offset_ = 0;
  struct Mapping {
    void* data;
    size_t bytes;
  };
  std::vector<Mapping> mappings_;
  std::thread writer_;
};

// The files of a checkpoint directory that decide what is packed, one line each: name, size, time of the last change.
// Empty where `directory` is none (the embedded demo).
std::string CheckpointIdentity(const std::string& directory);

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_PACKED_CACHE_H_
