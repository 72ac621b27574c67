#include "tests/engine/core/simulated_cluster.h"

#include <algorithm>
#include <utility>

#include "tests/engine/core/simulated_rank.h"

namespace moe::toy {
namespace {

std::string Describe(const RankOrder& order) {
  if (const auto* form = std::get_if<FormGroup>(&order)) {
    return Cat("FormGroup ", form->generation, " member ", form->member, "/", form->size,
               form->same_group ? " same" : "", form->forget_sequences ? " forget" : "", " undo ", form->undo_step);
  }
  if (const auto* step = std::get_if<RankStep>(&order)) return Cat("RankStep ", step->generation, ".", step->step);
  if (const auto* abort = std::get_if<AbortStep>(&order)) return Cat("AbortStep ", abort->generation);
  if (const auto* load = std::get_if<LoadRank>(&order)) return Cat("LoadRank slot ", load->slot);
  if (const auto* prepare = std::get_if<PrepareExperts>(&order)) {
    return Cat("PrepareExperts ", prepare->ticket, prepare->let_go ? " let go" : "");
  }
  constexpr const char* kNames[] = {"RefuseRank", "LoadRank", "ConfigureRank", "PrepareExperts", "FormGroup",
                                    "StoreEntry", "RankStep", "AbortStep",     "StopRank"};
  return kNames[order.index()];
}

std::string Describe(const RankReport& report) {
  if (const auto* formed = std::get_if<RankFormed>(&report)) {
    return Cat("RankFormed ", formed->generation, " ", formed->status.message());
  }
  if (const auto* done = std::get_if<RankStepDone>(&report)) {
    return Cat("RankStepDone ", done->generation, ".", done->step, " ", done->status.message());
  }
  if (const auto* prepared = std::get_if<RankPrepared>(&report)) {
    return Cat("RankPrepared ", prepared->ticket, " ", prepared->status.message());
  }
  constexpr const char* kNames[] = {"RankHello", "RankProgress", "RankLoaded", "RankFailed", "StoreEntry"};
  return kNames[report.index()];
}

}  // namespace

SimulatedCluster::SimulatedCluster(SimulatedWorld* world, const ClusterConditions& conditions)
    : world_(world), conditions_(conditions) {
  for (int seat = 0; seat < conditions_.seats; ++seat) {
    world_->After(world_->dice.Real(0, 0.1), [this, seat] { Spawn(seat); });
  }
}

SimulatedCluster::~SimulatedCluster() = default;

double SimulatedCluster::Latency() {
  return conditions_.latency * world_->dice.Real(0.5, 3);
}

// --- RankTransport ---

std::optional<RankTransport::Event> SimulatedCluster::Wait(double until) {
  if (on_wait) on_wait();
  waiting_ = true;
  while (events_.empty() && world_->RunNext(until)) {
  }
  waiting_ = false;
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void SimulatedCluster::Send(LinkId link, RankOrder order) {
  const auto it = links_.find(link);
  if (it == links_.end() || !it->second.open) return;
  Connection& connection = it->second;
  SimulatedRank* rank = connection.rank;
  if (const auto* step = std::get_if<RankStep>(&order);
      step != nullptr && rank->alive() && rank->generation() != step->generation) {
    world_->Mistake(Cat("a step of generation ", step->generation, " for process ", rank->pid, ", which is of ",
                        rank->generation()));
  }
  if (world_->traced()) world_->Trace("to process ", rank->pid, ": ", Describe(order));
  const double at = std::max(world_->now() + Latency(), connection.to_rank);
  connection.to_rank = at;
  world_->After(at - world_->now(), [rank, order = std::move(order)] { rank->Take(order); });
}

void SimulatedCluster::Close(LinkId link, const std::string& reason) {
  const auto it = links_.find(link);
  if (it == links_.end() || !std::exchange(it->second.open, false)) return;
  world_->Trace("the front closes process ", it->second.rank->pid, ": ", reason);
  std::erase_if(events_, [&](const Event& event) { return event.link == link; });
  world_->After(Latency(), [rank = it->second.rank] { rank->HangUp(); });
}

void SimulatedCluster::Push(Event event) {
  events_.push_back(std::move(event));
  if (!waiting_ && wake_) wake_();
}

// --- From the processes ---

void SimulatedCluster::Report(SimulatedRank* rank, RankReport report) {
  Connection& connection = links_.at(rank->link);
  if (!connection.open || !rank->alive()) return;
  const auto deliver = [&](RankReport what) {
    connection.to_front = std::max(world_->now() + Latency(), connection.to_front);
    world_->After(connection.to_front - world_->now(),
                  [this, link = rank->link, what = std::move(what)] { Deliver(link, what); });
  };
  // What a step or a group of long ago has said.
  const bool again = !connection.said.empty() && world_->dice.Coin(conditions_.stale);
  std::optional<RankReport> old;
  if (again) old = connection.said[world_->dice.Between(0, static_cast<int64_t>(connection.said.size()) - 1)];
  if (connection.said.size() < 8) {
    connection.said.push_back(report);
  } else if (world_->dice.Coin(0.3)) {
    connection.said[world_->dice.Between(0, 7)] = report;
  }
  deliver(std::move(report));
  if (!old) return;
  ++stale_reports_;
  if (auto* done = std::get_if<RankStepDone>(&*old)) {
    for (SliceResult& slice : done->result.slices) {
      for (TokenInfo& token : slice.tokens) token.id ^= 1;
    }
  }
  deliver(*std::move(old));
}

void SimulatedCluster::Deliver(LinkId link, RankReport report) {
  const Connection& connection = links_.at(link);
  if (!connection.open || connection.cut) return;
  if (world_->traced()) world_->Trace("from process ", connection.rank->pid, ": ", Describe(report));
  Push({link, std::move(report)});
}

void SimulatedCluster::CloseLater(LinkId link, double seconds, const std::string& reason) {
  Connection& connection = links_.at(link);
  connection.to_front = std::max(connection.to_front, world_->now() + seconds);
  world_->After(connection.to_front - world_->now(), [this, link, reason] {
    Connection& closing = links_.at(link);
    if (!std::exchange(closing.open, false)) return;
    world_->Trace("the connection of process ", closing.rank->pid, " has ended: ", reason);
    Push({link, Closed{reason}});
    world_->After(Latency(), [rank = closing.rank] { rank->HangUp(); });
  });
}

void SimulatedCluster::Ended(SimulatedRank* rank, bool by_itself) {
  Dice& dice = world_->dice;
  if (!by_itself && dice.Coin(0.3)) links_.at(rank->link).cut = true;
  CloseLater(rank->link, dice.Coin(0.7) ? Latency() : dice.Real(0, 0.05), "reset");
  const int seat = rank->seat;
  if (seat < 0 || dead_seats_.contains(seat)) return;
  const bool quick = !calm() && dice.Coin(0.2);
  if (!calm() && !quick && !dice.Coin(conditions_.restarts)) return;  // Calm starts it again
  world_->After(quick ? dice.Real(0, 0.01) : conditions_.restart * dice.Real(0.1, 2), [this, seat] { Spawn(seat); });
}

void SimulatedCluster::Spawn(int seat) {
  if (dead_seats_.contains(seat)) return;
  for (const auto& process : processes_) {
    if (process->seat == seat && process->alive()) return;
  }
  const LinkId link = next_link_++;
  const int pid = static_cast<int>(processes_.size());
  RankHello hello{conditions_.terms.build,
                  conditions_.terms.checkpoint,
                  Cat("host", seat % 2),
                  {"other", conditions_.terms.backend}};
  world_->Trace("process ", pid, " starts in seat ", seat);
  processes_.push_back(std::make_unique<SimulatedRank>(this, pid, link, seat, std::move(hello)));
  SimulatedRank* rank = processes_.back().get();
  links_[link].rank = rank;
  rank->Start();
  if (world_->dice.Coin(conditions_.strangers)) SpawnStranger();
  // Dies young.
  if (begun_ && pid >= conditions_.seats && !calm() && faults_ < conditions_.faults && world_->dice.Coin(0.1)) {
    ++faults_;
    world_->After(world_->dice.Real(0, 2 * conditions_.load), [rank] { rank->Kill(); });
  }
}

void SimulatedCluster::SpawnStranger() {
  RankHello hello{conditions_.terms.build, conditions_.terms.checkpoint, "elsewhere", {conditions_.terms.backend}};
  switch (world_->dice.Between(0, 2)) {
    case 0:
      hello.build = "build-of-yesterday";
      break;
    case 1:
      hello.checkpoint = "sha256:strange";
      break;
    default:
      hello.backends = {"cpu-of-old"};
  }
  const LinkId link = next_link_++;
  processes_.push_back(
      std::make_unique<SimulatedRank>(this, static_cast<int>(processes_.size()), link, -1, std::move(hello)));
  links_[link].rank = processes_.back().get();
  processes_.back()->Start();
}

bool SimulatedCluster::Reach(const SimulatedRank* a, const SimulatedRank* b) const {
  return parted_.empty() || !parted_.contains(std::minmax(a->seat, b->seat));
}

void SimulatedCluster::ExchangeChanged(uint64_t generation) {
  for (size_t p = 0; p < processes_.size(); ++p) {
    if (processes_[p]->alive() && processes_[p]->generation() == generation) processes_[p]->Look(generation);
  }
}

// --- What befalls them ---

std::vector<SimulatedRank*> SimulatedCluster::Living() const {
  std::vector<SimulatedRank*> living;
  for (const auto& process : processes_) {
    if (process->alive() && process->seat >= 0) living.push_back(process.get());
  }
  return living;
}

int64_t SimulatedCluster::Capacity() const {
  return (conditions_.seats - static_cast<int64_t>(dead_seats_.size())) * conditions_.capacity;
}

void SimulatedCluster::Begin() {
  begun_ = true;
  NextFault();
  world_->After(conditions_.calm - world_->now(), [this] { Calm(); });
  if (conditions_.killed_for_good) {
    world_->After(world_->dice.Real(0, 0.5 * (conditions_.calm - world_->now())), [this] {
      const int64_t count = world_->dice.Between(1, conditions_.seats);
      for (int64_t i = 0; i < count; ++i)
        dead_seats_.insert(static_cast<int>(world_->dice.Between(0, conditions_.seats - 1)));
      std::vector<SimulatedRank*> ranks = Living();
      std::erase_if(ranks, [&](SimulatedRank* rank) { return !dead_seats_.contains(rank->seat); });
      KillSome(ranks, "for good");
    });
  }
}

void SimulatedCluster::NextFault() {
  world_->After(conditions_.mean_between_faults * world_->dice.Real(0, 2), [this] {
    if (calm() || faults_ >= conditions_.faults) return;
    const std::vector<SimulatedRank*> living = Living();
    if (!living.empty()) {
      ++faults_;
      Fault(living[world_->dice.Between(0, static_cast<int64_t>(living.size()) - 1)]);
    }
    NextFault();
  });
}

void SimulatedCluster::Moment(SimulatedRank* rank, const char* what) {
  if (!begun_ || rank->seat < 0 || faults_ >= conditions_.faults || calm() || !world_->dice.Coin(conditions_.moment))
    return;
  ++faults_;
  world_->Trace("process ", rank->pid, " ", what);
  Fault(rank);
}

void SimulatedCluster::Fault(SimulatedRank* rank) {
  Dice& dice = world_->dice;
  const std::vector<SimulatedRank*> living = Living();
  SimulatedRank* other = living[dice.Between(0, static_cast<int64_t>(living.size()) - 1)];
  switch (dice.Between(0, 15)) {
    case 0:
      return KillSome(living, "all");
    case 1:
    case 2:
      return KillSome({rank, other}, "two");
    case 3:
    case 4:
    case 5:
      return Pause(rank);
    case 6:
    case 7:
      if (other != rank) Partition(rank, other);
      return;
    case 8:
      world_->Trace("process ", rank->pid, " becomes slow");
      rank->slow = dice.Real(1, 20);
      world_->After(dice.Real(0, 2), [rank] { rank->slow = 1; });
      return;
    case 9:
      return CloseLater(rank->link, 0, "link down");
    default:
      return KillSome({rank}, "one");
  }
}

void SimulatedCluster::KillSome(const std::vector<SimulatedRank*>& ranks, const char* why) {
  world_->Trace("kill: ", why);
  for (SimulatedRank* rank : ranks) rank->Kill();
}

void SimulatedCluster::Pause(SimulatedRank* rank) {
  if (rank->stopped()) return;
  Dice& dice = world_->dice;
  const double length = dice.Coin(0.3) ? dice.Real(0, 0.9 * conditions_.heartbeat_timeout)
                                       : conditions_.heartbeat_timeout * dice.Real(1.1, 4);
  world_->Trace("process ", rank->pid, " is stopped for ", length, " s");
  rank->Stop();
  if (length > conditions_.heartbeat_timeout) {
    world_->After(conditions_.heartbeat_timeout, [this, rank] {
      if (rank->alive() && rank->stopped()) CloseLater(rank->link, 0, "no heartbeat");
    });
  }
  world_->After(length, [this, rank] {
    if (!rank->alive() || !rank->stopped()) return;
    world_->Trace("process ", rank->pid, " goes on");
    rank->Continue();
  });
}

void SimulatedCluster::Partition(SimulatedRank* a, SimulatedRank* b) {
  const std::pair<int, int> pair = std::minmax(a->seat, b->seat);
  world_->Trace("seats ", pair.first, " and ", pair.second, " do not reach each other");
  parted_.insert(pair);
  if (world_->dice.Coin(0.5)) return;  // until Calm
  world_->After(world_->dice.Real(0.01, 3), [this, pair] {
    parted_.erase(pair);
    world_->Trace("seats ", pair.first, " and ", pair.second, " reach each other again");
    for (SimulatedRank* rank : Living()) rank->Look(rank->generation());
  });
}

void SimulatedCluster::Calm() {
  world_->Trace("calm");
  parted_.clear();
  for (SimulatedRank* rank : Living()) {
    rank->slow = 1;
    if (rank->stopped()) rank->Continue();
  }
  for (SimulatedRank* rank : Living()) rank->Look(rank->generation());
  for (int seat = 0; seat < conditions_.seats; ++seat) Spawn(seat);
}

}  // namespace moe::toy
