// ToyRanks: a RankLink whose "model" makes every mistake of the scheduler visible. The cache entry of position p is a
// hash of all tokens up to p; a slice checks the entries below it, so a block that was freed too soon, shared wrongly
// or never filled is noticed. The next token depends on a hash of all tokens, the seed and the choice, so a lost,
// doubled or reordered token changes everything after it; with some seeds it mostly repeats what stood a few tokens
// before, so that guesses come true.
#ifndef MOE_TESTS_ENGINE_CORE_TOY_RANKS_H_
#define MOE_TESTS_ENGINE_CORE_TOY_RANKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/core/rank_link.h"
#include "engine/schedule/scheduler.h"

namespace moe::toy {

inline constexpr int32_t kVocab = 50;
inline constexpr int64_t kLayers = 2;  // of experts
inline constexpr int64_t kTopK = 2;
inline constexpr int64_t kExperts = 8;

uint64_t Hash(uint64_t h, uint64_t x);
// The hash of tokens[0, count).
uint64_t PrefixHash(const std::vector<int32_t>& tokens, int64_t count);
int32_t NextToken(const std::vector<int32_t>& tokens, uint64_t seed, uint32_t choice);
// What the model says about the token at a position of the prompt.
float PromptLogprob(const std::vector<int32_t>& tokens, int64_t position);
// [kLayers, kTopK] of a position.
std::vector<int32_t> Experts(const std::vector<int32_t>& tokens, int64_t position);

// The tokens of a choice when nothing disturbs it, and why it ends.
struct Undisturbed {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::kNone;
};
Undisturbed RunAlone(const Request& request, uint32_t choice, int64_t max_model_len);

// One rank. A step has two halves, as a real one has: Begin does what comes before the first exchange and leaves
// garbage where the slices will write; Finish computes. A step that is abandoned in between, or behind Finish, is taken
// back with Undo, or all is forgotten.
class ToyRank {
 public:
  struct Rows {
    int64_t decoding = 0;
    int64_t others = 0;
  };

  // `mistakes` outlives this; ten are noted at most.
  ToyRank(const SchedulerOptions& options, std::vector<std::string>* mistakes);

  Rows Begin(const RankPlan& plan);
  RankResult Finish(const RankPlan& plan);
  void Undo();    // RankWorker::UndoStep
  void Forget();  // RankWorker::ForgetSequences; and caches hold garbage

  void Mistake(const std::string& what) const;
  int64_t guesses() const { return guesses_; }
  int64_t accepted() const { return accepted_; }

 private:
  struct Known {
    SequenceInit init;
    int64_t computed = 0;
    bool fresh = true;     // no slice yet: a cached prefix may stand before the first one
    bool replays = false;  // its last slice with guesses was taken back
    std::vector<int32_t> blocks;
  };
  struct State {
    uint64_t hash = 0;
    int64_t position = 0;
  };
  // What Begin and Finish change of a sequence.
  struct Before {
    SequenceId id = 0;
    size_t tokens = 0;
    int64_t computed = 0;
    bool fresh = true;
    bool replays = false;
  };

  SliceResult RunSlice(const SlicePlan& slice);

  const SchedulerOptions options_;
  std::vector<std::string>* const mistakes_;
  std::map<SequenceId, Known> known_;
  std::vector<std::vector<uint64_t>> cache_;  // [blocks][kKvBlockTokens]
  std::vector<State> states_;                 // by slot
  std::vector<State> snapshots_;              // by snapshot slot
  std::vector<Before> undo_;
  int64_t guesses_ = 0;
  int64_t accepted_ = 0;
};

class ToyRanks : public RankLink {
 public:
  explicit ToyRanks(const SchedulerOptions& options);

  int num_ranks() const override { return options_.num_ranks; }
  StatusOr<StepResult> Step(const StepPlan& plan) override;
  void Rebalance(const std::vector<std::vector<uint64_t>>&, int64_t, std::function<void(const Status&)> done) override {
    done(absl::OkStatus());
  }
  std::shared_ptr<const std::vector<ExpertPlacement>> Placements() const override {
    return std::make_shared<const std::vector<ExpertPlacement>>();
  }

  std::function<Status()> during_step;  // messages that come while a step runs; an error fails it
  std::function<void(const StepPlan&)> on_plan;
  std::function<void(StepResult&)> on_result;
  const std::vector<std::string>& mistakes() const { return mistakes_; }
  int64_t steps() const { return steps_; }
  int64_t guesses() const;
  int64_t accepted() const;

 private:
  SchedulerOptions options_;
  std::vector<std::string> mistakes_;
  std::vector<ToyRank> ranks_;
  int64_t steps_ = 0;
};

// What a whole step must be like; "" or what is wrong.
std::string CheckRows(const SchedulerOptions& options, const ToyRank::Rows& rows);

}  // namespace moe::toy

#endif  // MOE_TESTS_ENGINE_CORE_TOY_RANKS_H_
