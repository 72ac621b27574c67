// Building a Tokenizer from a SentencePiece model. What the model does itself is SentencePiece's; what happens around
// it (special tokens, the way back to text) is what transformers makes of such a file.
#include <map>
#include <string>
#include <utility>

#include "loaders/tokenizer/config_tokens.h"
#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/sentencepiece_file.h"
#include "loaders/tokenizer/sentencepiece_model.h"
#include "loaders/tokenizer/sentencepiece_normalizer.h"
#include "loaders/tokenizer/tokenizer.h"
#include "loaders/tokenizer/tokenizer_parts.h"

namespace moe {
namespace {

Json DecoderJson(const SentencePieceFile& model) {
  Json steps = Json::array();
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", kSentencePieceSpace}}}, {"content", " "}});
  if (model.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.add_dummy_prefix) {
    const bool at_end = model.treat_whitespace_as_suffix;
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", at_end ? 0 : 1}, {"stop", at_end ? 1 : 0}});
  }
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

// Checkpoints give names to pieces that were left free: tokenizer_config.json has another token for the id.
Status RenamePieces(const ConfigTokens& tokens, std::string_view file, SentencePieceFile* model) {
  std::map<std::string_view, size_t> ids;
  for (size_t id = 0; id < model->pieces.size(); ++id) ids.emplace(model->pieces[id].text, id);
  std::vector<std::pair<size_t, std::string>> renamed;
  for (size_t id = 0; id < model->pieces.size(); ++id) {
    const std::string* content = tokens.ContentOrNull(static_cast<int32_t>(id));
    if (content == nullptr || content->empty() || *content == model->pieces[id].text) continue;
    const auto other = ids.find(*content);
    // Two pieces may swap their names.
    if (other != ids.end() && tokens.ContentOrNull(static_cast<int32_t>(other->second)) == nullptr) {
      return InvalidError(kTokenizerConfigFile, ": added_tokens_decoder[\"", id, "\"] is \"", *content,
                          "\", which has id ", other->second, " in ", file);
    }
    renamed.emplace_back(id, *content);
  }
  for (auto& [id, content] : renamed) model->pieces[id].text = std::move(content);
  return absl::OkStatus();
}

}  // namespace

Status Tokenizer::ReadSentencePiece(const VocabularyFile& file, const Json& config) {
  MOE_ASSIGN_OR_RETURN(SentencePieceFile model, ParseSentencePieceFile(file.bytes, file.name));
  const auto num_pieces = static_cast<int32_t>(model.pieces.size());
  const auto known = [&](int32_t id, const std::string& text) {
    return id >= 0 && id < num_pieces && !text.empty() ? text : std::string();
  };
  // What tokenizer_config.json leaves out.
  const std::pair<const char*, std::string> own_names[] = {{"bos_token", known(model.bos_id, model.bos_piece)},
                                                           {"eos_token", known(model.eos_id, model.eos_piece)},
                                                           {"unk_token", known(model.unknown_id, model.unk_piece)}};
  ConfigTokens tokens;
  for (int32_t id = 0; id < num_pieces; ++id) {
    const SentencePiece& piece = model.pieces[static_cast<size_t>(id)];
    const bool special = piece.type == SentencePiece::kControl || piece.type == SentencePiece::kUnknown;
    if (special) tokens.Add(id, piece.text, true);
  }
  MOE_RETURN_IF_ERROR(tokens.ReadIds(config, file.added_tokens_json));
  MOE_RETURN_IF_ERROR(RenamePieces(tokens, file.name, &model));
  std::map<std::string_view, int32_t> ids;
  for (int32_t id = 0; id < num_pieces; ++id) ids.emplace(model.pieces[static_cast<size_t>(id)].text, id);
  const auto find = [&](std::string_view text) {
    const auto it = ids.find(text);
    return it == ids.end() ? Vocabulary::kNone : it->second;
  };
  MOE_RETURN_IF_ERROR(tokens.ReadNames(config, find, num_pieces, file.vocab_size));
  MOE_ASSIGN_OR_RETURN(parts_->added, tokens.Finish(Cat(file.name, ": added tokens")));

  // Every part between added tokens gets the space in front, or ("legacy": false) the beginning of the text only.
  MOE_ASSIGN_OR_RETURN(const bool legacy, BoolOr(config, "legacy", true, kTokenizerConfigFile));
  MOE_ASSIGN_OR_RETURN(parts_->normalizer,
                       CreateSentencePieceNormalizer(model, legacy, Cat(file.name, ": normalizer_spec")));
  if (!legacy && model.add_dummy_prefix && !model.treat_whitespace_as_suffix) {
    const Json spaces = {
        {"type", "Metaspace"}, {"replacement", kSentencePieceSpace}, {"prepend_scheme", "first"}, {"split", false}};
    MOE_ASSIGN_OR_RETURN(parts_->pre_tokenizer, CreatePreTokenizer(&spaces, file.name));
  }
  parts_->model = CreateSentencePieceModel(model, tokens.special_ids());
  const Json decoder = DecoderJson(model);
  MOE_ASSIGN_OR_RETURN(parts_->decoder, TokenDecoder::Create(&decoder, file.name));
  MOE_RETURN_IF_ERROR(parts_->added.Prepare(/*normalizer=*/nullptr));
  MOE_RETURN_IF_ERROR(FillEntries(Cat(kTokenizerConfigFile, ": added tokens"), /*may_shadow=*/false));
  for (const auto& [name, text] : own_names) {
    if (!text.empty()) special_tokens_.emplace(name, text);
  }
  return ReadBosAndEos(config);
}

}  // namespace moe
