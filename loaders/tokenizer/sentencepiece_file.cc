#include "loaders/tokenizer/sentencepiece_file.h"

#include <array>
#include <cmath>
#include <string>
#include <unordered_set>

#include "loaders/tokenizer/byte_token.h"
#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/utf8.h"
#include "loaders/tokenizer/wire_reader.h"

namespace moe {
namespace {

constexpr size_t kMaxFileBytes = size_t{32} << 20;  // The greatest known one has 5 MB.
constexpr size_t kMaxPieceBytes = 1024;

// Numbers of the fields that are read, from sentencepiece_model.proto.
namespace model_field {
enum : uint32_t { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5 };
}
namespace piece_field {
enum : uint32_t { kPiece = 1, kScore = 2, kType = 3 };
}
namespace trainer_field {
enum : uint32_t {
  kModelType = 3,
  kTreatWhitespaceAsSuffix = 24,
  kByteFallback = 35,
  kBosId = 41,
  kEosId = 42,
  kUnkPiece = 45,
  kBosPiece = 46,
  kEosPiece = 47
};
}
namespace normalizer_field {
enum : uint32_t { kCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4, kEscapeWhitespaces = 5 };
}

StatusOr<std::string> ReadText(WireReader* reader, std::string_view where, std::string_view field) {
  MOE_ASSIGN_OR_RETURN(const std::string_view text, reader->Bytes());
  if (!IsValidUtf8(text)) return CorruptError(where, ".", field, " is not valid UTF-8");
  return std::string(text);
}

// An int32, where only "none or an id" is of interest.
StatusOr<int32_t> ReadIdOrNone(WireReader* reader) {
  MOE_ASSIGN_OR_RETURN(const uint64_t value, reader->Varint());
  return value > static_cast<uint64_t>(kMaxTokenId) ? -1 : static_cast<int32_t>(value);
}

StatusOr<SentencePiece> ReadPiece(std::string_view bytes, size_t offset, const std::string& where) {
  SentencePiece piece;
  WireReader reader(bytes, offset, where);
  while (!reader.AtEnd()) {
    MOE_RETURN_IF_ERROR(reader.Next());
    if (reader.field() == piece_field::kPiece) {
      MOE_ASSIGN_OR_RETURN(piece.text, ReadText(&reader, where, "piece"));
    } else if (reader.field() == piece_field::kScore) {
      MOE_ASSIGN_OR_RETURN(piece.score, reader.Float());
    } else if (reader.field() == piece_field::kType) {
      MOE_ASSIGN_OR_RETURN(const uint64_t type, reader.Varint());
      if (type < SentencePiece::kNormal || type > SentencePiece::kByte) {
        return UnsupportedError(where, ".type is ", type, ", expected 1 to 6");
      }
      piece.type = static_cast<SentencePiece::Type>(type);
    } else {
      MOE_RETURN_IF_ERROR(reader.Skip());
    }
  }
  if (piece.text.empty()) return InvalidError(where, ".piece is missing or empty");
  if (piece.text.size() > kMaxPieceBytes) {
    return InvalidError(where, ".piece has ", piece.text.size(), " bytes, expected at most ", kMaxPieceBytes);
  }
  if (!std::isfinite(piece.score)) return InvalidError(where, ".score is ", piece.score, ", expected a finite number");
  return piece;
}

Status ReadTrainerSpec(WireReader reader, const std::string& where, SentencePieceFile* model) {
  while (!reader.AtEnd()) {
    MOE_RETURN_IF_ERROR(reader.Next());
    switch (reader.field()) {
      case trainer_field::kModelType: {
        MOE_ASSIGN_OR_RETURN(const uint64_t type, reader.Varint());
        if (type != SentencePieceFile::kUnigram && type != SentencePieceFile::kBpe) {
          return UnsupportedError(where, ".model_type is ", type, " (supported: 1 UNIGRAM, 2 BPE)");
        }
        model->model_type = static_cast<SentencePieceFile::ModelType>(type);
        break;
      }
      case trainer_field::kTreatWhitespaceAsSuffix: {
        MOE_ASSIGN_OR_RETURN(model->treat_whitespace_as_suffix, reader.Bool());
        break;
      }
      case trainer_field::kByteFallback: {
        MOE_ASSIGN_OR_RETURN(model->byte_fallback, reader.Bool());
        break;
      }
      case trainer_field::kBosId: {
        MOE_ASSIGN_OR_RETURN(model->bos_id, ReadIdOrNone(&reader));
        break;
      }
      case trainer_field::kEosId: {
        MOE_ASSIGN_OR_RETURN(model->eos_id, ReadIdOrNone(&reader));
        break;
      }
      case trainer_field::kUnkPiece: {
        MOE_ASSIGN_OR_RETURN(model->unk_piece, ReadText(&reader, where, "unk_piece"));
        break;
      }
      case trainer_field::kBosPiece: {
        MOE_ASSIGN_OR_RETURN(model->bos_piece, ReadText(&reader, where, "bos_piece"));
        break;
      }
      case trainer_field::kEosPiece: {
        MOE_ASSIGN_OR_RETURN(model->eos_piece, ReadText(&reader, where, "eos_piece"));
        break;
      }
      default:
        MOE_RETURN_IF_ERROR(reader.Skip());
    }
  }
  return absl::OkStatus();
}

Status ReadNormalizerSpec(WireReader reader, SentencePieceFile* model) {
  while (!reader.AtEnd()) {
    MOE_RETURN_IF_ERROR(reader.Next());
    if (reader.field() == normalizer_field::kCharsmap) {
      MOE_ASSIGN_OR_RETURN(const std::string_view map, reader.Bytes());
      model->precompiled_charsmap = std::string(map);
    } else if (reader.field() == normalizer_field::kAddDummyPrefix) {
      MOE_ASSIGN_OR_RETURN(model->add_dummy_prefix, reader.Bool());
    } else if (reader.field() == normalizer_field::kRemoveExtraWhitespaces) {
      MOE_ASSIGN_OR_RETURN(model->remove_extra_whitespaces, reader.Bool());
    } else if (reader.field() == normalizer_field::kEscapeWhitespaces) {
      MOE_ASSIGN_OR_RETURN(model->escape_whitespaces, reader.Bool());
    } else {
      MOE_RETURN_IF_ERROR(reader.Skip());
    }
  }
  return absl::OkStatus();
}

// Text that is changed on its way out as well: no known model does, and a stream could not follow.
Status CheckDenormalizerSpec(WireReader reader, const std::string& where) {
  SentencePieceFile ignored;
  MOE_RETURN_IF_ERROR(ReadNormalizerSpec(std::move(reader), &ignored));
  if (ignored.precompiled_charsmap.empty()) return absl::OkStatus();
  return UnsupportedError(where, ".precompiled_charsmap has ", ignored.precompiled_charsmap.size(),
                          " bytes (supported: none)");
}

Status CheckPieces(std::string_view file, SentencePieceFile* model) {
  std::unordered_set<std::string_view> seen;
  std::array<bool, 256> bytes{};
  for (size_t id = 0; id < model->pieces.size(); ++id) {
    const SentencePiece& piece = model->pieces[id];
    const std::string where = Cat(file, ": pieces[", id, "]");
    if (!seen.insert(piece.text).second) return InvalidError(where, ".piece \"", piece.text, "\" is there twice");
    if (piece.type == SentencePiece::kUnknown) {
      if (model->unknown_id >= 0) {
        return InvalidError(where, ".type is UNKNOWN, and so is that of pieces[", model->unknown_id, "]");
      }
      model->unknown_id = static_cast<int32_t>(id);
    }
    if (piece.type == SentencePiece::kByte) {
      const int byte = ReadByteToken(piece.text);
      if (byte < 0) return InvalidError(where, ".piece \"", piece.text, "\" is of type BYTE, expected \"<0x00>\"");
      bytes[static_cast<size_t>(byte)] = true;
    }
  }
  if (model->unknown_id < 0) return InvalidError(file, ": no piece has the type UNKNOWN");
  if (!model->byte_fallback) return absl::OkStatus();
  for (size_t byte = 0; byte < bytes.size(); ++byte) {
    if (!bytes[byte]) return InvalidError(file, ": trainer_spec.byte_fallback, but no piece for the byte ", byte);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<SentencePieceFile> ParseSentencePieceFile(std::string_view bytes, std::string_view file) {
  if (bytes.size() > kMaxFileBytes) {
    return InvalidError(file, ": has ", bytes.size(), " bytes, expected at most ", kMaxFileBytes);
  }
  SentencePieceFile model;
  WireReader reader(bytes, 0, Cat(file, ": a SentencePiece model"));
  while (!reader.AtEnd()) {
    MOE_RETURN_IF_ERROR(reader.Next());
    const uint32_t field = reader.field();
    if (field != model_field::kPieces && field != model_field::kTrainerSpec && field != model_field::kNormalizerSpec &&
        field != model_field::kDenormalizerSpec) {
      MOE_RETURN_IF_ERROR(reader.Skip());
      continue;
    }
    MOE_ASSIGN_OR_RETURN(const std::string_view inner, reader.Bytes());
    const size_t offset = reader.bytes_offset();
    if (field == model_field::kPieces) {
      if (model.pieces.size() > static_cast<size_t>(kMaxTokenId)) {
        return InvalidError(file, ": more than ", kMaxTokenId + 1, " pieces");
      }
      MOE_ASSIGN_OR_RETURN(SentencePiece piece,
                           ReadPiece(inner, offset, Cat(file, ": pieces[", model.pieces.size(), "]")));
      model.pieces.push_back(std::move(piece));
    } else if (field == model_field::kTrainerSpec) {
      const std::string where = Cat(file, ": trainer_spec");
      MOE_RETURN_IF_ERROR(ReadTrainerSpec(WireReader(inner, offset, where), where, &model));
    } else if (field == model_field::kNormalizerSpec) {
      MOE_RETURN_IF_ERROR(ReadNormalizerSpec(WireReader(inner, offset, Cat(file, ": normalizer_spec")), &model));
    } else {
      const std::string where = Cat(file, ": denormalizer_spec");
      MOE_RETURN_IF_ERROR(CheckDenormalizerSpec(WireReader(inner, offset, where), where));
    }
  }
  if (model.pieces.empty()) return CorruptError(file, ": no pieces in ", bytes.size(), " bytes of SentencePiece model");
  MOE_RETURN_IF_ERROR(CheckPieces(file, &model));
  return model;
}

}  // namespace moe
