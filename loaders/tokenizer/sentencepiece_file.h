// A SentencePiece model file ("tokenizer.model") as it is written: a serialized ModelProto.
#ifndef MOE_LOADERS_TOKENIZER_SENTENCEPIECE_FILE_H_
#define MOE_LOADERS_TOKENIZER_SENTENCEPIECE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

struct SentencePiece {
  enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

  std::string text;
  float score = 0;
  Type type = kNormal;

  // Text can become this piece. The others stand for no text, or for text that no such piece spells.
  bool IsOfText() const { return type == kNormal || type == kUserDefined || type == kUnused; }
};

struct SentencePieceFile {
  enum ModelType { kUnigram = 1, kBpe = 2 };

  std::vector<SentencePiece> pieces;  // By id.
  int32_t unknown_id = -1;            // The one piece of type kUnknown.

  // trainer_spec
  ModelType model_type = kUnigram;
  bool byte_fallback = false;  // Then all 256 byte pieces are there.
  bool treat_whitespace_as_suffix = false;
  std::string unk_piece = "<unk>";
  int32_t bos_id = 1;  // -1: none
  std::string bos_piece = "<s>";
  int32_t eos_id = 2;
  std::string eos_piece = "</s>";

  // normalizer_spec
  std::string precompiled_charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// `file`: its name, for messages. CORRUPT for bytes that are no ModelProto, INVALID for one that contradicts itself,
// UNSUPPORTED for word and character models and for one with a denormalizer.
StatusOr<SentencePieceFile> ParseSentencePieceFile(std::string_view bytes, std::string_view file);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_SENTENCEPIECE_FILE_H_
