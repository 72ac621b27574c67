#include "engine/schedule/drafter.h"

#include <cmath>

namespace moe {
namespace {

constexpr double kKeep = 0.92;  // of the older cases with each new one

}  // namespace

void Drafter::Rate::Add(bool hit) {
  hits_ = kKeep * hits_ + (hit ? 1 : 0);
  cases_ = kKeep * cases_ + 1;
}

std::span<const int32_t> Drafter::Guess(std::span<const int32_t> tokens, int64_t count) {
  // One more than asked for: the token behind the last accepted guess is held against something too.
  proposer_.Propose(tokens, count + 1, &guess_);
  observed_ = 0;
  return std::span<const int32_t>(guess_).first(guess_.empty() ? 0 : static_cast<size_t>(count));
}

void Drafter::Observe(int32_t token) {
  if (observed_ >= guess_.size()) {
    last_came_true_ = false;  // nothing was said about it
    return;
  }
  const bool hit = guess_[observed_] == token;
  (last_came_true_ ? after_hit_ : after_miss_).Add(hit);
  last_came_true_ = hit;
  observed_ = hit ? observed_ + 1 : guess_.size();
}

double Drafter::ChanceOfAll(int64_t count) const {
  if (count < 1) return 1;
  const double first = (last_came_true_ ? after_hit_ : after_miss_).value();
  return first * std::pow(after_hit_.value(), static_cast<double>(count - 1));
}

}  // namespace moe
