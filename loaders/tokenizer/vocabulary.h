// Tokens and their ids, both ways.
#ifndef MOE_LOADERS_TOKENIZER_VOCABULARY_H_
#define MOE_LOADERS_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace moe {

class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  // Returns false, and adds nothing, when the id is taken. A token that is there already gets the new id for Find().
  // REQUIRES: 0 <= id <= kMaxTokenId.
  bool Add(std::string_view token, int32_t id);

  int32_t Find(std::string_view token) const;                            // kNone: not a token
  const std::string* TokenOrNull(int32_t id) const;                      // null: no such id
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  // Highest id + 1.

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
  std::vector<bool> used_;  // Ids may have gaps.
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_VOCABULARY_H_
