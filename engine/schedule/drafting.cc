// Scheduler's fourth part: which decoding sequences compute guesses of their next tokens, and how many.
//
// A step of R rows gives N tokens at the cost C(R). k guesses of one sequence add k rows and p1 + p1 p2 + … + p1…pk
// tokens, where p1…pj is the chance that the first j are all true. The k that makes tokens over cost largest is taken,
// if it gains enough; so guessing stops by itself for sequences whose guesses are false and in steps where rows are
// dear: with few rows each one reads experts of its own, with very many each one costs its arithmetic.
#include <algorithm>

#include "engine/device/ops.h"
#include "engine/schedule/check_request.h"
#include "engine/schedule/scheduler.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

// Tokens over cost has to grow by this much: estimates are rough, and a step without guesses is sure.
constexpr double kLeastGain = 1.05;

}  // namespace

int64_t Scheduler::DraftLimit(const Sequence& s) const {
  // The token after the last guess is still one of the request's.
  const int64_t end = s.prompt_len + EffectiveMaxNewTokens(*s.request, options_.max_model_len);
  const int64_t wanted = std::min(options_.speculation.tokens, end - s.known() - 1);
  // Only blocks that nobody is about to need: one for each running sequence stays.
  const Rank& rank = ranks_[s.rank];
  const int64_t blocks =
      static_cast<int64_t>(s.blocks.size()) + std::max<int64_t>(rank.blocks.available() - rank.running, 0);
  return std::min(wanted, blocks * kKvBlockTokens - s.known());
}

std::span<const int32_t> Scheduler::GuessFor(Sequence& s, int64_t limit) {
  // Made here, for its text so far; from then on it is told every token.
  if (s.drafter == nullptr) {
    s.drafter = std::make_unique<Drafter>(options_.speculation.ngram_min, options_.speculation.ngram_max);
  }
  return s.drafter->Guess(s.tokens, std::max<int64_t>(limit, 0));
}

void Scheduler::PlanDrafts() {
  const SpeculationOptions& speculation = options_.speculation;
  int64_t rows = planned_tokens_;
  double tokens = 0;
  for (Rank& rank : ranks_) rank.drafted = 0;
  for (const Sequence* s : running_) tokens += s->planned > 0 && s->num_computed + s->planned == s->known() ? 1 : 0;

  for (Sequence* s : running_) {
    // One that has come back in this step counts as a prompt still.
    if (!s->decoding() || s->planned == 0 || !s->announced) continue;
    Rank& rank = ranks_[s->rank];
    const int64_t limit = std::min(DraftLimit(*s), options_.max_num_batched_tokens - rows);
    // Also where none can be computed now: how often they come true is worth knowing.
    const std::span<const int32_t> guess = GuessFor(*s, limit);
    // After a slice that was taken back the next one goes without, or there would be ever more to replay.
    if (s->replay > 0 || (speculation.rolls_back && rank.drafted >= speculation.slices_per_rank)) continue;
    double best = kLeastGain * tokens / speculation.cost(rows);
    int64_t best_count = 0;
    double best_tokens = 0;
    double expected = 0;
    for (int64_t k = 1; k <= static_cast<int64_t>(guess.size()); ++k) {
      const double all_true = s->drafter->ChanceOfAll(k);
      expected += all_true;
      double cost = speculation.cost(rows + k);
      if (speculation.rolls_back) {
        // The accepted ones once more, beside the next step's rows.
        const auto again = static_cast<int64_t>(expected) + 1;
        cost += (1 - all_true) * (speculation.cost(rows + again) - speculation.cost(rows));
      }
      if (const double gain = (tokens + expected) / cost; gain > best) {
        best = gain;
        best_count = k;
        best_tokens = expected;
      }
    }
    if (best_count == 0) continue;
    s->draft.assign(guess.begin(), guess.begin() + best_count);
    const int64_t end = s->known() + best_count;
    for (auto b = static_cast<int64_t>(s->blocks.size()); b < BlocksFor(end); ++b) {
      s->blocks.push_back(rank.blocks.Allocate());
    }
    s->planned += best_count;
    planned_tokens_ += best_count;
    rows += best_count;
    tokens += best_tokens;
    ++rank.drafted;
  }
}

void Scheduler::Accept(SequenceId id, int64_t guesses) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;  // removed while the step ran
  Sequence& s = *it->second;
  MOE_CHECK(guesses >= 0 && guesses <= static_cast<int64_t>(s.draft.size()))
      << guesses << " of " << s.draft.size() << " guesses";
  s.accepted = guesses;
}

void Scheduler::CommitDraft(Sequence& s) {
  const auto drafted = static_cast<int64_t>(s.draft.size());
  const int64_t known_rows = s.planned - drafted;
  for (int64_t i = 0; i < s.accepted; ++i) {
    s.tokens.push_back(s.draft[static_cast<size_t>(i)]);
    s.drafter->Observe(s.tokens.back());
  }
  if (options_.speculation.rolls_back && s.accepted < drafted) {
    s.replay = known_rows + s.accepted;
  } else {
    s.num_computed += known_rows + s.accepted;
  }
  guesses_proposed_ += static_cast<uint64_t>(drafted);
  guesses_accepted_ += static_cast<uint64_t>(s.accepted);
  s.draft.clear();
  s.accepted = 0;
}

}  // namespace moe
