#include "parallel/rebalance.h"

#include <algorithm>
#include <numeric>

#include "parallel/expert_packing.h"
#include "parallel/rank_matching.h"

namespace moe {
namespace {

// Busiest rank over the mean (or over the least possible) at which the search stops, at which a second construction is
// tried, and at which annealing is.
constexpr double kGood = 1.02;
constexpr double kFair = 1.05;
constexpr double kPoor = 1.08;
constexpr double kNearLeast = 1.002;
// Levels tried by the second construction (each 1 % higher), and how many of its packings are improved.
constexpr int kTightLevels = 12;
constexpr size_t kTightImproved = 3;
constexpr int kAnnealSteps = 2000;
constexpr uint32_t kAnnealings = 4;
// Bounds on local search, in steps per rank: a new packing needs far fewer; what is to stay near the present one and
// needs more would copy about as much as a new packing.
constexpr int kStepsPerRank = 8;
constexpr int kKeptStepsPerRank = 2;

ExpertPacking BestPacking(const PackingProblem& problem) {
  const double mean = problem.MeanLoad();
  const double least = problem.LeastBusiestLoad();
  const double goal = std::max(mean * kGood, least * kNearLeast);
  ExpertPacking best(&problem);
  best.Pack();
  const int steps = kStepsPerRank * problem.num_ranks();
  best.Improve(goal, steps);
  if (best.BusiestLoad() > std::max(mean * kFair, least * kGood) && problem.node_of_expert[0] < 0) {
    std::vector<ExpertPacking> tight;
    for (int i = 1; i <= kTightLevels; ++i) {
      tight.emplace_back(&problem).PackTight(std::max(mean * (1 + 0.01 * i), least * kNearLeast));
    }
    std::stable_sort(tight.begin(), tight.end(),
                     [](const ExpertPacking& a, const ExpertPacking& b) { return a.Unevenness() < b.Unevenness(); });
    tight.erase(tight.begin() + kTightImproved, tight.end());
    for (ExpertPacking& packing : tight) {
      packing.Improve(goal, steps);
      if (packing.BusiestLoad() < best.BusiestLoad()) best = std::move(packing);
    }
  }
  for (uint32_t seed = 1; seed <= kAnnealings && best.BusiestLoad() > std::max(mean * kPoor, least * kFair); ++seed) {
    best.Anneal(goal, kAnnealSteps, seed);
  }
  return best;
}

struct Shape {
  int32_t num_experts = 0;
  int32_t num_ranks = 0;
  int32_t slots = 0;      // of all ranks
  int32_t num_nodes = 1;  // > 1: groups are kept on nodes
  int32_t num_groups = 1;

