#include "engine/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace moe {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  nodes_.emplace_back();
  for (const std::string& stop : stops) {
    int32_t at = 0;
    for (unsigned char byte : stop) {
      int32_t next = Child(at, byte);
      if (next < 0) {
        next = static_cast<int32_t>(nodes_.size());
        Node node;
        node.byte = byte;
        node.depth = nodes_[at].depth + 1;
        node.next_sibling = nodes_[at].first_child;
        nodes_.push_back(node);
        nodes_[at].first_child = next;
      }
      at = next;
    }
    if (at != 0) nodes_[at].longest = nodes_[at].depth;
  }
  // Breadth first: a node's suffixes are shorter, so they are complete before it.
  std::vector<int32_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t parent = order[i];
    for (int32_t child = nodes_[parent].first_child; child >= 0; child = nodes_[child].next_sibling) {
      if (parent != 0) {
        int32_t suffix = nodes_[parent].fail;
        int32_t next;
        while ((next = Child(suffix, nodes_[child].byte)) < 0 && suffix != 0) suffix = nodes_[suffix].fail;
        nodes_[child].fail = std::max(next, 0);
      }
      // A stop string that is the node itself is longer than one that is a suffix of it.
      if (nodes_[child].longest == 0) nodes_[child].longest = nodes_[nodes_[child].fail].longest;
      order.push_back(child);
    }
  }
}

int32_t StopMatcher::Child(int32_t node, unsigned char byte) const {
  int32_t child = nodes_[node].first_child;
  while (child >= 0 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

StopMatcher::Result StopMatcher::TakeMatch() {
  Result result;
  result.matched = true;
  result.match = held_.substr(best_start_, best_length_);
  held_.resize(best_start_);
  result.text = std::exchange(held_, {});
  done_ = true;
  return result;
}

StopMatcher::Result StopMatcher::Push(std::string_view piece, bool look) {
  Result result;
  if (done_) return result;
  if (nodes_.size() == 1) {
    result.text = piece;
    return result;
  }
  size_t end = held_.size();
  held_ += piece;
  size_t pending = end - nodes_[state_].depth;
  while (end < held_.size()) {
    const auto byte = static_cast<unsigned char>(held_[end]);
    int32_t next;
    while ((next = Child(state_, byte)) < 0 && state_ != 0) state_ = nodes_[state_].fail;
    state_ = std::max(next, 0);
    ++end;
    // The earliest start that an occurrence still to complete can have. It never moves back.
    pending = end - nodes_[state_].depth;
    const size_t length = nodes_[state_].longest;
    if (look && length > 0 && end - length < best_start_) {
      best_start_ = end - length;
      best_length_ = length;
    }
    if (pending >= best_start_) return TakeMatch();
  }
  const size_t safe = std::min(pending, best_start_);
  result.text = held_.substr(0, safe);
  held_.erase(0, safe);
  if (best_start_ != std::string::npos) best_start_ -= safe;
  return result;
}

StopMatcher::Result StopMatcher::Finish() {
  if (done_) return {};
  if (best_start_ != std::string::npos) return TakeMatch();
  done_ = true;
  Result result;
  result.text = std::exchange(held_, {});
  return result;
}

}  // namespace moe
