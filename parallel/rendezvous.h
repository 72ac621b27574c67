// RendezvousStore: how the ranks of a group that is being formed hand each other their addresses. The control plane
// implements it between processes; the in-memory form serves threads and tests. Whoever can write into the store can
// join the group, so it must be as trustworthy as the group.
#ifndef MOE_PARALLEL_RENDEZVOUS_H_
#define MOE_PARALLEL_RENDEZVOUS_H_

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "parallel/base/status.h"

namespace moe {

class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  // Values are bytes. A key is set once: keys name the generation and the rank.
  virtual Status Set(const std::string& key, const std::string& value) = 0;
  // Waits until `key` is set. DEADLINE_EXCEEDED after `timeout`; any other error says why the group will not form.
  virtual StatusOr<std::string> Wait(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Why the group will not form, as far as is known. Ranks that are meeting ask now and then.
  virtual Status Failure() { return absl::OkStatus(); }
};

// For ranks of one process. Any thread.
class InMemoryStore final : public RendezvousStore {
 public:
  Status Set(const std::string& key, const std::string& value) override;
  StatusOr<std::string> Wait(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;  // guarded by mutex_
};

}  // namespace moe

#endif  // MOE_PARALLEL_RENDEZVOUS_H_
