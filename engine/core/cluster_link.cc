#include "engine/core/cluster_link.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

using State = RankPlace::State;

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr double kRecoveryEdges[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
// Attempts to form a group of ranks that all answer, before one of them is held to be the cause.
constexpr int kFormAttempts = 2;

// What a group of ranks can get over by meeting again: a peer was lost, or a message was damaged.
bool IsOfExchange(const Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsDataLoss(status) ||
         absl::IsAborted(status) || absl::IsCancelled(status);
}

bool Covers(const ExpertLists& held, const ExpertLists& wanted) {
  for (size_t l = 0; l < wanted.size(); ++l) {
    if (l >= held.size() || !std::includes(held[l].begin(), held[l].end(), wanted[l].begin(), wanted[l].end())) {
      return false;
    }
  }
  return true;
}

int64_t Missing(const ExpertLists& held, const ExpertLists& wanted) {
  int64_t missing = 0;
  for (size_t l = 0; l < wanted.size(); ++l) {
    for (int32_t expert : wanted[l]) {
      missing += l < held.size() && std::binary_search(held[l].begin(), held[l].end(), expert) ? 0 : 1;
    }
  }
  return missing;
}

ExpertLists Union(const ExpertLists& a, const ExpertLists& b) {
  ExpertLists both(std::max(a.size(), b.size()));
  for (size_t l = 0; l < both.size(); ++l) {
    const std::vector<int32_t> none;
    const std::vector<int32_t>& x = l < a.size() ? a[l] : none;
    const std::vector<int32_t>& y = l < b.size() ? b[l] : none;
    std::set_union(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both[l]));
  }
  return both;
}

ExpertLists Intersection(const ExpertLists& a, const ExpertLists& b) {
  ExpertLists both(std::min(a.size(), b.size()));
  for (size_t l = 0; l < both.size(); ++l) {
    std::set_intersection(a[l].begin(), a[l].end(), b[l].begin(), b[l].end(), std::back_inserter(both[l]));
  }
  return both;
}

// What happened after `change`.
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

ClusterLink::ClusterLink(const ModelSpec& spec, const ClusterOptions& options, RankTransport* transport)
    : options_(options),
      transport_(transport),
      roster_(spec, options.terms, options.num_slots),
      placements_(std::make_shared<const std::vector<ExpertPlacement>>()),
      done_(options.num_slots) {
  stats_.ranks_alive = 0;
  stats_.recovery_seconds = Histogram(kRecoveryEdges);
  if (options_.on_event) transport_->SetWake(options_.on_event);
}

ClusterLink::~ClusterLink() {
  EndRebalance(absl::CancelledError("the engine ends"));
  for (int slot = 0; slot < roster_.num_slots(); ++slot) {
    if (roster_.place(slot).state != State::kEmpty) transport_->Send(roster_.place(slot).link, StopRank{"drained"});
  }
}

// --- Starting ---

StatusOr<ClusterLink::Memory> ClusterLink::AwaitRanks(
    const std::function<void(const std::string& stage, double fraction)>& progress) {
  constexpr double kTick = 0.2;
  while (roster_.Count(State::kReady) < roster_.num_slots()) {
    TakeEvent(Now() + kTick);
    MOE_RETURN_IF_ERROR(load_failure_);
    MOE_RETURN_IF_ERROR(start_failure_);
    const int empty = roster_.Count(State::kEmpty);
    double loaded = 0;
    for (int s = 0; s < roster_.num_slots(); ++s) {
      const RankPlace& place = roster_.place(s);
      loaded += place.state == State::kReady ? 1 : place.state == State::kLoading ? place.progress : 0;
    }
    if (!progress) continue;
    progress(empty > 0 ? Cat("waiting for ", empty, " of ", roster_.num_slots(), " ranks") : "packing weights",
             loaded / roster_.num_slots());
  }
  Memory memory;
  std::map<std::string, int64_t> ranks_of_host;
  for (int s = 0; s < roster_.num_slots(); ++s) ++ranks_of_host[roster_.place(s).host];
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int s = 0; s < roster_.num_slots(); ++s) {
    const RankPlace& place = roster_.place(s);
    memory.weight_bytes += place.weight_bytes;
    least = std::min(least, place.available_bytes / ranks_of_host[place.host]);
  }
  memory.available_bytes = least * roster_.num_slots();
  return memory;
}

Status ClusterLink::Begin(const ConfigureRank& caches) {
  caches_ = caches;
  for (int slot : roster_.SlotsIn(State::kReady, State::kReady)) transport_->Send(roster_.place(slot).link, caches);
  broken_since_ = Now();
  MOE_ASSIGN_OR_RETURN(unreported_, Settle(true));
  // The scheduler begins with all ranks. Some that AwaitRanks has seen may not have come to be members.
  unreported_.lost.clear();
  for (int slot = 0; slot < num_ranks(); ++slot) {
    if (roster_.place(slot).state != State::kMember) unreported_.lost.push_back(slot);
  }
  return absl::OkStatus();
}

// --- Events ---

