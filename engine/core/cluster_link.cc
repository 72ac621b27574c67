// ClusterLink's first part: ranks that come and go, and steps. cluster_groups.cc is the second.
#include "engine/core/cluster_link.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "engine/core/expert_lists.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

using State = RankPlace::State;

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr double kRecoveryEdges[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};

// What a group of ranks can get over by meeting again: a peer was lost, or a message was damaged.
bool IsOfExchange(const Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsDataLoss(status) ||
         absl::IsAborted(status) || absl::IsCancelled(status);
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
      Take(event->link, *hello);
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

void ClusterLink::Take(RankTransport::LinkId link, const RankHello& hello) {
  if (roster_.SlotOf(link) >= 0) return;  // it has said so already
  if (const auto shunned = shunned_.find(hello.host); shunned != shunned_.end() && Now() < shunned->second.until) {
    transport_->Send(link, RefuseRank{Cat("the other ranks did not reach its host; it may come again in ",
                                          std::ceil(shunned->second.until - Now()), " s")});
    return;
  }
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
