// ClusterLink's second part: how groups of ranks are formed and experts are moved.
#include <algorithm>
#include <map>
#include <utility>

#include "engine/core/cluster_link.h"
#include "engine/core/expert_lists.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

using State = RankPlace::State;

// Attempts to form a group of ranks that all answer, before one of them is held to be the cause.
constexpr int kFormAttempts = 2;

void Append(const RankChange& later, RankChange* change) {
  for (int slot : later.lost) {
    std::erase(change->gained, slot);
    if (std::find(change->lost.begin(), change->lost.end(), slot) == change->lost.end()) change->lost.push_back(slot);
  }
  change->gained.insert(change->gained.end(), later.gained.begin(), later.gained.end());
  change->forgotten |= later.forgotten;
  change->moved |= later.moved;
}

}  // namespace

// --- Groups ---

StatusOr<RankChange> ClusterLink::Settle(bool wait) {
  while (TakeEvent(0)) {
  }
  if (!caches_) return RankChange{};
  if (!broken_) MOE_RETURN_IF_ERROR(Advance(&unreported_));
  if (broken_) {
    MOE_ASSIGN_OR_RETURN(const RankChange recovered, Recover(wait));
    Append(recovered, &unreported_);
  }
  // What came while the group was formed: an idle loop would hear of it with the next event only.
  const bool more = rebalance_wanted_ || roster_.Count(State::kReady) > 0;
  if (more && !pending_ && options_.on_event) options_.on_event();
  return std::exchange(unreported_, {});
}

StatusOr<RankChange> ClusterLink::Recover(bool wait) {
  RankChange change;
  pending_.reset();  // a rebalancing begins again with the new group
  if (rebalance_done_) rebalance_wanted_ = true;
  const double give_up = Now() + (wait ? options_.recovery_timeout : 0);
  Status why;
  bool let_go = false;
  while (broken_) {
    signs_.fetch_add(1, std::memory_order_relaxed);
    const std::vector<int> slots = roster_.SlotsIn(State::kMember, State::kReady);
    Status status = absl::UnavailableError("no rank is left");
    if (!slots.empty()) {
      StatusOr<GroupPlan> plan = roster_.Plan(slots, redundant_, true);
      status = plan.status();
      if (plan.ok()) {
        Prepare(*std::move(plan), let_go);
        status = AwaitPrepared();
        if (status.ok()) status = Form(std::exchange(pending_, std::nullopt)->plan, &change);
        pending_.reset();
      }
    }
    if (status.ok()) continue;
    why = status;
    // Replicas are a wish.
    if (absl::IsResourceExhausted(status) && std::exchange(redundant_, 0) > 0) continue;
    // What the last group had is not needed any more. It is kept as long as it can be: the next plan may want it.
    if (absl::IsResourceExhausted(status) && !std::exchange(let_go, true)) continue;
    let_go = false;
    if (absl::IsResourceExhausted(status) && !lost_one_ && roster_.Count(State::kMember) > 0) {
      // The group that there was could go on without those that wait.
      for (int slot : roster_.SlotsIn(State::kReady, State::kReady)) {
        Lose(slot, Cat("it cannot join: ", status.message()), true);
      }
    }
    if (slots != roster_.SlotsIn(State::kMember, State::kReady) && !slots.empty()) continue;  // others now: at once
    // Else they meet again: those that cannot are fenced, so this ends with a group or with too few.
    const bool too_few = absl::IsResourceExhausted(status) || slots.empty();
    if (too_few) {
      // Until a rank comes (back).
      SetHealth(absl::UnavailableError(Cat("too few ranks: ", status.message())));
      while (slots == roster_.SlotsIn(State::kMember, State::kReady) && Now() < give_up && !interrupted_) {
        signs_.fetch_add(1, std::memory_order_relaxed);
        TakeEvent(std::min(give_up, Now() + 0.1));
      }
    }
    if ((too_few && Now() >= give_up) || interrupted_) {
      return absl::UnavailableError(Cat("the ranks could not form a group: ", why.message()));
    }
  }
  SetHealth(absl::OkStatus());
  change.lost = std::exchange(lost_, {});
  const double seconds = Now() - broken_since_;
  if (std::exchange(lost_one_, false)) {
    Note([&](RankGroupStats* stats) {
      ++stats->recoveries;
      stats->last_recovery_seconds = seconds;
      stats->recovery_seconds.Observe(seconds);
    });
    MOE_LOG(kInfo) << "generation " << generation_ << ": " << group_.slots.size() << " of " << num_ranks()
                   << " ranks go on after " << seconds << " s";
  }
  return change;
}

