#include "server/call_registry.h"

#include <utility>

namespace moe {

void CallRegistry::Add(std::shared_ptr<GenerateCall> call) {
  std::lock_guard lock(mutex_);
  by_id_.emplace(call->id(), call.get());
  const GenerateCall* key = call.get();
  calls_.emplace(key, std::move(call));
}

void CallRegistry::Remove(const GenerateCall* call) {
  std::shared_ptr<GenerateCall> last;  // dies outside the lock
  std::lock_guard lock(mutex_);
  const auto [begin, end] = by_id_.equal_range(call->id());
  for (auto it = begin; it != end; ++it) {
    if (it->second != call) continue;
    by_id_.erase(it);
    break;
  }
  if (const auto it = calls_.find(call); it != calls_.end()) {
    last = std::move(it->second);
    calls_.erase(it);
  }
}

size_t CallRegistry::size() const {
  std::lock_guard lock(mutex_);
  return calls_.size();
}

uint32_t CallRegistry::Abort(const std::vector<std::string>& ids) {
  std::vector<std::shared_ptr<GenerateCall>> found;
  {
    std::lock_guard lock(mutex_);
    for (const std::string& id : ids) {
      const auto [begin, end] = by_id_.equal_range(id);
      for (auto it = begin; it != end; ++it) found.push_back(calls_.at(it->second));
    }
  }
  uint32_t aborted = 0;
  for (const auto& call : found) aborted += call->Abort() ? 1 : 0;
  return aborted;
}

uint32_t CallRegistry::AbortAll() {
  uint32_t aborted = 0;
  for (const auto& call : All()) aborted += call->Abort() ? 1 : 0;
  return aborted;
}

void CallRegistry::CheckStalls(GenerateCall::Clock::time_point now) {
  for (const auto& call : All()) call->CheckStall(now);
}

std::vector<std::shared_ptr<GenerateCall>> CallRegistry::All() const {
  std::vector<std::shared_ptr<GenerateCall>> all;
  std::lock_guard lock(mutex_);
  all.reserve(calls_.size());
  for (const auto& [key, call] : calls_) all.push_back(call);
  return all;
}

}  // namespace moe
