// The added tokens of a tokenizer that has no tokenizer.json: those that the vocabulary file itself marks, then what
// tokenizer_config.json and, from before it, added_tokens.json say.
#ifndef MOE_LOADERS_TOKENIZER_CONFIG_TOKENS_H_
#define MOE_LOADERS_TOKENIZER_CONFIG_TOKENS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "loaders/tokenizer/added_vocabulary.h"
#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/token_model.h"
#include "parallel/base/status.h"

namespace moe {

inline constexpr std::string_view kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr std::string_view kAddedTokensFile = "added_tokens.json";

class ConfigTokens {
 public:
  // From the vocabulary file, or by its layout.
  void Add(int32_t id, std::string content, bool special);
  bool Has(int32_t id) const { return by_id_.count(id) > 0; }

  // The ids that the two files name: they replace tokens of the same id. `added_tokens_json` may be empty, and is read
  // only if `config` has no added_tokens_decoder.
  Status ReadIds(const Json& config, std::string_view added_tokens_json);

  // The tokens that `config` names without an id ("bos_token", "additional_special_tokens"): special where they are
  // known. Those that are not are given the ids from `next_id` on, as in the reference, and are left out from `limit`
  // on: the model knows no such id. `find`: the id of a token of the vocabulary file, or Vocabulary::kNone.
  Status ReadNames(const Json& config, const std::function<int32_t(std::string_view)>& find, int32_t next_id,
                   int32_t limit);

  // Content by id. For an id of the vocabulary file: what it is called instead.
  const std::string* ContentOrNull(int32_t id) const;
  int32_t highest_id() const { return by_id_.empty() ? -1 : by_id_.rbegin()->first; }

  SpecialIds special_ids() const;
  // All are searched for in raw text.
  StatusOr<AddedVocabulary> Finish(std::string_view where) const;

 private:
  std::map<int32_t, Json> by_id_;  // As in the added_tokens of a tokenizer.json.
};

// "bos_token" and the like: the text, or empty. INVALID where it is neither text, nor an object with `content`.
StatusOr<std::string> NamedToken(const Json& config, std::string_view name);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_CONFIG_TOKENS_H_