Status ClusterLink::Advance(RankChange* change) {
  if (pending_) {
    if (!pending_->waiting.empty() && pending_->failure.ok()) return absl::OkStatus();
    PendingGroup pending = *std::exchange(pending_, std::nullopt);
    if (!pending.failure.ok()) {
      if (rebalance_done_) {
        EndRebalance(pending.failure);
      } else if (absl::IsResourceExhausted(pending.failure) && std::exchange(redundant_, 0) > 0) {
        return absl::OkStatus();  // without replicas, next time
      } else if (absl::IsResourceExhausted(pending.failure) && pending.member_full) {
        // Its part gets smaller, but room for it can be made between two groups only.
        broken_ = true;
        broken_since_ = Now();
      } else {
        // Ranks that wait are let go of: they will not fit in a moment either.
        for (int slot : roster_.SlotsIn(State::kReady, State::kReady)) {
          Lose(slot, Cat("it cannot join: ", pending.failure.message()), true);
        }
      }
      return absl::OkStatus();
    }
    if (const Status formed = Form(std::move(pending.plan), change); !formed.ok()) {
      MOE_LOG(kWarning) << "the group was not formed: " << formed.message();
      if (!std::exchange(broken_, true)) broken_since_ = Now();
      return absl::OkStatus();
    }
    if (rebalance_done_ && !rebalance_wanted_) {
      redundant_ = rebalance_redundant_;
      Note([](RankGroupStats* stats) { ++stats->rebalances; });
      EndRebalance(absl::OkStatus());
    }
    return absl::OkStatus();
  }
  const bool waiting = roster_.Count(State::kReady) > 0;
  if (!waiting && !rebalance_wanted_) return absl::OkStatus();
  const bool rebalance = std::exchange(rebalance_wanted_, false);
  const std::vector<int> slots = roster_.SlotsIn(State::kMember, State::kReady);
  StatusOr<GroupPlan> plan = rebalance ? roster_.Plan(slots, rebalance_redundant_, false, rebalance_loads_)
                                       : roster_.Plan(slots, redundant_, true);
  if (!plan.ok()) {
    if (rebalance) EndRebalance(plan.status());
    return rebalance ? absl::OkStatus() : plan.status();
  }
  Prepare(*std::move(plan), false);
  if (pending_->waiting.empty()) return Advance(change);
  return absl::OkStatus();
}

void ClusterLink::Prepare(GroupPlan plan, bool let_go) {
  PendingGroup& pending = pending_.emplace();
  pending.ticket = next_ticket_++;
  for (size_t member = 0; member < plan.slots.size(); ++member) {
    const int slot = plan.slots[member];
    ExpertLists wanted = plan.ExpertsOf(static_cast<int>(member));
    ExpertLists& held = roster_.place(slot).held;
    if (Covers(held, wanted)) continue;
    if (let_go) held = Intersection(held, wanted);
    pending.waiting.push_back(slot);
    transport_->Send(roster_.place(slot).link, PrepareExperts{pending.ticket, std::move(wanted), let_go});
  }
  pending.plan = std::move(plan);
}

Status ClusterLink::AwaitPrepared() {
  const double give_up = Now() + options_.prepare_timeout;
  while (!pending_->waiting.empty() && pending_->failure.ok()) {
    signs_.fetch_add(1, std::memory_order_relaxed);
    TakeEvent(std::min(give_up, Now() + 0.1));
    if (Now() < give_up) continue;
    for (int slot : std::vector<int>(pending_->waiting)) Lose(slot, "it did not load its experts in time", true);
  }
  return pending_->failure;
}

Status ClusterLink::Form(GroupPlan plan, RankChange* change) {
  for (int slot : plan.slots) {
    const State state = roster_.place(slot).state;
    if (state != State::kMember && state != State::kReady) {
      return absl::UnavailableError(Cat("rank ", slot, " is lost"));
    }
  }
  const bool same_group = !broken_ && plan.slots == group_.slots;
  const bool forget = undo_step_ != 0 && !options_.sequences_survive;
  group_ = std::move(plan);
  forming_ = ++generation_;
  forming_waiting_ = group_.slots;
  forming_failure_ = absl::OkStatus();
  for (size_t member = 0; member < group_.slots.size(); ++member) {
    RankPlace& place = roster_.place(group_.slots[member]);
    place.held = group_.ExpertsOf(static_cast<int>(member));  // it lets go of others
    transport_->Send(place.link, FormGroup{.generation = generation_,
                                           .member = static_cast<int>(member),
                                           .size = static_cast<int>(group_.slots.size()),
                                           .transport = options_.transport,
                                           .placements = group_.placements,
                                           .same_group = same_group,
                                           .undo_step = undo_step_,
                                           .forget_sequences = forget || place.state == State::kReady});
  }
  Status status = AwaitFormed();
  forming_ = 0;
  if (!status.ok()) {
    if (!std::exchange(broken_, true)) broken_since_ = Now();
    return status;
  }
  // From here on the members are as the plan says, also if one is lost at once.
  change->forgotten |= forget;
  for (const int slot : group_.slots) {
    RankPlace& place = roster_.place(slot);
    if (place.state == State::kReady) {
      change->gained.push_back(slot);
      MOE_LOG(kInfo) << "rank " << slot << " is part of generation " << generation_;
    }
    place.state = State::kMember;
  }
  for (const int slot : group_.slots) shunned_.erase(roster_.place(slot).host);
  broken_ = false;
  undo_step_ = 0;
  formless_ = 0;
  suspects_.clear();
  placements_ = std::make_shared<const std::vector<ExpertPlacement>>(OverSlots(group_, num_ranks()));
  NoteAlive();
  change->moved = true;
  return absl::OkStatus();
}

