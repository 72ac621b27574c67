// Building a Tokenizer from a tiktoken file. Such a file has the tokens only: how text is cut, which special tokens
// there are and where their ids begin is written in the tokenizer class that the family publishes, and here.
#include <algorithm>
#include <string>
#include <utility>

#include "loaders/tokenizer/bpe.h"
#include "loaders/tokenizer/byte_alphabet.h"
#include "loaders/tokenizer/config_tokens.h"
#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/tiktoken_file.h"
#include "loaders/tokenizer/tokenizer.h"
#include "loaders/tokenizer/tokenizer_parts.h"
#include "loaders/tokenizer/unicode.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

// Runs of Chinese characters stand for themselves; words break where a capital follows a small letter.
constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// GPT-4's, with digits one by one.
constexpr std::string_view kSingleDigitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
// GPT-4's: what transformers takes where no class says anything else.
constexpr std::string_view kDefaultPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";

struct Layout {
  const char* tokenizer_class;
  const char* file = nullptr;  // Means this layout where no class is named.
  std::string_view pattern;
  bool nfc = false;
  bool counts_lines = false;      // See ParseTiktokenFile.
  bool bounds_pieces = false;     // See PieceBound.
  bool adds_bos_and_eos = false;  // If tokenizer_config.json asks for it.
  // The ids behind the last token of the file: these, then "<|extra_0|>" and so on,
  std::vector<const char*> special_tokens = {};
  int num_extra = 0;
  // or as many that tokenizer_config.json names, else "<|reserved_token_ID|>". -1: up to the last that it names.
  int num_reserved = 0;
};

const std::vector<Layout>& Layouts() {
  static const auto* layouts = new std::vector<Layout>{
      // Kimi, Moonlight
      {.tokenizer_class = "TikTokenTokenizer", .pattern = kKimiPattern, .bounds_pieces = true, .num_reserved = 258},
      // Hunyuan
      {.tokenizer_class = "HYTokenizer",
       .file = "hy.tiktoken",
       .pattern = kSingleDigitPattern,
       .nfc = true,
       .counts_lines = true,
       .special_tokens = {"<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"},
       .num_extra = 205},
      // Qwen
      {.tokenizer_class = "QWenTokenizer",
       .file = "qwen.tiktoken",
       .pattern = kSingleDigitPattern,
       .nfc = true,
       .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
       .num_extra = 205},
      // What transformers makes of a tiktoken file on its own.
      {.tokenizer_class = "TokenizersBackend",
       .pattern = kDefaultPattern,
       .adds_bos_and_eos = true,
       .num_reserved = -1},
      {.tokenizer_class = "PreTrainedTokenizerFast",
       .pattern = kDefaultPattern,
       .adds_bos_and_eos = true,
       .num_reserved = -1},
  };
  return *layouts;
}

// tokenizer_class, or the class in {"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]}}.
StatusOr<std::string> TokenizerClass(const Json& config) {
  MOE_ASSIGN_OR_RETURN(std::string name, StringOr(config, "tokenizer_class", "", kTokenizerConfigFile));
  const auto is_known = [](std::string_view wanted) {
    return std::any_of(Layouts().begin(), Layouts().end(),
                       [&](const Layout& layout) { return wanted == layout.tokenizer_class; });
  };
  if (is_known(name)) return name;
  const Json* map = FindField(config, "auto_map");
  if (map == nullptr) return name;
  const Json* entry = map->is_object() ? FindField(*map, "AutoTokenizer") : map;
  if (entry != nullptr && entry->is_array() && !entry->empty()) entry = &(*entry)[0];
  if (entry == nullptr || !entry->is_string()) return name;
  const std::string& path = entry->get_ref<const std::string&>();
  const std::string last = path.substr(path.rfind('.') + 1);  // npos + 1 is 0.
  return is_known(last) || name.empty() ? last : name;
}

StatusOr<const Layout*> FindLayout(const VocabularyFile& file, const Json& config) {
  MOE_ASSIGN_OR_RETURN(std::string wanted, TokenizerClass(config));
  if (wanted.empty()) {
    for (const Layout& layout : Layouts()) {
      if (layout.file != nullptr && file.name == layout.file) return &layout;
    }
    wanted = file.family.starts_with("kimi") ? "TikTokenTokenizer" : "TokenizersBackend";
  }
  std::string supported;
  for (const Layout& layout : Layouts()) {
    if (wanted == layout.tokenizer_class) return &layout;
    supported += supported.empty() ? "" : ", ";
    supported += layout.tokenizer_class;
  }
  return UnsupportedError(kTokenizerConfigFile, ": tokenizer_class \"", wanted, "\": how it cuts text for ", file.name,
                          " is not known (supported: ", supported, ")");
}

void AddLayoutTokens(const Layout& layout, int32_t first, int32_t vocab_size, ConfigTokens* tokens) {
  int32_t id = first;
  for (const char* content : layout.special_tokens) tokens->Add(id++, content, true);
  for (int i = 0; i < layout.num_extra && id < vocab_size; ++i) tokens->Add(id++, Cat("<|extra_", i, "|>"), true);
}

