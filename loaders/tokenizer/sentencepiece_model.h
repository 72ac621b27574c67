// The two models of SentencePiece, as SentencePiece itself runs them. They differ from those of a tokenizer.json in
// what happens around the plain cases: pieces are found by their text, user-defined ones are never cut or joined,
// unused ones are taken apart again, and scores are added as 32-bit numbers.
#ifndef MOE_LOADERS_TOKENIZER_SENTENCEPIECE_MODEL_H_
#define MOE_LOADERS_TOKENIZER_SENTENCEPIECE_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "loaders/tokenizer/sentencepiece_file.h"
#include "loaders/tokenizer/token_model.h"

namespace moe {

// Keeps nothing of `file`.
std::unique_ptr<TokenModel> CreateSentencePieceModel(const SentencePieceFile& file, SpecialIds special);

// What both have in common.
class SentencePieceModel : public TokenModel {
 protected:
  SentencePieceModel(const SentencePieceFile& file, SpecialIds special);

  bool MayMake(int32_t id, bool allow_special) const { return allow_special || !special_.Has(id); }
  SentencePiece::Type TypeOf(int32_t id) const { return types_[static_cast<size_t>(id)]; }

  // Appends ids in the order of the text. Unknown parts become bytes, or one unknown token for all that stand together.
  class Output {
   public:
    Output(const SentencePieceModel& model, std::vector<int32_t>* ids) : model_(model), ids_(ids) {}
    void Add(std::string_view part, int32_t id);

   private:
    const SentencePieceModel& model_;
    std::vector<int32_t>* ids_;
    bool behind_unknown_ = false;
  };

  std::vector<SentencePiece::Type> types_;
  std::vector<float> scores_;
  int32_t unknown_id_;

 private:
  SpecialIds special_;
  bool byte_fallback_;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_SENTENCEPIECE_MODEL_H_
