#include "parallel/expert_packing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <random>

#include "parallel/base/check.h"

namespace moe {
namespace {

// Sweeps of LevelShares: load flows one expert per sweep along a chain of ranks; chains are short.
constexpr int kMaxSweeps = 24;
// LevelShares ends when a sweep lowers the busiest rank by less than this part.
constexpr double kSweepGain = 1e-4;
// A step of Improve that lowers the sum of squares by less than this part is no gain: rounding could make it cycle.
constexpr double kLeastGain = 1e-9;
// Replacements that one step of Improve tries.
constexpr int kMaxTrials = 120;
// Anneal's heat at its start and end, in Unevenness.
constexpr double kHot = 1;
constexpr double kCold = 0.005;

}  // namespace

double PackingProblem::MeanLoad() const {
  return std::accumulate(loads.begin(), loads.end(), 0.0) / num_ranks();
}

double PackingProblem::LeastBusiestLoad() const {
  const int64_t num_slots = std::accumulate(slots.begin(), slots.end(), int64_t{0});
  const int64_t usable = std::count_if(slots.begin(), slots.end(), [](int32_t s) { return s > 0; });
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  const auto fits = [&](double level) {
    double needed = 0;
    for (const double load : loads) {
      const double ranks = std::max(1.0, std::ceil(load / level * (1 - 1e-12)));
      if (ranks > static_cast<double>(usable)) return false;
      needed += ranks;
    }
    return needed <= static_cast<double>(num_slots);
  };
  double low = total / static_cast<double>(usable);
  if (fits(low)) return low;
  double high = total;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return low;
}

ExpertPacking::ExpertPacking(const PackingProblem* problem)
    : problem_(problem),
      pieces_(problem->num_experts()),
      experts_(problem->num_ranks()),
      holds_(static_cast<size_t>(problem->num_experts()) * problem->num_ranks()),
      load_(problem->num_ranks()) {}

int32_t ExpertPacking::BusiestRank() const {
  return static_cast<int32_t>(std::max_element(load_.begin(), load_.end()) - load_.begin());
}

double ExpertPacking::PieceLoad(int32_t expert, int32_t rank) const {
  for (const Piece& piece : pieces_[expert]) {
    if (piece.rank == rank) return piece.load;
  }
  return 0;
}

int32_t ExpertPacking::RoomFor(int32_t expert) const {
  int32_t best = -1;
  for (int32_t r = 0; r < problem_->num_ranks(); ++r) {
    if (!HasRoom(r) || Holds(expert, r) || !problem_->MayHold(expert, r)) continue;
    if (best < 0 || load_[r] < load_[best]) best = r;
  }
  return best;
}

void ExpertPacking::Add(int32_t expert, int32_t rank, double load) {
  pieces_[expert].push_back({rank, load});
  experts_[rank].push_back(expert);
  holds_[expert * problem_->num_ranks() + rank] = 1;
  load_[rank] += load;
}

void ExpertPacking::Remove(int32_t expert, int32_t rank) {
  std::vector<Piece>& pieces = pieces_[expert];
  const auto piece = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.rank == rank; });
  load_[rank] -= piece->load;
  pieces.erase(piece);
  experts_[rank].erase(std::find(experts_[rank].begin(), experts_[rank].end(), expert));
  holds_[expert * problem_->num_ranks() + rank] = 0;
}

void ExpertPacking::Pour(int32_t expert) {
  std::vector<Piece>& pieces = pieces_[expert];
  for (const Piece& piece : pieces) load_[piece.rank] -= piece.load;
  // Water fills the lowest ranks first; afterwards those that got some stand at one level.
  std::sort(pieces.begin(), pieces.end(), [&](const Piece& a, const Piece& b) {
    return load_[a.rank] != load_[b.rank] ? load_[a.rank] < load_[b.rank] : a.rank < b.rank;
  });
  double sum = problem_->loads[expert];
  double level = 0;
  size_t wet = 0;
  while (wet < pieces.size() && (wet == 0 || load_[pieces[wet].rank] < level)) {
    sum += load_[pieces[wet].rank];
    ++wet;
    level = sum / static_cast<double>(wet);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    Piece& piece = pieces[i];
    piece.load = i < wet ? std::max(0.0, level - load_[piece.rank]) : 0.0;
    load_[piece.rank] += piece.load;
  }
}