bool ClusterLink::TakeEvent(double until) {
  std::optional<RankTransport::Event> event = transport_->Wait(until);
  if (!event) return false;
  if (auto* report = std::get_if<RankReport>(&event->what)) {
    if (auto* hello = std::get_if<RankHello>(report)) {
      Take(event->link, std::move(*hello));
      return true;
    }
    if (event->link == 0) {
      if (const auto* failed = std::get_if<RankFailed>(report)) load_failure_.Update(failed->status);
      return true;
    }
    if (const int slot = roster_.SlotOf(event->link); slot >= 0) Take(slot, std::move(*report));
    return true;
  }
  const int slot = roster_.SlotOf(event->link);
  if (slot >= 0) Lose(slot, std::get<RankTransport::Closed>(event->what).reason, false);
  return true;
}

void ClusterLink::Take(RankTransport::LinkId link, RankHello hello) {
  if (roster_.SlotOf(link) >= 0) return;  // it has said so already
  const StatusOr<int> slot = roster_.Admit(link, hello);
  if (!slot.ok()) {
    MOE_LOG(kWarning) << "a rank on " << hello.host << " is refused: " << slot.status().message();
    transport_->Send(link, RefuseRank{std::string(slot.status().message())});
    return;
  }
  MOE_LOG(kInfo) << "rank " << *slot << " has come (" << hello.host << ") and loads its experts";
  transport_->Send(link, LoadRank{.slot = *slot,
                                  .backend = options_.terms.backend,
                                  .dtype = options_.terms.dtype,
                                  .experts = roster_.place(*slot).held});
}

void ClusterLink::Take(int slot, RankReport report) {
  RankPlace& place = roster_.place(slot);
  const auto answered = [&](std::vector<int>* waiting) { return std::erase(*waiting, slot) > 0; };
  if (const auto* progress = std::get_if<RankProgress>(&report)) {
    place.progress = progress->fraction;
  } else if (const auto* loaded = std::get_if<RankLoaded>(&report)) {
    if (place.state != State::kLoading) return;
    place.state = State::kReady;
    place.weight_bytes = loaded->weight_bytes;
    place.available_bytes = loaded->available_bytes;
    if (caches_) transport_->Send(place.link, *caches_);
  } else if (const auto* failed = std::get_if<RankFailed>(&report)) {
    if (load_failure_.ok()) load_failure_ = Annotate(failed->status, Cat("rank ", slot));
    Lose(slot, DescribeError(failed->status), false);
  } else if (auto* entry = std::get_if<StoreEntry>(&report)) {
    if (entry->generation != forming_ || !forming_failure_.ok()) return;
    for (int other : group_.slots) {
      if (other != slot) transport_->Send(roster_.place(other).link, *entry);
    }
  } else if (const auto* formed = std::get_if<RankFormed>(&report)) {
    if (formed->generation != forming_ || !answered(&forming_waiting_) || formed->status.ok()) return;
    forming_failure_.Update(formed->status);
    const auto members = static_cast<int>(group_.slots.size());
    if (formed->suspect >= 0 && formed->suspect < members) suspects_.push_back(group_.slots[formed->suspect]);
  } else if (const auto* prepared = std::get_if<RankPrepared>(&report)) {
    if (!pending_ || prepared->ticket != pending_->ticket || !answered(&pending_->waiting)) return;
    if (!prepared->status.ok() && !absl::IsResourceExhausted(prepared->status)) {
      return Lose(slot, Cat("it cannot load its experts: ", DescribeError(prepared->status)), true);
    }
    if (!prepared->status.ok()) {
      pending_->failure.Update(Annotate(prepared->status, Cat("rank ", slot)));
      pending_->member_full |= place.state == State::kMember;
      return;
    }
    const auto at = std::find(pending_->plan.slots.begin(), pending_->plan.slots.end(), slot);
    const ExpertLists wanted = pending_->plan.ExpertsOf(static_cast<int>(at - pending_->plan.slots.begin()));
    Note([&](RankGroupStats* stats) { stats->experts_copied += static_cast<uint64_t>(Missing(place.held, wanted)); });
    place.held = Union(place.held, wanted);
  } else if (auto* done = std::get_if<RankStepDone>(&report)) {
    if (place.state != State::kMember || done->generation != generation_ || done->step != step_ || done_[slot]) return;
    done_[slot] = std::move(*done);
  }
}

void ClusterLink::Lose(int slot, const std::string& reason, bool close) {
  RankPlace& place = roster_.place(slot);
  const bool member = place.state == State::kMember;
  MOE_LOG(kWarning) << "rank " << slot << " is lost: " << reason;
  if (close) transport_->Close(place.link, reason);
  roster_.Clear(slot);
  NoteAlive();
  // Also where it has answered: another process may take the place before the others have.
  const auto has = [&](const std::vector<int>& slots) {
    return std::find(slots.begin(), slots.end(), slot) != slots.end();
  };
  if (pending_ && has(pending_->plan.slots)) {
    std::erase(pending_->waiting, slot);
    pending_->failure.Update(absl::UnavailableError(Cat("rank ", slot, " is lost")));
  }
  if (forming_ != 0 && has(group_.slots)) {
    std::erase(forming_waiting_, slot);
    forming_failure_.Update(absl::UnavailableError(Cat("rank ", slot, " is lost")));
    formless_ = -1;
  }
  constexpr int kMostStartLosses = 3;
  if (!caches_ && ++start_losses_ >= kMostStartLosses) {
    start_failure_.Update(absl::UnavailableError(
        Cat("ranks do not come up: ", start_losses_, " were lost while loading; the last, rank ", slot, ": ", reason)));
  }
  if (!member) return;
  lost_.push_back(slot);
  lost_one_ = true;
  if (!std::exchange(broken_, true)) broken_since_ = Now();
}

