#include "engine/core/rank_roster.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/core/balanced_placements.h"
#include "parallel/base/check.h"
#include "parallel/rebalance.h"

namespace moe {
namespace {

// Rows noted so often count half from then on: the routing of some thousand steps ago says little.
constexpr uint64_t kHalfLife = 4096;

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

Status CheckTerms(const RankTerms& terms, const RankHello& hello) {
  if (hello.build != terms.build) {
    return absl::FailedPreconditionError(
        Cat("this rank is of build ", hello.build, ", the others are of ", terms.build));
  }
  if (hello.checkpoint != terms.checkpoint) {
    return absl::FailedPreconditionError(
        Cat("this rank has the checkpoint ", hello.checkpoint, ", the others have ", terms.checkpoint));
  }
  if (std::find(hello.backends.begin(), hello.backends.end(), terms.backend) == hello.backends.end()) {
    return absl::FailedPreconditionError(Cat("this rank's processor can run ", Joined(hello.backends),
                                             ", the others run ", terms.backend,
                                             "; --cpu-isa of the front chooses for all"));
  }
  return absl::OkStatus();
}

}  // namespace

ExpertLists GroupPlan::ExpertsOf(int member) const {
  ExpertLists lists;
  for (const ExpertPlacement& layer : placements) lists.push_back(layer.ExpertsOf(member));
  return lists;
}

RankRoster::RankRoster(const ModelSpec& spec, RankTerms terms, int num_slots)
    : terms_(std::move(terms)), places_(num_slots) {
  MOE_CHECK(num_slots > 0);
  for (int64_t l : spec.MoeLayers()) {
    experts_.push_back(std::get<MoeSpec>(spec.layers[l].ffn).num_experts);
    loads_.emplace_back(experts_.back());
  }
}

int RankRoster::Count(RankPlace::State state) const {
  return static_cast<int>(
      std::count_if(places_.begin(), places_.end(), [&](const RankPlace& p) { return p.state == state; }));
}

int RankRoster::SlotOf(RankTransport::LinkId link) const {
  for (size_t s = 0; s < places_.size(); ++s) {
    if (places_[s].state != RankPlace::State::kEmpty && places_[s].link == link) return static_cast<int>(s);
  }
  return -1;
}

std::vector<int> RankRoster::SlotsIn(RankPlace::State a, RankPlace::State b) const {
  std::vector<int> slots;
  for (size_t s = 0; s < places_.size(); ++s) {
    if (places_[s].state == a || places_[s].state == b) slots.push_back(static_cast<int>(s));
  }
  return slots;
}

StatusOr<int> RankRoster::Admit(RankTransport::LinkId link, const RankHello& hello) {
  MOE_RETURN_IF_ERROR(CheckTerms(terms_, hello));
  int slot = -1;
  std::vector<int> all;
  for (int s = 0; s < num_slots(); ++s) {
    all.push_back(s);
    if (slot < 0 && places_[s].state == RankPlace::State::kEmpty) slot = s;
  }
  if (slot < 0) {
    return absl::FailedPreconditionError(
        Cat("all ", num_slots(), " ranks are there (--expert-parallel-size of the front)"));
  }
  // An equal part, as if all slots were taken: what it has to hold beyond that it is asked for when a group is formed,
  // if it has memory for it.
  std::vector<ExpertPlacement> placements;
  if (Count(RankPlace::State::kMember) == 0) {
    for (int64_t experts : experts_) placements.push_back(ExpertPlacement::Linear(experts, num_slots()));
  } else {
    MOE_ASSIGN_OR_RETURN(GroupPlan plan, Plan(std::move(all), 0, true));
    placements = std::move(plan.placements);
  }
  RankPlace& place = places_[slot];
  place = {.state = RankPlace::State::kLoading, .link = link, .host = hello.host};
  for (const ExpertPlacement& layer : placements) place.held.push_back(layer.ExpertsOf(slot));
  return slot;
}

StatusOr<GroupPlan> RankRoster::Plan(std::vector<int> slots, int64_t redundant, bool keep) const {
  return Plan(std::move(slots), redundant, keep, loads_);
}

StatusOr<GroupPlan> RankRoster::Plan(std::vector<int> slots, int64_t redundant, bool keep,
                                     const std::vector<std::vector<uint64_t>>& loads) const {
  GroupPlan group;
  group.slots = std::move(slots);
  if (experts_.empty()) return group;
  const auto size = static_cast<int64_t>(group.slots.size());
  std::vector<ExpertHolders> holders;
  for (size_t l = 0; l < experts_.size(); ++l) {
    ExpertHolders& layer = holders.emplace_back(experts_[l]);
    for (int64_t member = 0; member < size; ++member) {
      const ExpertLists& held = places_[group.slots[member]].held;
      if (l >= held.size()) continue;
      for (int32_t expert : held[l]) layer[expert].push_back(static_cast<int32_t>(member));
    }
  }
  RebalanceOptions options = RedundancyOptions(std::min(redundant, experts_[0] * (size - 1)), experts_[0]);
  if (keep) options.keep_within = std::numeric_limits<double>::infinity();
  MOE_ASSIGN_OR_RETURN(std::vector<LayerPlan> layers,
                       RebalanceExperts(loads, static_cast<int>(size), options, holders));
  for (LayerPlan& layer : layers) group.placements.push_back(std::move(layer.placement));
  return group;
}

void RankRoster::NoteLoad(const std::vector<int64_t>& expert_tokens) {
  size_t total = 0;
  for (const auto& layer : loads_) total += layer.size();
  if (expert_tokens.size() != total) return;
  size_t at = 0;
  const bool halve = ++noted_ % kHalfLife == 0;
  for (auto& layer : loads_) {
    for (uint64_t& rows : layer) {
      if (halve) rows /= 2;
      rows += static_cast<uint64_t>(std::max<int64_t>(expert_tokens[at++], 0));
    }
  }
}

std::vector<ExpertPlacement> OverSlots(const GroupPlan& plan, int num_slots) {
  std::vector<ExpertPlacement> placements;
  for (const ExpertPlacement& layer : plan.placements) {
    std::vector<std::vector<int32_t>> ranks;
    std::vector<std::vector<float>> shares;
    for (int64_t e = 0; e < layer.num_experts(); ++e) {
      const auto members = layer.RanksOf(e);
      const auto parts = layer.SharesOf(e);
      std::vector<int32_t>& slots = ranks.emplace_back();
      for (int32_t member : members) slots.push_back(plan.slots[member]);
      shares.emplace_back(parts.begin(), parts.end());
    }
    StatusOr<ExpertPlacement> over = ExpertPlacement::FromShares(std::move(ranks), std::move(shares), num_slots);
    MOE_CHECK(over.ok()) << over.status().ToString();
    placements.push_back(*std::move(over));
  }
  return placements;
}

}  // namespace moe
