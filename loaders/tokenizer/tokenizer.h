// Text to token ids and back, as a model's tokenizer.json says, or the vocabulary file of a model that has none. Equal,
// id by id and byte by byte, to what the reference implementation (the `tokenizers` library, SentencePiece or tiktoken)
// gives for the same file.
#ifndef MOE_LOADERS_TOKENIZER_TOKENIZER_H_
#define MOE_LOADERS_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "parallel/base/status.h"

namespace moe {

class TokenDecoder;
class Trust;
struct TextRange;

struct EncodeOptions {
  bool add_special_tokens = true;  // Run the post-processor: begin-of-text and the like.
  // False: text that spells a special token is encoded as ordinary text. For content from outside.
  bool recognize_special = true;
};

// A checkpoint's files where it has no tokenizer.json. Empty: not there.
struct VocabularyFile {
  std::string_view name;               // For messages, and to tell the families' formats apart: "hy.tiktoken".
  std::string_view bytes;              // A SentencePiece model, or tiktoken's lines of token and rank.
  std::string_view config_json;        // tokenizer_config.json
  std::string_view added_tokens_json;  // added_tokens.json
  std::string_view family;             // As in ModelSpec: what a tokenizer_config.json that is not there would say.
  int32_t vocab_size;                  // The model's. Tokens that nobody names are left out from here on.
};

// Immutable once created; every method may be called from several threads at once.
class Tokenizer {
 public:
  // A part of a text. Special tokens are found only where all their bytes have `recognize_special`: those of a chat
  // template count, those that a message spells do not.
  struct Span {
    std::string_view text;
    bool recognize_special;
  };

  // `json`: the bytes of tokenizer.json. `config_json`: those of tokenizer_config.json, or empty.
  // INVALID, UNSUPPORTED or CORRUPT; the message names the file and the field.
  static StatusOr<std::unique_ptr<Tokenizer>> Create(std::string_view json, std::string_view config_json);
  static StatusOr<std::unique_ptr<Tokenizer>> Create(const VocabularyFile& file);
  ~Tokenizer();

  // INVALID for text that is not UTF-8. RESOURCE_EXHAUSTED where the tokenizer's own pattern would take too long on it.
  StatusOr<std::vector<int32_t>> Encode(std::string_view text, const EncodeOptions& options) const;

  // Encodes the spans as the one text that they form: cutting ordinary text into spans changes nothing. One exception:
  // a special token that is searched for in *normalised* text (no known model has one) ends the text before it and
  // begins a new one behind it where spans of both kinds meet without a token between them.
  StatusOr<std::vector<int32_t>> EncodeSpans(std::span<const Span> spans, bool add_special_tokens) const;

  // Bytes that are not UTF-8 become U+FFFD as in the reference. Ids that are not in the vocabulary give nothing.
  std::string Decode(std::span<const int32_t> ids, bool keep_special) const;

  int32_t vocab_size() const { return static_cast<int32_t>(entries_.size()); }  // Highest id + 1. Ids may have gaps.
  bool IsValidId(int32_t id) const { return id >= 0 && id < vocab_size() && entries_[static_cast<size_t>(id)].valid; }
  bool IsSpecial(int32_t id) const { return IsValidId(id) && entries_[static_cast<size_t>(id)].special; }
  std::optional<int32_t> TokenToId(std::string_view token) const;
  // As spelled in the vocabulary ("Ġthe", "<0x0A>"). Empty for an id that is not valid.
  const std::string& IdToToken(int32_t id) const;

  // From tokenizer_config.json; empty where it names none.
  const std::string& bos_token() const { return SpecialToken("bos_token"); }
  const std::string& eos_token() const { return SpecialToken("eos_token"); }
  const std::string& unk_token() const { return SpecialToken("unk_token"); }
  const std::string& pad_token() const { return SpecialToken("pad_token"); }
  // Every "…_token" of tokenizer_config.json that is text: what a chat template may refer to.
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

  // For IncrementalDetokenizer.
  const TokenDecoder& decoder() const;
  // What the decoder sees for an id. REQUIRES: IsValidId(id).
  const std::string& DecodingToken(int32_t id) const;

 private:
  struct Entry {
    std::string token;
    std::string decoding_token;  // Empty unless it differs from `token`.
    bool valid = false;
    bool special = false;
  };
  struct Parts;

  Tokenizer();
  Status ReadTokenizer(std::string_view json);
  Status ReadSentencePiece(const VocabularyFile& file, const nlohmann::json& config);
  Status ReadTiktoken(const VocabularyFile& file, const nlohmann::json& config);
  Status ReadConfig(const nlohmann::json& config);
  // What add_bos_token and add_eos_token of tokenizer_config.json ask for.
  Status ReadBosAndEos(const nlohmann::json& config);
  // `where`: the place of the added tokens, for messages. `may_shadow`: one may spell a token of the vocabulary and yet
  // have another id.
  Status FillEntries(std::string_view where, bool may_shadow);
  Status CheckPostProcessor() const;
  const std::string& SpecialToken(const std::string& name) const;

  Status EncodeText(std::string_view text, const Trust& trust, std::vector<int32_t>* ids) const;
  // A part of `text` without added tokens of the raw kind.
  Status EncodeSegment(std::string_view text, TextRange range, const Trust& trust, std::vector<int32_t>* ids) const;
  // Normalised text. `trusted`: special tokens count.
  Status EncodeNormalized(std::string text, bool trusted, bool at_text_start, std::vector<int32_t>* ids) const;

  std::unique_ptr<Parts> parts_;
  std::vector<Entry> entries_;  // By id.
  std::map<std::string, std::string> special_tokens_;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_TOKENIZER_H_
