// Drafter: the guesses of one sequence and how often they come true. Every drawn token is held against the guess for
// its position, whether a step computed that guess or not: so what guessing would bring is known while it is off, and
// it costs nothing until it pays.
#ifndef MOE_ENGINE_SCHEDULE_DRAFTER_H_
#define MOE_ENGINE_SCHEDULE_DRAFTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/ngram_proposer.h"

namespace moe {

class Drafter {
 public:
  Drafter(int64_t min_n, int64_t max_n) : proposer_(min_n, max_n) {}

  // The tokens that may follow `tokens`, at most `count`. Valid until the next call.
  std::span<const int32_t> Guess(std::span<const int32_t> tokens, int64_t count);
  // The next token was drawn. REQUIRES: once for each token behind those of the last Guess, in order.
  void Observe(int32_t token);

  // The chance that the first `count` guesses are all true. Text repeats itself in stretches, so a guess after one that
  // came true and a guess after one that did not are counted apart.
  double ChanceOfAll(int64_t count) const;

 private:
  // A frequency that forgets: the last dozen cases count.
  class Rate {
   public:
    Rate(double prior, double weight) : hits_(prior * weight), cases_(weight) {}
    void Add(bool hit);
    double value() const { return hits_ / cases_; }

   private:
    double hits_;
    double cases_;
  };

  NgramProposer proposer_;
  std::vector<int32_t> guess_;
  size_t observed_ = 0;  // guesses held against a token since the last Guess; past a false one none is
  bool last_came_true_ = false;
  // Both begin low: a sequence has to show that it repeats itself.
  Rate after_hit_{0.5, 2};
  Rate after_miss_{0.1, 4};
};

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_DRAFTER_H_