  int32_t NodeOf(int32_t rank) const { return rank / (num_ranks / num_nodes); }
  int32_t GroupOf(int32_t expert) const { return expert / (num_experts / num_groups); }
};

StatusOr<Shape> ShapeOf(size_t num_experts, int num_ranks, const RebalanceOptions& options) {
  if (num_experts == 0 || num_ranks < 1)
    return InvalidError("rebalance: ", num_experts, " experts on ", num_ranks, " ranks");
  const auto experts = static_cast<int64_t>(num_experts);
  if (!(options.redundant_share >= 0) || !(options.keep_within >= 0)) {
    return InvalidError("rebalance: a negative part");
  }
  int64_t slots = experts;
  if (options.redundant_per_rank >= 0) {
    slots += static_cast<int64_t>(options.redundant_per_rank) * num_ranks;
  } else {
    slots += static_cast<int64_t>(std::min(options.redundant_share, 1.0 * num_ranks) * static_cast<double>(experts));
  }
  slots = std::min(slots, experts * num_ranks);  // no expert twice on a rank
  if (options.max_slots_per_rank > 0) {
    const int64_t room = static_cast<int64_t>(options.max_slots_per_rank) * num_ranks;
    if (room < experts) {
      return absl::ResourceExhaustedError(Cat("rebalance: ", experts, " experts of a layer on ", num_ranks,
                                              " ranks that have memory for ", options.max_slots_per_rank, " each"));
    }
    slots = std::min(slots, room);
  }
  Shape shape{static_cast<int32_t>(experts), num_ranks, static_cast<int32_t>(slots), 1, 1};
  if (options.ranks_per_node > 0 && num_ranks % options.ranks_per_node == 0 && options.num_groups > 0) {
    const int32_t nodes = num_ranks / options.ranks_per_node;
    if (nodes > 1 && options.num_groups % nodes == 0 && experts % options.num_groups == 0) {
      shape.num_nodes = nodes;
      shape.num_groups = options.num_groups;
    }
  }
  return shape;
}

// Slots of each rank: equal but for the remainder, which goes to ranks that hold more now (`held`, [ranks] or empty),
// then in turn from rank `first` on, node by node.
std::vector<int32_t> SlotsOf(const Shape& shape, std::span<const int32_t> held, int32_t first) {
  const int32_t base = shape.slots / shape.num_ranks;
  const int32_t extra = shape.slots % shape.num_ranks;
  const int32_t ranks_per_node = shape.num_ranks / shape.num_nodes;
  std::vector<int32_t> order;
  for (int32_t i = 0; i < shape.num_ranks; ++i) {
    const int32_t turn = (first + i) % shape.num_ranks;
    order.push_back(turn % shape.num_nodes * ranks_per_node + turn / shape.num_nodes);
  }
  if (!held.empty()) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return std::min(held[a], base + 1) > std::min(held[b], base + 1); });
  }
  std::vector<int32_t> slots(shape.num_ranks, base);
  for (int32_t i = 0; i < extra; ++i) ++slots[order[i]];
  return slots;
}

// Nodes for the groups, equally many each, level by load; those that are on a node now stay there if it costs nothing.
std::vector<int32_t> GroupsToNodes(const Shape& shape, std::span<const double> loads, const ExpertHolders* present) {
  PackingProblem problem;
  problem.loads.resize(shape.num_groups);
  for (int32_t e = 0; e < shape.num_experts; ++e) problem.loads[shape.GroupOf(e)] += loads[e];
  problem.slots.assign(shape.num_nodes, shape.num_groups / shape.num_nodes);
  problem.node_of_rank.assign(shape.num_nodes, 0);
  problem.node_of_expert.assign(shape.num_groups, -1);
  ExpertPacking packing(&problem);
  packing.Pack();
  packing.Improve(problem.MeanLoad(), kStepsPerRank * shape.num_nodes);
  if (present != nullptr) {
    std::vector<int64_t> held(static_cast<size_t>(shape.num_nodes) * shape.num_nodes);  // [new, old]
    for (int32_t e = 0; e < shape.num_experts; ++e) {
      const int32_t node = packing.PiecesOf(shape.GroupOf(e))[0].rank;
      for (int32_t rank : (*present)[e]) ++held[node * shape.num_nodes + shape.NodeOf(rank)];
    }
    packing.Relabel(MatchRanks(held, std::vector<int32_t>(shape.num_nodes, 0)));
  }
  std::vector<int32_t> nodes;
  nodes.reserve(static_cast<size_t>(shape.num_groups));
  for (int32_t g = 0; g < shape.num_groups; ++g) nodes.push_back(packing.PiecesOf(g)[0].rank);
  return nodes;
}

// The nodes that the groups are on now, or empty if some group is on none, on several, or nodes have unequal numbers.
std::vector<int32_t> PresentNodes(const Shape& shape, const ExpertHolders& present) {
  std::vector<int32_t> nodes(shape.num_groups, -1);
  for (int32_t e = 0; e < shape.num_experts; ++e) {
    for (int32_t rank : present[e]) {
      int32_t& node = nodes[shape.GroupOf(e)];
      if (node >= 0 && node != shape.NodeOf(rank)) return {};
      node = shape.NodeOf(rank);
    }
  }
  for (int32_t n = -1; n < shape.num_nodes; ++n) {
    const auto expected = n < 0 ? 0 : shape.num_groups / shape.num_nodes;
    if (std::count(nodes.begin(), nodes.end(), n) != expected) return {};
  }
  return nodes;
}