void ExpertPacking::LevelShares() {
  // Each Pour lowers the sum of the squared rank loads, and its minimum over all shares is also the least possible
  // load of the busiest rank.
  double before = BusiestLoad();
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    for (int32_t e = 0; e < problem_->num_experts(); ++e) {
      if (pieces_[e].size() > 1) Pour(e);
    }
    const double after = BusiestLoad();
    if (before - after <= kSweepGain * before && sweep > 0) break;
    before = after;
  }
}

void ExpertPacking::Pack() {
  const int num_experts = problem_->num_experts();
  const int num_ranks = problem_->num_ranks();
  // Free slots and usable ranks per node (index 0 for experts that may go anywhere).
  const int num_nodes = 1 + *std::max_element(problem_->node_of_rank.begin(), problem_->node_of_rank.end());
  const bool bound = problem_->node_of_expert[0] >= 0;
  std::vector<int32_t> free(bound ? num_nodes : 1);
  std::vector<int32_t> ranks(free.size());
  for (int32_t r = 0; r < num_ranks; ++r) {
    const int32_t node = bound ? problem_->node_of_rank[r] : 0;
    free[node] += problem_->slots[r];
    ranks[node] += problem_->slots[r] > 0;
  }
  // Replicate the expert with the most load per replica.
  struct Candidate {
    double load;
    int32_t expert;
    bool operator<(const Candidate& other) const {
      return load != other.load ? load < other.load : expert > other.expert;
    }
  };
  std::vector<int32_t> replicas(num_experts, 1);
  std::priority_queue<Candidate> hottest;
  for (int32_t e = 0; e < num_experts; ++e) {
    hottest.push({problem_->loads[e], e});
    --free[bound ? problem_->node_of_expert[e] : 0];
  }
  while (!hottest.empty()) {
    const int32_t e = hottest.top().expert;
    hottest.pop();
    const int32_t node = bound ? problem_->node_of_expert[e] : 0;
    if (free[node] <= 0 || replicas[e] >= ranks[node]) continue;
    --free[node];
    ++replicas[e];
    hottest.push({problem_->loads[e] / replicas[e], e});
  }
  // Heaviest replica first, to the least loaded rank.
  std::vector<int32_t> order(num_experts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return problem_->loads[a] / replicas[a] > problem_->loads[b] / replicas[b];
  });
  for (int32_t e : order) {
    for (int32_t i = 0; i < replicas[e]; ++i) {
      const int32_t rank = RoomFor(e);
      // Late replicas may find only ranks that hold the expert already: FillFreeSlots takes another expert there.
      if (rank >= 0) Add(e, rank, problem_->loads[e] / replicas[e]);
    }
    if (pieces_[e].empty()) PlaceMissing(e);
    if (static_cast<int32_t>(pieces_[e].size()) < replicas[e]) Pour(e);
  }
  FillFreeSlots();
  LevelShares();
}

void ExpertPacking::PackTight(double level) {
  std::vector<int32_t> order(problem_->num_experts());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return problem_->loads[a] > problem_->loads[b]; });
  std::vector<int32_t> ranks(problem_->num_ranks());  // fewest slots first: they have the least room for company
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int32_t a, int32_t b) { return problem_->slots[a] < problem_->slots[b]; });
  size_t hot = 0;              // order[0, hot) are placed,
  size_t cold = order.size();  // and so are order[cold, …)
  size_t next_rank = 0;
  for (; hot < cold; ++hot) {
    const int32_t e = order[hot];
    const auto company = [&](int32_t rank) {
      double sum = 0;
      for (int32_t i = 1; i < problem_->slots[rank] && hot + i < cold; ++i) sum += problem_->loads[order[cold - i]];
      return sum;
    };
    double left = problem_->loads[e];
    if (next_rank == ranks.size() || left + company(ranks[next_rank]) <= level) break;
    while (next_rank < ranks.size() && left > 0) {
      const int32_t rank = ranks[next_rank++];
      if (problem_->slots[rank] == 0) continue;
      const double piece = std::min(left, std::max(0.0, level - company(rank)));
      for (int32_t i = 1; i < problem_->slots[rank] && hot + 1 < cold; ++i) {
        const int32_t companion = order[--cold];
        Add(companion, rank, problem_->loads[companion]);
      }
      Add(e, rank, piece);
      left -= piece;
    }
    Pour(e);
  }
  for (; hot < cold; ++hot) PlaceMissing(order[hot]);
  FillFreeSlots();
  LevelShares();
}

