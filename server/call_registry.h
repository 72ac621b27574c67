// CallRegistry: the generations under way, for Abort, drains and the sweep for stalled clients. Thread-safe.
#ifndef MOE_SERVER_CALL_REGISTRY_H_
#define MOE_SERVER_CALL_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/generate_call.h"

namespace moe {

class CallRegistry {
 public:
  void Add(std::shared_ptr<GenerateCall> call);
  void Remove(const GenerateCall* call);

  size_t size() const;
  // Ends the calls with these ids; several calls may share one. Returns how many were still going.
  uint32_t Abort(const std::vector<std::string>& ids);
  uint32_t AbortAll();
  void CheckStalls(GenerateCall::Clock::time_point now);

 private:
  std::vector<std::shared_ptr<GenerateCall>> All() const;

  mutable std::mutex mutex_;
  std::unordered_map<const GenerateCall*, std::shared_ptr<GenerateCall>> calls_;
  std::unordered_multimap<std::string, const GenerateCall*> by_id_;
};

}  // namespace moe

#endif  // MOE_SERVER_CALL_REGISTRY_H_
