// The `added_tokens` of a tokenizer.json: strings that are found in the text as a whole, before the model sees it.
//
// A *special* token (a control token: end of turn, tool call, …) is found only where all bytes of the match are
// trusted, so that text from outside cannot act as the chat template does.
#ifndef MOE_LOADERS_TOKENIZER_ADDED_VOCABULARY_H_
#define MOE_LOADERS_TOKENIZER_ADDED_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loaders/tokenizer/byte_trie.h"
#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/normalizer.h"
#include "loaders/tokenizer/text_range.h"
#include "parallel/base/status.h"

namespace moe {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string match_text;    // What is searched for: the content, or its normalised form.
  bool single_word = false;  // Only between characters that are not part of words.
  bool lstrip = false;       // Takes the white space before it.
  bool rstrip = false;       // Takes the white space behind it.
  bool normalized = true;    // Searched for in the normalised text.
  bool special = false;
};

// A part of a text: one added token, or (token null) text between them.
struct AddedSplit {
  TextRange range;
  const AddedToken* token;
};

// Which bytes of a text are untrusted: ascending ranges that do not touch.
class Trust {
 public:
  explicit Trust(std::vector<TextRange> untrusted) : untrusted_(std::move(untrusted)) {}
  // All of a text of `size` bytes is trusted, or nothing of it.
  static Trust All(bool trusted, size_t size);

  bool AllTrusted(TextRange range) const;
  bool AllUntrusted(TextRange range) const;
  const std::vector<TextRange>& untrusted() const { return untrusted_; }

 private:
  std::vector<TextRange> untrusted_;
};

class AddedVocabulary {
 public:
  // `list` may be null (no added tokens). INVALID for two tokens with one id or one content.
  static StatusOr<AddedVocabulary> Create(const Json* list, std::string_view where);

  // To be called once, before the searches. `normalizer` may be null.
  Status Prepare(const Normalizer* normalizer);

  // Cuts `text` at the tokens that are searched for in raw text, and in normalised text. Covers all of `text`, in
  // order, with no empty part; where one token takes white space that the next begins with, the two overlap.
  std::vector<AddedSplit> SplitRaw(std::string_view text, const Trust& trust) const;
  std::vector<AddedSplit> SplitNormalized(std::string_view text, const Trust& trust) const;

  const AddedToken* FindByContent(std::string_view content) const;
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  std::vector<AddedSplit> Split(const ByteTrie& trie, std::string_view text, const Trust& trust) const;
  const AddedToken* LongestAt(const ByteTrie& trie, std::string_view text, size_t begin, const Trust& trust) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> by_content_;  // Index into tokens_.
  ByteTrie raw_;                                        // Values are indices into tokens_.
  ByteTrie normalized_;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_ADDED_VOCABULARY_H_
