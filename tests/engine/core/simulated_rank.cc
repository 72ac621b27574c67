#include "tests/engine/core/simulated_rank.h"

#include <algorithm>
#include <utility>

namespace moe::toy {
namespace {

bool Holds(const ExpertLists& held, const ExpertLists& wanted) {
  for (size_t l = 0; l < wanted.size(); ++l) {
    if (!std::includes(held[l].begin(), held[l].end(), wanted[l].begin(), wanted[l].end())) return false;
  }
  return true;
}

std::vector<std::pair<size_t, int32_t>> Missing(const ExpertLists& held, const ExpertLists& wanted) {
  std::vector<std::pair<size_t, int32_t>> missing;
  for (size_t l = 0; l < wanted.size(); ++l) {
    for (int32_t e : wanted[l]) {
      if (!std::binary_search(held[l].begin(), held[l].end(), e)) missing.emplace_back(l, e);
    }
  }
  return missing;
}

std::string KeyOf(int member) {
  return Cat("member/", member);
}

}  // namespace

int64_t CountExperts(const ExpertLists& lists) {
  int64_t count = 0;
  for (const auto& layer : lists) count += static_cast<int64_t>(layer.size());
  return count;
}

SimulatedRank::SimulatedRank(SimulatedCluster* cluster, int pid, RankTransport::LinkId link, int seat, RankHello hello)
    : pid(pid), link(link), seat(seat), cluster_(cluster), hello_(std::move(hello)) {}

std::string SimulatedRank::name() const {
  return Cat("process ", pid);
}

void SimulatedRank::After(double seconds, std::function<void()> what) {
  cluster_->world().After(seconds, [this, what = std::move(what)]() mutable { Later(std::move(what)); });
}

void SimulatedRank::Later(std::function<void()> what) {
  if (!alive_) return;
  if (stopped_) {
    when_continued_.push_back(std::move(what));
  } else {
    what();
  }
}

double SimulatedRank::Some(double mean) {
  return mean * slow * cluster_->world().dice.Real(0.3, 1.7);
}

void SimulatedRank::Moment(const char* what) {
  cluster_->Moment(this, what);
}

// --- What befalls it ---

void SimulatedRank::Start() {
  After(Some(0.01), [this] { cluster_->Report(this, hello_); });
}

void SimulatedRank::Kill() {
  if (!alive_) return;
  cluster_->world().Trace(name(), " is killed");
  End(false);
}

void SimulatedRank::End(bool by_itself) {
  alive_ = false;
  when_continued_.clear();
  cluster_->Ended(this, by_itself);
  if (generation_ != 0) cluster_->ExchangeChanged(generation_);
}

void SimulatedRank::Stop() {
  stopped_ = true;
}

void SimulatedRank::Continue() {
  stopped_ = false;
  std::vector<std::function<void()>> all = std::exchange(when_continued_, {});
  for (std::function<void()>& what : all) Later(std::move(what));
}

void SimulatedRank::HangUp() {
  if (std::exchange(hung_up_, true)) return;
  After(Some(0.005), [this] {
    cluster_->world().Trace(name(), " has lost the front and ends");
    End(true);
  });
}

// --- The reading thread ---

void SimulatedRank::Take(RankOrder order) {
  if (stopped_ || !alive_) {
    return Later([this, order = std::move(order)]() mutable { Take(std::move(order)); });
  }
  if (const auto* refused = std::get_if<RefuseRank>(&order)) {
    if (seat < 0) {
      for (const std::string* own : {&hello_.build, &hello_.checkpoint, &hello_.backends[0]}) {
        const RankTerms& terms = cluster_->conditions().terms;
        const bool same = *own == terms.build || *own == terms.checkpoint || *own == terms.backend;
        if (!same && refused->reason.find(*own) == std::string::npos) {
          cluster_->world().Mistake(Cat("a stranger is not told why: ", refused->reason));
        }
      }
    }
    return End(true);
  }
  if (seat < 0) return cluster_->world().Mistake("a stranger is let in");
  if (const auto* abort = std::get_if<AbortStep>(&order)) {
    aborted_[abort->generation] = abort->reason;
    while (aborted_.size() > 16) aborted_.erase(aborted_.begin());
    if (forming_ && forming_->generation == abort->generation) Formed(absl::UnavailableError(abort->reason), -1);
    if (alive_ && generation_ != 0 && generation_ == abort->generation) {
      AbortGroup();
      if (waits_) FailStep(absl::UnavailableError(abort->reason), -1);
    }
  } else if (const auto* entry = std::get_if<StoreEntry>(&order)) {
    if (store_generation_ != entry->generation) return;
    store_.emplace(entry->key, entry->value);
    if (forming_) LookForOthers();
  } else if (std::holds_alternative<StopRank>(order)) {
    End(true);
  } else if (const auto* prepare = std::get_if<PrepareExperts>(&order)) {
    CancelPrepare();
    Prepare(*prepare);
  } else {
    if (const auto* form = std::get_if<FormGroup>(&order); form != nullptr && !form->same_group) {
      store_generation_ = form->generation;
      store_.clear();
    }
    orders_.push_back(std::move(order));
    Next();
  }
}

// --- The executing thread ---

void SimulatedRank::Next() {
  if (busy_ || orders_.empty()) return;
  busy_ = true;
  ++task_;
  RankOrder order = std::move(orders_.front());
  orders_.pop_front();
  if (const auto* load = std::get_if<LoadRank>(&order)) {
    Load(*load);
  } else if (std::holds_alternative<ConfigureRank>(order)) {
    if (!loaded_ || toy_) cluster_->world().Mistake("caches at the wrong time");
    toy_.emplace(cluster_->conditions().scheduler, &cluster_->world().mistakes);
    Done();
  } else if (const auto* form = std::get_if<FormGroup>(&order)) {
    Form(*form);
  } else if (auto* step = std::get_if<RankStep>(&order)) {
    Step(std::move(*step));
  }
}

void SimulatedRank::Done() {
  if (!alive_) return;
  busy_ = false;
  ++task_;
  After(0, [this] { Next(); });
}

void SimulatedRank::Load(const LoadRank& order) {
  if (loaded_ || toy_) cluster_->world().Mistake("loads twice");
  Moment("has got LoadRank");
  if (!alive_) return;
  if (CountExperts(order.experts) > cluster_->conditions().capacity) {
    cluster_->world().Trace(name(), " has no memory for ", CountExperts(order.experts), " experts");
    cluster_->Report(this, RankFailed{absl::ResourceExhaustedError("the experts do not fit")});
    return End(true);
  }
  held_ = order.experts;
  LoadMore(0);
}

void SimulatedRank::LoadMore(double fraction) {
  if (fraction < 1) {
    cluster_->Report(this, RankProgress{fraction});
    After(Some(cluster_->conditions().load) / 2, [this, fraction] {
      Moment("loads");
      if (alive_) LoadMore(fraction + 0.5);
    });
    return;
  }
  loaded_ = true;
  cluster_->Report(this, RankLoaded{100, 1000});
  Moment("is loaded");
  Done();
}

void SimulatedRank::Form(const FormGroup& order) {
  SimulatedWorld& world = cluster_->world();
  Moment("begins to meet");
  if (!alive_) return;
  if (!toy_) {
    world.Mistake("a group before the caches");
    return Done();
  }
  if (order.forget_sequences) {
    toy_->Forget();
    last_step_ = 0;
  } else if (order.undo_step != 0 && order.undo_step == last_step_) {
    cluster_->NoteUndone();
    toy_->Undo();
    last_step_ = 0;
  }
  forming_ = order;
  if (order.same_group) {
    if (order.generation <= generation_ || generation_ == 0) world.Mistake("no group to keep");
    if (group_broken_) world.Mistake("keeps a broken group");
    if (order.member != member_ || order.size != static_cast<int>(peers_.size()))
      world.Mistake("another group to keep");
    generation_ = order.generation;
    return Formed(absl::OkStatus(), -1);
  }
  const uint64_t before = std::exchange(generation_, 0);
  peers_.clear();
  if (before != 0) cluster_->ExchangeChanged(before);
  if (!alive_) return;
  if (store_generation_ != order.generation) return Formed(absl::AbortedError("a later generation"), -1);
  store_[KeyOf(order.member)] = Cat(order.generation, " ", pid);
  cluster_->Report(this, StoreEntry{order.generation, KeyOf(order.member), store_[KeyOf(order.member)]});
  if (const auto it = aborted_.find(order.generation); it != aborted_.end()) {
    return Formed(absl::UnavailableError(it->second), -1);
  }
  connecting_ = false;
  meet_until_ = world.now() + cluster_->conditions().meet_timeout;
  After(cluster_->conditions().meet_timeout, [this, task = task_] {
    if (task == task_ && forming_) Formed(absl::DeadlineExceededError("they do not come"), FirstMissing());
  });
  LookForOthers();
}

// While it meets: who is not there; in an exchange: who has not come to it. The first member in its eyes.
int SimulatedRank::FirstMissing() const {
  if (forming_) {
    for (int m = 0; m < forming_->size; ++m) {
      const auto it = store_.find(KeyOf(m));
      if (it == store_.end()) return m;
      const SimulatedRank* peer = cluster_->Process(std::atoi(it->second.substr(it->second.find(' ')).c_str()));
      const bool there = peer->generation_ == forming_->generation ||
                         (peer->forming_ && peer->forming_->generation == forming_->generation && peer->connecting_);
      if (peer != this && (!there || !peer->alive_ || peer->stopped_ || !cluster_->Reach(this, peer))) return m;
    }
    return -1;
  }
  for (size_t m = 0; m < peers_.size(); ++m) {
    const SimulatedRank* peer = cluster_->Process(peers_[m]);
    if (peer == this) continue;
    const Exchange& theirs = peer->exchange_;
    if (theirs.generation != exchange_.generation || theirs.step != exchange_.step || theirs.parts < exchange_.parts ||
        !cluster_->Reach(this, peer)) {
      return static_cast<int>(m);
    }
  }
  return -1;
}

void SimulatedRank::LookForOthers() {
  if (connecting_ || static_cast<int>(store_.size()) < forming_->size) return;
  for (const auto& [key, value] : store_) {
    if (std::stoull(value) != forming_->generation) cluster_->world().Mistake("an address of another generation");
  }
  connecting_ = true;
  After(Some(cluster_->conditions().connect), [this, task = task_] {
    if (task == task_ && forming_) Connect();
  });
}

void SimulatedRank::Connect() {
  const int missing = FirstMissing();
  if (missing >= 0) {
    const std::string& value = store_.at(KeyOf(missing));
    if (!cluster_->Process(std::atoi(value.substr(value.find(' ')).c_str()))->alive_) {
      return Formed(absl::UnavailableError(Cat("member ", missing, " is gone")), missing);
    }
    After(0.02, [this, task = task_] {
      if (task == task_ && forming_) Connect();
    });
    return;
  }
  if (const auto it = aborted_.find(forming_->generation); it != aborted_.end()) {
    return Formed(absl::UnavailableError(it->second), -1);
  }
  for (int m = 0; m < forming_->size; ++m) {
    const std::string& value = store_.at(KeyOf(m));
    peers_.push_back(std::atoi(value.substr(value.find(' ')).c_str()));
  }
  generation_ = forming_->generation;
  group_broken_ = false;
  Formed(absl::OkStatus(), -1);
}

void SimulatedRank::Formed(const Status& met, int suspect) {
  const FormGroup order = *std::exchange(forming_, std::nullopt);
  Status status = met;
  if (status.ok()) {
    placements_ = order.placements;
    member_ = order.member;
    CancelPrepare();
    ExpertLists keep;
    for (const ExpertPlacement& layer : placements_) keep.push_back(layer.ExpertsOf(member_));
    if (Holds(held_, keep)) {
      held_ = std::move(keep);
    } else {
      cluster_->world().Mistake(Cat(name(), " is to compute experts that it has not loaded"));
      status = absl::InternalError("experts that it has not loaded");
    }
  }
  cluster_->world().Trace(name(), " has met generation ", order.generation, ": ", status.message(), " ", suspect);
  Moment("has met");
  if (!alive_) return;
  cluster_->Report(this, RankFormed{order.generation, std::move(status), suspect});
  Moment("has said that it has met");
  Done();
}

void SimulatedRank::Step(RankStep order) {
  if (order.generation != generation_) return Done();  // of a group that is no more: nobody waits for an answer
  Moment("has got a step");
  if (!alive_) return;
  last_step_ = order.step;
  if (exchange_.generation == order.generation && exchange_.step >= order.step) {
    cluster_->world().Mistake("a step comes again");
  }
  exchange_ = {order.generation, order.step, 0};
  step_ = std::move(order);
  toy_->Begin(step_->plan);
  After(Some(cluster_->conditions().compute), [this] { Arrive(); });
}

void SimulatedRank::Arrive() {
  if (group_broken_) return FailStep(absl::UnavailableError("the group is aborted"), -1);
  ++exchange_.parts;
  waits_ = true;
  Moment("is in an exchange");
  if (!alive_) return;
  After(cluster_->conditions().exchange_timeout, [this, task = task_, parts = exchange_.parts] {
    if (task == task_ && waits_ && exchange_.parts == parts) {
      FailStep(absl::DeadlineExceededError("an exchange takes too long"), FirstMissing());
    }
  });
  cluster_->ExchangeChanged(generation_);
}

void SimulatedRank::Look(uint64_t generation) {
  Later([this, generation] {
    if (waits_ && generation_ == generation) TryExchange();
  });
}

void SimulatedRank::TryExchange() {
  for (int pid_of_peer : peers_) {
    const SimulatedRank* peer = cluster_->Process(pid_of_peer);
    if (peer->exchange_.generation != exchange_.generation) continue;
    if (peer->exchange_.step > exchange_.step) cluster_->world().Mistake("ranks are out of step");
  }
  const int missing = FirstMissing();
  if (missing >= 0) {
    // A connection that ends is noticed, though not at once; but what had been sent before it ended has come.
    for (size_t m = 0; m < peers_.size(); ++m) {
      const SimulatedRank* peer = cluster_->Process(peers_[m]);
      const bool left = !peer->alive_ || peer->generation_ != generation_ || peer->group_broken_;
      if (!left || !cluster_->Reach(this, peer)) continue;
      After(Some(0.005), [this, task = task_, parts = exchange_.parts, m] {
        if (task != task_ || !waits_ || exchange_.parts != parts || FirstMissing() < 0) return;
        FailStep(absl::UnavailableError(Cat("member ", m, " is gone")), static_cast<int>(m));
      });
      return;
    }
    return;
  }
  waits_ = false;
  After(Some(cluster_->conditions().compute), [this, task = task_] {
    if (task != task_) return;
    if (exchange_.parts < cluster_->conditions().step_parts) {
      Arrive();
    } else {
      Finish();
    }
  });
}

void SimulatedRank::Finish() {
  ExpertLists wanted;
  for (const ExpertPlacement& layer : placements_) wanted.push_back(layer.ExpertsOf(member_));
  if (!Holds(held_, wanted)) cluster_->world().Mistake(Cat(name(), " computes experts that it does not hold"));
  RankStepDone done;
  done.generation = step_->generation;
  done.step = step_->step;
  done.result = toy_->Finish(step_->plan);
  for (size_t e = 0; e < done.result.expert_tokens.size(); ++e) {
    done.result.expert_tokens[e] = e % kExperts == 3 ? 20 : 1;
  }
  step_.reset();
  Moment("has finished a step");
  if (!alive_) return;
  cluster_->Report(this, std::move(done));
  Moment("has said that it has finished a step");
  Done();
}

void SimulatedRank::FailStep(const Status& status, int suspect) {
  waits_ = false;
  const RankStep step = *std::exchange(step_, std::nullopt);
  cluster_->world().Trace(name(), " fails in step ", step.step, ": ", status.message(), " ", suspect);
  AbortGroup();
  cluster_->Report(
      this, RankStepDone{
                .generation = step.generation, .step = step.step, .status = status, .suspect = suspect, .result = {}});
  Done();
}

void SimulatedRank::AbortGroup() {
  if (!std::exchange(group_broken_, true)) cluster_->ExchangeChanged(generation_);
}

// --- The loading thread ---

void SimulatedRank::Prepare(const PrepareExperts& order) {
  if (!loaded_) cluster_->world().Mistake("experts before the first ones");
  prepare_ = order;
  Moment("prepares");
  if (!alive_) return;
  if (order.let_go) {
    if (step_) cluster_->world().Mistake("is to let go of experts in a step");
    for (size_t l = 0; l < held_.size(); ++l) {
      std::vector<int32_t> kept;
      std::set_intersection(held_[l].begin(), held_[l].end(), order.experts[l].begin(), order.experts[l].end(),
                            std::back_inserter(kept));
      held_[l] = std::move(kept);
    }
  }
  const std::vector<std::pair<size_t, int32_t>> missing = Missing(held_, order.experts);
  if (CountExperts(held_) + static_cast<int64_t>(missing.size()) > cluster_->conditions().capacity) {
    cluster_->world().Trace(name(), " has no memory for ", missing.size(), " more experts");
    ++cluster_->exhausted;
    return Prepared(absl::ResourceExhaustedError("they do not fit"));
  }
  if (missing.empty()) return Prepared(absl::OkStatus());
  After(Some(cluster_->conditions().load_expert), [this, number = prepare_number_, next = missing[0]] {
    if (number != prepare_number_) return;
    std::vector<int32_t>& layer = held_[next.first];
    layer.insert(std::upper_bound(layer.begin(), layer.end(), next.second), next.second);
    const PrepareExperts again = *prepare_;
    Prepare(again);
  });
}

void SimulatedRank::CancelPrepare() {
  if (prepare_) Prepared(absl::CancelledError("these experts are not wanted any more"));
}

void SimulatedRank::Prepared(const Status& status) {
  ++prepare_number_;
  cluster_->Report(this, RankPrepared{std::exchange(prepare_, std::nullopt)->ticket, status});
  if (status.ok()) Moment("has said that it has prepared");
}

}  // namespace moe::toy