// --- Steps ---

StatusOr<StepResult> ClusterLink::Step(const StepPlan& plan) {
  MOE_CHECK_EQ(plan.ranks.size(), done_.size());
  MOE_CHECK(!broken_) << "Settle comes before each step";
  step_ = plan.step;
  const std::vector<int> members = group_.slots;
  int64_t rows = 0;
  for (const RankPlan& rank : plan.ranks) {
    for (const SlicePlan& slice : rank.slices) rows += slice.count;
  }
  for (int slot : members) {
    done_[slot].reset();
    transport_->Send(roster_.place(slot).link,
                     RankStep{.generation = generation_, .step = step_, .rows = rows, .plan = plan.ranks[slot]});
  }
  Status failure;
  double give_up = kForever;  // on ranks that were told to abandon the step
  for (;;) {
    std::vector<int> waiting;
    for (int slot : members) {
      const bool here = roster_.place(slot).state == State::kMember;
      if (!here) {
        failure.Update(absl::UnavailableError(Cat("rank ", slot, " is lost")));
      } else if (!done_[slot]) {
        waiting.push_back(slot);
      } else if (!done_[slot]->status.ok()) {
        // What only this rank knows weighs more than that the others lost it in an exchange.
        const Status& status = done_[slot]->status;
        const Status annotated(status.code(), Cat("rank ", slot, ": ", status.message()));
        if (failure.ok() || (IsOfExchange(failure) && !IsOfExchange(status))) failure = annotated;
      }
    }
    if (waiting.empty()) break;
    if (!failure.ok() && give_up == kForever) {
      give_up = Now() + options_.answer_timeout;
      for (int slot : waiting) {
        transport_->Send(roster_.place(slot).link, AbortStep{generation_, std::string(failure.message())});
      }
    }
    if (TakeEvent(give_up) || Now() < give_up) continue;
    for (int slot : waiting) Lose(slot, Cat("it did not abandon step ", step_), true);
  }
  if (failure.ok()) {
    StepResult result{plan.step, std::vector<RankResult>(plan.ranks.size())};
    for (int slot : members) {
      result.ranks[slot] = std::move(done_[slot]->result);
      roster_.NoteLoad(result.ranks[slot].expert_tokens);
    }
    return result;
  }
  for (int slot : members) {
    if (!done_[slot] || done_[slot]->status.ok()) continue;
    const int suspect = done_[slot]->suspect;
    if (suspect >= 0 && suspect < static_cast<int>(members.size())) suspects_.push_back(members[suspect]);
  }
  undo_step_ = step_;
  if (!std::exchange(broken_, true)) broken_since_ = Now();
  if (!IsOfExchange(failure)) return failure;
  return absl::UnavailableError(failure.message());
}

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
    Pending pending = *std::exchange(pending_, std::nullopt);
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
  Pending& pending = pending_.emplace();
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
                                           .placements = group_.placements,
                                           .same_group = same_group,
                                           .undo_step = undo_step_,
                                           .forget_sequences = forget || place.state == State::kReady});
  }
  const Status status = AwaitFormed();
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
  if (!forming_failure_.ok() && ++formless_ >= kFormAttempts) FenceSuspect();
  return forming_failure_;
}

// All members answer the front, but they cannot all reach each other.
void ClusterLink::FenceSuspect() {
  std::map<int, int> votes;
  for (int slot : suspects_) ++votes[slot];
  int worst = group_.slots.back();
  for (const auto& [slot, count] : votes) {
    if (count >= votes[worst]) worst = slot;
  }
  suspects_.clear();
  formless_ = 0;
  if (roster_.place(worst).state == State::kEmpty) return;
  Lose(worst, Cat("the others do not reach it: ", forming_failure_.message()), true);
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

// --- Any thread ---

Status ClusterLink::Health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

RankGroupStats ClusterLink::GroupStats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void ClusterLink::SetHealth(const Status& status) {
  const std::lock_guard lock(mutex_);
  health_ = status;
}

void ClusterLink::Note(const std::function<void(RankGroupStats*)>& edit) {
  const std::lock_guard lock(mutex_);
  edit(&stats_);
}

void ClusterLink::NoteAlive() {
  Note([this](RankGroupStats* stats) {
    stats->generation = generation_;
    stats->ranks_alive = roster_.Count(State::kMember);
  });
}

}  // namespace moe
