#include "parallel/rendezvous.h"

namespace moe {

Status InMemoryStore::Set(const std::string& key, const std::string& value) {
  std::lock_guard lock(mutex_);
  if (!values_.emplace(key, value).second) return absl::AlreadyExistsError(Cat("key ", key, " is already set"));
  changed_.notify_all();
  return absl::OkStatus();
}

StatusOr<std::string> InMemoryStore::Wait(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.count(key) != 0; })) {
    return absl::DeadlineExceededError(Cat("key ", key, " was not set within ", timeout.count(), " ms"));
  }
  return values_.at(key);
}

}  // namespace moe