int64_t CopiesOf(const ExpertPacking& packing, const ExpertHolders& present, std::vector<int32_t>* per_rank) {
  int64_t copies = 0;
  for (size_t r = 0; r < per_rank->size(); ++r) {
    int32_t& mine = (*per_rank)[r];
    mine = 0;
    for (int32_t e : packing.ExpertsOf(static_cast<int32_t>(r))) {
      mine += std::find(present[e].begin(), present[e].end(), static_cast<int32_t>(r)) == present[e].end();
    }
    copies += mine;
  }
  return copies;
}

// Gives the contents of ranks to the ranks of the same node and slots that hold most of them now.
void MatchToPresent(const PackingProblem& problem, const ExpertHolders& present, ExpertPacking* packing) {
  const int32_t num_ranks = problem.num_ranks();
  std::vector<int64_t> held(static_cast<size_t>(num_ranks) * num_ranks);  // [new, old]
  for (int32_t e = 0; e < problem.num_experts(); ++e) {
    for (const ExpertPacking::Piece& piece : packing->PiecesOf(e)) {
      for (int32_t rank : present[e]) ++held[piece.rank * num_ranks + rank];
    }
  }
  const int32_t most = *std::max_element(problem.slots.begin(), problem.slots.end()) + 1;
  std::vector<int32_t> kind(num_ranks);
  for (int32_t r = 0; r < num_ranks; ++r) kind[r] = problem.node_of_rank[r] * most + problem.slots[r];
  packing->Relabel(MatchRanks(held, kind));
}

StatusOr<ExpertPlacement> ToPlacement(const PackingProblem& problem, const ExpertPacking& packing) {
  std::vector<std::vector<int32_t>> ranks(problem.num_experts());
  std::vector<std::vector<float>> shares(problem.num_experts());
  for (int32_t e = 0; e < problem.num_experts(); ++e) {
    std::vector<ExpertPacking::Piece> pieces = packing.PiecesOf(e);
    std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    double sum = 0;
    for (const auto& piece : pieces) sum += piece.load;
    for (const auto& piece : pieces) {
      ranks[e].push_back(piece.rank);
      shares[e].push_back(static_cast<float>(sum > 0 ? piece.load / sum : 1.0 / static_cast<double>(pieces.size())));
    }
  }
  return ExpertPlacement::FromShares(std::move(ranks), std::move(shares), problem.num_ranks());
}

StatusOr<LayerPlan> RebalanceLayer(const Shape& shape, std::span<const uint64_t> loads, int32_t first_extra,
                                   double keep_within, const ExpertHolders* present) {
  PackingProblem problem;
  problem.loads.assign(loads.begin(), loads.end());
  if (std::all_of(loads.begin(), loads.end(), [](uint64_t load) { return load == 0; })) {
    problem.loads.assign(loads.size(), 1.0);
  }
  std::vector<int32_t> held;
  if (present != nullptr) {
    held.resize(shape.num_ranks);
    for (const std::vector<int32_t>& ranks : *present) {
      for (int32_t rank : ranks) ++held[rank];
    }
  }
  // With groups on nodes every node needs room for its experts, which the remainder's turn by node sees to.
  problem.slots = SlotsOf(shape, shape.num_nodes > 1 ? std::span<const int32_t>() : held, first_extra);
  for (int32_t r = 0; r < shape.num_ranks; ++r) problem.node_of_rank.push_back(shape.NodeOf(r));
  problem.node_of_expert.assign(shape.num_experts, -1);
  const auto bind = [&](const std::vector<int32_t>& node_of_group, PackingProblem* to) {
    for (int32_t e = 0; e < shape.num_experts; ++e) to->node_of_expert[e] = node_of_group[shape.GroupOf(e)];
  };
  if (shape.num_nodes > 1) bind(GroupsToNodes(shape, problem.loads, present), &problem);

  const double mean = problem.MeanLoad();
  const double least = problem.LeastBusiestLoad();
  ExpertPacking best = BestPacking(problem);
  std::vector<int32_t> copies(shape.num_ranks);
  if (present == nullptr) {
    for (int32_t r = 0; r < shape.num_ranks; ++r) copies[r] = static_cast<int32_t>(best.ExpertsOf(r).size());
  } else {
    MatchToPresent(problem, *present, &best);
    const int64_t best_copies = CopiesOf(best, *present, &copies);
    PackingProblem present_problem = problem;
    if (shape.num_nodes > 1) {
      const std::vector<int32_t> nodes = PresentNodes(shape, *present);
      if (!nodes.empty()) bind(nodes, &present_problem);
    }
    const double goal = best.BusiestLoad() * (1 + keep_within);
    ExpertPacking kept(&present_problem);
    kept.PackLike(*present);
    kept.Improve(goal, kKeptStepsPerRank * shape.num_ranks);
    std::vector<int32_t> kept_copies(shape.num_ranks);
    if (kept.BusiestLoad() <= goal && CopiesOf(kept, *present, &kept_copies) <= best_copies) {
      MOE_ASSIGN_OR_RETURN(ExpertPlacement placement, ToPlacement(present_problem, kept));
      return LayerPlan{std::move(placement), kept.BusiestLoad() / mean, least / mean, std::move(kept_copies)};
    }
  }
  MOE_ASSIGN_OR_RETURN(ExpertPlacement placement, ToPlacement(problem, best));
  return LayerPlan{std::move(placement), best.BusiestLoad() / mean, least / mean, std::move(copies)};
}