// The ids from `first` on that tokenizer_config.json leaves free.
void AddReservedTokens(const Layout& layout, int32_t first, int32_t vocab_size, ConfigTokens* tokens) {
  int32_t end = layout.num_reserved < 0 ? tokens->highest_id() + 1 : first + layout.num_reserved;
  end = std::min(end, vocab_size);
  for (int32_t id = first; id < end; ++id) {
    if (!tokens->Has(id)) tokens->Add(id, Cat("<|reserved_token_", id, "|>"), true);
  }
}

// Cuts text where the published class does, to stay below limits of its regex engine: a word that stands there is cut
// in two. Counted in characters from the last added token.
class PieceBound : public PreTokenizer {
 public:
  explicit PieceBound(std::unique_ptr<PreTokenizer> next) : next_(std::move(next)) {}

  Status Apply(Pieces* pieces) const override {
    std::vector<Piece> result;
    for (const Piece& piece : pieces->list) Cut(pieces->View(piece), piece, &result);
    pieces->list = std::move(result);
    return next_->Apply(pieces);
  }

 private:
  static constexpr size_t kMaxPiece = 400'000;
  static constexpr size_t kMaxRun = 25'000;  // Of white space, or of anything else.

  static bool IsSpace(char32_t c) { return IsWhiteSpace(c) || (c >= 0x1C && c <= 0x1F); }  // As Python sees it.

  static void Cut(std::string_view text, const Piece& piece, std::vector<Piece>* result) {
    size_t begin = 0;
    size_t length = 0;
    size_t run = 0;
    bool run_is_space = false;
    const auto end_piece = [&](size_t end) {
      result->push_back({piece.begin + begin, piece.begin + end, piece.at_text_start && begin == 0});
      begin = end;
    };
    for (size_t pos = 0; pos < text.size();) {
      const size_t at = pos;
      const bool is_space = IsSpace(NextCodePoint(text, &pos));
      if (length == kMaxPiece) {
        end_piece(at);
        length = 0;
        run = 0;
      }
      if (is_space != run_is_space) run = 0;
      run_is_space = is_space;
      if (run == kMaxRun) {
        end_piece(at);
        run = 0;
      }
      ++run;
      ++length;
    }
    end_piece(text.size());
  }

  std::unique_ptr<PreTokenizer> next_;
};

StatusOr<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const Layout& layout, std::string_view where) {
  const Json json = {{"type", "Sequence"},
                     {"pretokenizers",
                      {{{"type", "Split"}, {"pattern", {{"Regex", layout.pattern}}}, {"behavior", "Isolated"}},
                       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> split, CreatePreTokenizer(&json, where));
  if (!layout.bounds_pieces) return split;
  return std::make_unique<PieceBound>(std::move(split));
}

}  // namespace

Status Tokenizer::ReadTiktoken(const VocabularyFile& file, const Json& config) {
  MOE_ASSIGN_OR_RETURN(const Layout* layout, FindLayout(file, config));
  MOE_ASSIGN_OR_RETURN(const std::vector<RankedToken> ranked,
                       ParseTiktokenFile(file.bytes, file.name, layout->counts_lines));
  const auto first = static_cast<int32_t>(ranked.size());
  ConfigTokens tokens;
  AddLayoutTokens(*layout, first, file.vocab_size, &tokens);
  MOE_RETURN_IF_ERROR(tokens.ReadIds(config, file.added_tokens_json));
  AddReservedTokens(*layout, first, file.vocab_size, &tokens);
  const auto find = [&](std::string_view text) {
    const auto it = std::find_if(ranked.begin(), ranked.end(), [&](const RankedToken& t) { return t.bytes == text; });
    return it == ranked.end() ? Vocabulary::kNone : it->rank;
  };
  int32_t next_id = first;
  for (const RankedToken& token : ranked) next_id = std::max(next_id, token.rank + 1);
  MOE_RETURN_IF_ERROR(tokens.ReadNames(config, find, next_id, file.vocab_size));
  MOE_ASSIGN_OR_RETURN(parts_->added, tokens.Finish(Cat(kTokenizerConfigFile, ": added tokens")));

  if (layout->nfc) {
    const Json nfc = {{"type", "NFC"}};
    MOE_ASSIGN_OR_RETURN(parts_->normalizer, CreateNormalizer(&nfc, file.name));
  }
  MOE_ASSIGN_OR_RETURN(parts_->pre_tokenizer, MakePreTokenizer(*layout, file.name));
  parts_->model = BpeModel::CreateFromRanks(ranked, tokens.special_ids());
  const Json decoder = {{"type", "ByteLevel"}};
  MOE_ASSIGN_OR_RETURN(parts_->decoder, TokenDecoder::Create(&decoder, file.name));
  MOE_RETURN_IF_ERROR(parts_->added.Prepare(/*normalizer=*/nullptr));
  MOE_RETURN_IF_ERROR(FillEntries(Cat(kTokenizerConfigFile, ": added tokens"), /*may_shadow=*/true));
  // The decoder reads tokens in the byte alphabet, in which added tokens are not written.
  for (const AddedToken& token : parts_->added.tokens()) {
    std::string spelled;
    AppendByteSpelling(token.content, &spelled);
    if (spelled != token.content) entries_[static_cast<size_t>(token.id)].decoding_token = std::move(spelled);
  }
  return layout->adds_bos_and_eos ? ReadBosAndEos(config) : absl::OkStatus();
}

}  // namespace moe
