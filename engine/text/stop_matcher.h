// StopMatcher: finds the first stop string in text that arrives in pieces, holding back only what could still become one.
#ifndef MOE_ENGINE_TEXT_STOP_MATCHER_H_
#define MOE_ENGINE_TEXT_STOP_MATCHER_H_

#include <string>
#include <string_view>
#include <vector>

namespace moe {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Result {
    std::string text;     // safe to send now
    bool matched = false;
    std::string match;    // the stop string found; text ends right before it
  };
  // The earliest start wins; of equal starts the one that completes first. After a match nothing more is returned.
  Result Push(std::string_view piece);
  // No more text: what was held back.
  std::string Finish();

 private:
  std::vector<std::string> stops_;
  std::string held_;  // a suffix of what came that is a proper prefix of some stop string
  bool done_ = false;
};

}  // namespace moe

#endif  // MOE_ENGINE_TEXT_STOP_MATCHER_H_