Status CheckHolders(const ExpertHolders& holders, size_t num_experts, int num_ranks, size_t layer) {
  if (holders.size() != num_experts) {
    return InvalidError("rebalance: layer ", layer, " has ", num_experts, " experts, but holders of ", holders.size());
  }
  for (const std::vector<int32_t>& ranks : holders) {
    for (int32_t rank : ranks) {
      if (rank < 0 || rank >= num_ranks) {
        return InvalidError("rebalance: layer ", layer, " is held by rank ", rank, " of ", num_ranks);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<LayerPlan>> RebalanceExperts(std::span<const std::vector<uint64_t>> loads, int num_ranks,
                                                  const RebalanceOptions& options,
                                                  std::span<const ExpertHolders> present) {
  if (!present.empty() && present.size() != loads.size()) {
    return InvalidError("rebalance: loads of ", loads.size(), " layers, holders of ", present.size());
  }
  std::vector<LayerPlan> plans;
  int32_t first_extra = 0;  // the remainders of the layers go round, so that ranks need the same memory
  for (size_t l = 0; l < loads.size(); ++l) {
    MOE_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(loads[l].size(), num_ranks, options));
    if (!present.empty()) MOE_RETURN_IF_ERROR(CheckHolders(present[l], loads[l].size(), num_ranks, l));
    MOE_ASSIGN_OR_RETURN(LayerPlan plan, RebalanceLayer(shape, loads[l], first_extra, options.keep_within,
                                                        present.empty() ? nullptr : &present[l]));
    plans.push_back(std::move(plan));
    first_extra = (first_extra + shape.slots) % num_ranks;
  }
  return plans;
}

double ExpectedImbalance(const ExpertPlacement& placement, std::span<const uint64_t> loads) {
  std::vector<double> ranks(placement.num_ranks());
  double total = 0;
  for (size_t e = 0; e < loads.size(); ++e) {
    const auto holders = placement.RanksOf(static_cast<int64_t>(e));
    const auto shares = placement.SharesOf(static_cast<int64_t>(e));
    for (size_t i = 0; i < holders.size(); ++i) ranks[holders[i]] += static_cast<double>(loads[e]) * shares[i];
    total += static_cast<double>(loads[e]);
  }
  return total > 0 ? *std::max_element(ranks.begin(), ranks.end()) * placement.num_ranks() / total : 1;
}

ExpertHolders HoldersOf(const ExpertPlacement& placement) {
  ExpertHolders holders;
  for (int64_t e = 0; e < placement.num_experts(); ++e) {
    const auto ranks = placement.RanksOf(e);
    holders.emplace_back(ranks.begin(), ranks.end());
  }
  return holders;
}

}  // namespace moe
