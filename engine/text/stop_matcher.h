// StopMatcher: finds the first stop string in text that arrives in pieces, holding back only what could still become
// one.
//
// The answer depends on the text alone, never on where it was cut: among all occurrences the earliest start wins; of
// equal starts the one that completes first. So a complete occurrence waits while a longer stop string that began
// before it may still complete. One pass over the text (Aho and Corasick's automaton), independent of the number of
// stop strings.
#ifndef MOE_ENGINE_TEXT_STOP_MATCHER_H_
#define MOE_ENGINE_TEXT_STOP_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(const std::vector<std::string>& stops);

  struct Result {
    std::string text;  // safe to send now
    bool matched = false;
    std::string match;  // the stop string found; text ends right before it
  };
  // After a match nothing more is returned. `look` false: an occurrence that ends in this piece does not count (one
  // that begins in it may).
  Result Push(std::string_view piece, bool look = true);
  // No more text: what was held back, up to a match that was waiting.
  Result Finish();

 private:
  // A prefix of at least one stop string.
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t fail = 0;     // the longest proper suffix that is a node
    int32_t depth = 0;    // bytes
    int32_t longest = 0;  // length of the longest stop string that ends here; 0: none
    unsigned char byte = 0;
  };

  int32_t Child(int32_t node, unsigned char byte) const;
  Result TakeMatch();

  std::vector<Node> nodes_;  // [0] is the empty prefix
  std::string held_;   // text that has not been returned: from the earliest start that may still become a stop string
  int32_t state_ = 0;  // the longest suffix of the text that is a node
  size_t best_start_ = std::string::npos;  // of the best occurrence so far, in held_
  size_t best_length_ = 0;
  bool done_ = false;
};

}  // namespace moe

#endif  // MOE_ENGINE_TEXT_STOP_MATCHER_H_