void ExpertPacking::PackLike(std::span<const std::vector<int32_t>> present) {
  const int num_experts = problem_->num_experts();
  for (int32_t e = 0; e < num_experts; ++e) {
    for (int32_t r : present[e]) {
      if (r < problem_->num_ranks() && problem_->MayHold(e, r) && !Holds(e, r)) Add(e, r, 0);
    }
    Pour(e);
  }
  for (int32_t r = 0; r < problem_->num_ranks(); ++r) {
    while (static_cast<int32_t>(experts_[r].size()) > problem_->slots[r]) {
      // Drop what has the most replicas left; among those, what adds the least to the others.
      int32_t victim = experts_[r][0];
      for (int32_t e : experts_[r]) {
        const bool spare = pieces_[e].size() > 1;
        const bool victim_spare = pieces_[victim].size() > 1;
        if (spare != victim_spare ? spare : PieceLoad(e, r) < PieceLoad(victim, r)) victim = e;
      }
      Remove(victim, r);
      Pour(victim);
    }
  }
  std::vector<int32_t> missing;
  for (int32_t e = 0; e < num_experts; ++e) {
    if (pieces_[e].empty()) missing.push_back(e);
  }
  std::stable_sort(missing.begin(), missing.end(),
                   [&](int32_t a, int32_t b) { return problem_->loads[a] > problem_->loads[b]; });
  for (int32_t e : missing) PlaceMissing(e);
  FillFreeSlots();
  LevelShares();
}

void ExpertPacking::PlaceMissing(int32_t expert) {
  int32_t rank = RoomFor(expert);
  if (rank < 0) {
    // No room where it may go: the redundant replica with the least load gives way.
    int32_t victim = -1;
    double least = 0;
    for (int32_t r = 0; r < problem_->num_ranks(); ++r) {
      if (!problem_->MayHold(expert, r)) continue;
      for (int32_t e : experts_[r]) {
        if (pieces_[e].size() < 2) continue;
        const double load = PieceLoad(e, r);
        if (rank < 0 || load < least) {
          rank = r;
          victim = e;
          least = load;
        }
      }
    }
    MOE_CHECK(rank >= 0) << "fewer slots than experts";
    Remove(victim, rank);
    Pour(victim);
  }
  Add(expert, rank, problem_->loads[expert]);
}

void ExpertPacking::FillFreeSlots() {
  for (int32_t r = 0; r < problem_->num_ranks(); ++r) {
    while (HasRoom(r)) {
      int32_t best = -1;
      double most = 0;
      for (int32_t e = 0; e < problem_->num_experts(); ++e) {
        if (pieces_[e].empty() || Holds(e, r) || !problem_->MayHold(e, r)) continue;
        const double load = problem_->loads[e] / static_cast<double>(pieces_[e].size());
        if (best < 0 || load > most) {
          best = e;
          most = load;
        }
      }
      if (best < 0) break;  // it holds every expert
      Add(best, r, 0);
      Pour(best);
    }
  }
}

double ExpertPacking::Unevenness() const {
  const double scale = 1 / problem_->MeanLoad();
  double sum = 0;
  for (const double load : load_) {
    double power = load * scale;
    for (int i = 0; i < 3; ++i) power *= power;
    sum += power;
  }
  return sum;
}

bool ExpertPacking::SwapFromBusiest() {
  const int32_t busy = BusiestRank();
  struct Choice {
    double gain = 0;
    int32_t give = -1;
    int32_t take = -1;
    int32_t rank = -1;
  } best;
  for (int32_t give : experts_[busy]) {
    const double given = PieceLoad(give, busy);
    for (int32_t r = 0; r < problem_->num_ranks(); ++r) {
      const double gap = load_[busy] - load_[r];
      if (gap <= 0 || Holds(give, r) || !problem_->MayHold(give, r)) continue;
      for (int32_t take : experts_[r]) {
        const double moved = given - PieceLoad(take, r);
        const double gain = moved * (gap - moved);  // half of what the sum of squares loses
        if (gain <= best.gain || Holds(take, busy) || !problem_->MayHold(take, busy)) continue;
        best = {gain, give, take, r};
      }
    }
  }
  if (best.gain <= kLeastGain * load_[busy] * load_[busy]) return false;
  Swap(best.give, busy, best.take, best.rank);
  LevelShares();
  return true;
}

void ExpertPacking::Swap(int32_t a, int32_t rank_a, int32_t b, int32_t rank_b) {
  const double load_a = PieceLoad(a, rank_a);
  const double load_b = PieceLoad(b, rank_b);
  Remove(a, rank_a);
  Remove(b, rank_b);
  Add(a, rank_b, load_a);
  Add(b, rank_a, load_b);
}