Status ClusterLink::AwaitFormed() {
  const double give_up = Now() + options_.form_timeout;
  bool told = false;
  while (!forming_waiting_.empty()) {
    signs_.fetch_add(1, std::memory_order_relaxed);
    TakeEvent(std::min(give_up, Now() + 0.1));
    if (!forming_failure_.ok() && !std::exchange(told, true)) {
      // The others would wait for the one that failed.
      for (int slot : forming_waiting_) {
        transport_->Send(roster_.place(slot).link, AbortStep{generation_, std::string(forming_failure_.message())});
      }
    }
    if (Now() < give_up) continue;
    for (int slot : std::vector<int>(forming_waiting_)) Lose(slot, "it did not join the group in time", true);
  }
  if (forming_failure_.ok()) return absl::OkStatus();
  MOE_LOG(kWarning) << "generation " << generation_ << " did not form: " << forming_failure_.message();
  ++formless_;
  // Ranks that were together before are not given up for one that comes.
  const bool newcomers = std::any_of(group_.slots.begin(), group_.slots.end(),
                                     [this](int slot) { return roster_.place(slot).state == State::kReady; });
  if (formless_ >= kFormAttempts || (formless_ > 0 && newcomers)) FenceSuspect(newcomers);
  return forming_failure_;
}

// All members answer the front, but they cannot all reach each other.
void ClusterLink::FenceSuspect(bool newcomers) {
  std::map<int, int> votes;
  for (int slot : suspects_) ++votes[slot];
  int worst = -1;
  for (const int slot : group_.slots) {
    const State state = roster_.place(slot).state;
    if (state == State::kEmpty || (newcomers && state != State::kReady)) continue;
    if (worst < 0 || votes[slot] >= votes[worst]) worst = slot;
  }
  suspects_.clear();
  formless_ = 0;
  if (worst < 0) return;
  Shun(roster_.place(worst).host, worst);
  Lose(worst, Cat("the others do not reach it: ", forming_failure_.message()), true);
}

// A host that the others do not reach may answer the front all the time: without this, its rank would come again at
// once, and hold the others up again.
void ClusterLink::Shun(const std::string& host, int slot) {
  constexpr double kFirst = 15;
  constexpr double kLongest = 300;
  for (const int other : group_.slots) {
    if (other != slot && roster_.place(other).host == host) return;  // it is not the host
  }
  Shunned& shunned = shunned_[host];
  shunned.pause = std::clamp(2 * shunned.pause, kFirst, kLongest);
  shunned.until = Now() + shunned.pause;
}

// --- Rebalancing ---

void ClusterLink::Rebalance(const std::vector<std::vector<uint64_t>>& loads, int64_t redundant_experts,
                            std::function<void(const Status&)> done) {
  if (rebalance_done_) return done(absl::AbortedError("experts are being moved already"));
  const auto members = static_cast<int64_t>(group_.slots.size());
  const int64_t most = placements_->empty() ? 0 : (*placements_)[0].num_experts() * (members - 1);
  if (redundant_experts < 0 || redundant_experts > most) {
    return done(InvalidError("redundant_experts: ", redundant_experts, " is not in [0, ", most, "]: ", members,
                             " ranks can hold each expert"));
  }
  rebalance_redundant_ = redundant_experts;
  rebalance_loads_ = loads;
  rebalance_done_ = std::move(done);
  rebalance_wanted_ = true;
  pending_.reset();  // what ranks that wait would have changed becomes part of it
}

void ClusterLink::EndRebalance(const Status& status) {
  if (auto done = std::exchange(rebalance_done_, nullptr)) done(status);
}

}  // namespace moe
