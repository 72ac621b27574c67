#include "loaders/tokenizer/sentencepiece_model.h"

#include <utility>

#include "loaders/tokenizer/byte_token.h"
#include "loaders/tokenizer/sentencepiece_bpe.h"
#include "loaders/tokenizer/sentencepiece_unigram.h"

namespace moe {

std::unique_ptr<TokenModel> CreateSentencePieceModel(const SentencePieceFile& file, SpecialIds special) {
  if (file.model_type == SentencePieceFile::kBpe) return std::make_unique<SentencePieceBpe>(file, std::move(special));
  return std::make_unique<SentencePieceUnigram>(file, std::move(special));
}

SentencePieceModel::SentencePieceModel(const SentencePieceFile& file, SpecialIds special)
    : unknown_id_(file.unknown_id), special_(std::move(special)), byte_fallback_(file.byte_fallback) {
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePiece& piece = file.pieces[id];
    vocabulary_.Add(piece.text, static_cast<int32_t>(id));
    types_.push_back(piece.type);
    scores_.push_back(piece.score);
  }
  byte_ids_ = FindByteTokens(vocabulary_);
}

void SentencePieceModel::Output::Add(std::string_view part, int32_t id) {
  const bool unknown = id == model_.unknown_id_;
  if (unknown && model_.byte_fallback_) {
    for (const char c : part) ids_->push_back(model_.byte_ids_[static_cast<unsigned char>(c)]);
  } else if (!unknown || !behind_unknown_) {
    ids_->push_back(id);
  }
  behind_unknown_ = unknown;
}

}  // namespace moe