void ExpertPacking::Replace(int32_t dropped, int32_t added, int32_t rank) {
  Remove(dropped, rank);
  Pour(dropped);
  Add(added, rank, 0);
  Pour(added);
}

bool ExpertPacking::ReplicateFromBusiest() {
  const int32_t busy = BusiestRank();
  const double before = Unevenness();
  const double busiest = load_[busy] * (1 + kLeastGain);
  std::vector<int32_t> cold(problem_->num_ranks());
  std::iota(cold.begin(), cold.end(), 0);
  std::stable_sort(cold.begin(), cold.end(), [&](int32_t a, int32_t b) { return load_[a] < load_[b]; });
  std::vector<int32_t> hot = experts_[busy];
  std::stable_sort(hot.begin(), hot.end(),
                   [&](int32_t a, int32_t b) { return PieceLoad(a, busy) > PieceLoad(b, busy); });
  int trials = 0;
  ExpertPacking trial(problem_);  // assigned to again and again: its buffers stay
  for (int32_t r : cold) {
    for (int32_t drop : experts_[r]) {
      if (pieces_[drop].size() < 2) continue;
      for (int32_t e : hot) {
        if (e == drop || Holds(e, r) || !problem_->MayHold(e, r)) continue;
        if (++trials > kMaxTrials) return false;
        trial = *this;
        trial.Replace(drop, e, r);
        trial.LevelShares();
        // The first that gains: looking for the best of many takes longer and copies no fewer experts in the end.
        if (trial.BusiestLoad() <= busiest && trial.Unevenness() < before * (1 - kLeastGain)) {
          std::swap(*this, trial);
          return true;
        }
      }
    }
  }
  return false;
}

void ExpertPacking::Anneal(double goal, int steps, uint32_t seed) {
  ExpertPacking best = *this;
  ExpertPacking trial(problem_);
  double now = Unevenness();
  std::minstd_rand random(seed);
  const auto pick = [&](size_t count) { return static_cast<int32_t>(random() % count); };
  for (int step = 0; step < steps && best.BusiestLoad() > goal; ++step) {
    const int32_t a = step % 2 == 0 ? BusiestRank() : pick(experts_.size());
    const int32_t b = pick(experts_.size());
    if (a == b || experts_[a].empty() || experts_[b].empty()) continue;
    const int32_t x = experts_[a][pick(experts_[a].size())];
    const int32_t y = experts_[b][pick(experts_[b].size())];
    if (Holds(x, b) || !problem_->MayHold(x, b)) continue;
    const bool replace = random() % 2 == 0;
    if (replace ? pieces_[y].size() < 2 : Holds(y, a) || !problem_->MayHold(y, a)) continue;
    trial = *this;
    if (replace) {
      trial.Replace(y, x, b);
    } else {
      trial.Swap(x, a, y, b);
    }
    trial.LevelShares();
    const double then = trial.Unevenness();
    // Metropolis, cooling from kHot to kCold.
    const double heat = kHot * std::pow(kCold / kHot, static_cast<double>(step) / steps);
    const double chance = static_cast<double>(random()) / static_cast<double>(std::minstd_rand::max());
    if (then > now && std::exp((now - then) / heat) < chance) continue;
    std::swap(*this, trial);
    now = then;
    if (BusiestLoad() < best.BusiestLoad()) best = *this;
  }
  *this = std::move(best);
}

void ExpertPacking::Improve(double goal, int steps) {
  for (int i = 0; i < steps && BusiestLoad() > goal; ++i) {
    if (!SwapFromBusiest() && !ReplicateFromBusiest()) break;
  }
}

void ExpertPacking::Relabel(std::span<const int32_t> source) {
  const int num_ranks = problem_->num_ranks();
  std::vector<int32_t> target(num_ranks);
  std::vector<std::vector<int32_t>> experts(num_ranks);
  std::vector<double> load(num_ranks);
  for (int32_t r = 0; r < num_ranks; ++r) {
    target[source[r]] = r;
    experts[r] = std::move(experts_[source[r]]);
    load[r] = load_[source[r]];
  }
  experts_ = std::move(experts);
  load_ = std::move(load);
  std::fill(holds_.begin(), holds_.end(), 0);
  for (int32_t e = 0; e < problem_->num_experts(); ++e) {
    for (Piece& piece : pieces_[e]) {
      piece.rank = target[piece.rank];
      holds_[e * num_ranks + piece.rank] = 1;
    }
  }
}

}  // namespace moe
