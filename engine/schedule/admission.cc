// Scheduler's third part: waiting sequences get a rank, cached blocks and their first slice.
#include <algorithm>
#include <limits>
#include <utility>

#include "engine/device/ops.h"
#include "engine/schedule/scheduler.h"
#include "parallel/base/check.h"

namespace moe {

bool Scheduler::WaitsForLeader(const Sequence& s) const {
  if (s.leader == 0 || !UsesCache(s)) return false;
  if ((s.prompt_len - 1) / kKvBlockTokens == 0) return false;  // no full block to share
  // A leader that waits stands before this one in the queue; one that is gone has left what it published.
  const Sequence* leader = Find(s.leader);
  return leader != nullptr && leader->running() && leader->num_computed < leader->prompt_len;
}

Scheduler::Placement Scheduler::Place(const Sequence& s) const {
  Placement best;
  // The longest hit wins, but not against a rank with clearly less to do: many requests that share a short prefix
  // would all end up on one rank otherwise.
  int64_t least = std::numeric_limits<int64_t>::max() / 2;
  for (const Rank& rank : ranks_) least = rank.usable ? std::min(least, rank.running) : least;
  const int64_t crowded = least + 4 + least / 4;
  const auto is_better = [&](int r, const PrefixMatch& match) {
    if (best.rank < 0) return true;
    const bool crowd = ranks_[r].running > crowded;
    const bool best_crowd = ranks_[best.rank].running > crowded;
    if (crowd != best_crowd) return best_crowd;
    if (match.blocks.size() != best.match.blocks.size()) return match.blocks.size() > best.match.blocks.size();
    if (ranks_[r].running != ranks_[best.rank].running) return ranks_[r].running < ranks_[best.rank].running;
    return ranks_[r].blocks.used() < ranks_[best.rank].blocks.used();
  };
  const int64_t wanted = BlocksFor(std::min(s.known() + 1, options_.max_model_len));
  for (int r = 0; r < options_.num_ranks; ++r) {
    const Rank& rank = ranks_[r];
    if (!rank.usable) continue;
    if (options_.state_slots_per_rank > 0 && rank.free_slots.empty()) continue;
    PrefixMatch match;
    // The last known token is always computed: its logits are needed.
    if (UsesCache(s)) match = rank.blocks.Match(s.tokens, s.cache_salt, (s.known() - 1) / kKvBlockTokens);
    const int64_t needed = wanted - static_cast<int64_t>(match.blocks.size());
    // A block each for the running ones, or the newcomer would be preempted soon.
    const int64_t margin = std::min(rank.running, rank.blocks.total() / 8);
    const int64_t left = rank.blocks.available() - rank.blocks.CountIdle(match.blocks) - rank.promised - margin;
    if (needed > left) continue;
    if (is_better(r, match)) {
      best.rank = r;
      best.match = std::move(match);
    }
  }
  return best;
}

void Scheduler::Start(Sequence& s, Placement placement) {
  Rank& rank = ranks_[placement.rank];
  s.rank = placement.rank;
  ++rank.running;
  if (options_.state_slots_per_rank > 0) {
    s.state_slot = rank.free_slots.back();
    rank.free_slots.pop_back();
  }
  rank.blocks.Acquire(placement.match.blocks);
  s.blocks = std::move(placement.match.blocks);
  s.published_blocks = static_cast<int64_t>(s.blocks.size());
  s.last_entry = placement.match.entry;
  s.num_computed = s.published_blocks * kKvBlockTokens;
  s.restore_snapshot = placement.match.snapshot;
  if (s.restore_snapshot >= 0) rank.blocks.snapshots().Touch(s.blocks.back());
  if (UsesCache(s)) {
    prefix_queries_ += static_cast<uint64_t>((s.known() - 1) / kKvBlockTokens);
    prefix_hits_ += static_cast<uint64_t>(s.published_blocks);
  }
  if (!s.started) {
    s.started = true;
    s.cached_prompt_tokens = std::min(s.num_computed, s.prompt_len);
    started_.push_back(s.id);
  }
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &s, SequenceOrder()), &s);
}

void Scheduler::Admit(int64_t budget) {
  if (waiting_.empty() || budget <= 0 || num_running() >= running_limit_) return;
  for (Rank& rank : ranks_) rank.promised = 0;
  const auto outstanding = [this](const Sequence& s) {
    const int64_t wanted = BlocksFor(std::min(s.known() + 1, options_.max_model_len));
    return std::max<int64_t>(wanted - static_cast<int64_t>(s.blocks.size()), 0);
  };
  for (const Sequence* s : running_) ranks_[s->rank].promised += outstanding(*s);

  for (auto it = waiting_.begin(); it != waiting_.end() && budget > 0 && num_running() < running_limit_;) {
    Sequence& s = **it;
    if (WaitsForLeader(s)) {
      ++it;
      continue;
    }
    Placement placement = Place(s);
    if (placement.rank < 0) break;
    // What is left of the budget may be too little for a whole chunk: rather the next step.
    const int64_t cached = static_cast<int64_t>(placement.match.blocks.size()) * kKvBlockTokens;
    s.num_computed = cached;
    const bool fits = SliceLength(s, budget) > 0;
    s.num_computed = 0;
    if (!fits) break;
    it = waiting_.erase(it);
    Start(s, std::move(placement));
    const int64_t count = PlanSlice(s, budget);
    MOE_CHECK(count > 0) << "admitted without a slice";
    budget -= count;
    ranks_[s.rank].promised += outstanding(s);
  }
}

}  // namespace moe
