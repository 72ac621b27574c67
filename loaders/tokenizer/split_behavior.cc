#include "loaders/tokenizer/split_behavior.h"

#include <algorithm>

namespace moe {
namespace {

struct Part {
  size_t begin;
  size_t end;
  bool is_delimiter;
};

// The delimiters and what lies between them, in order. An empty delimiter still separates.
std::vector<Part> CoverPiece(size_t length, const std::vector<TextRange>& delimiters, bool invert) {
  std::vector<Part> parts;
  size_t covered = 0;
  for (const TextRange& delimiter : delimiters) {
    if (delimiter.begin > covered) parts.push_back({covered, delimiter.begin, invert});
    parts.push_back({delimiter.begin, delimiter.end, !invert});
    covered = delimiter.end;
  }
  if (covered < length) parts.push_back({covered, length, invert});
  return parts;
}

// Joins neighbours: `joins(previous, current)` says whether current extends the part before it.
template <typename Joins>
std::vector<Part> JoinForward(const std::vector<Part>& parts, Joins joins) {
  std::vector<Part> joined;
  bool previous_is_delimiter = false;
  for (const Part& part : parts) {
    if (!joined.empty() && joins(previous_is_delimiter, part.is_delimiter)) {
      joined.back().end = part.end;
    } else {
      joined.push_back(part);
    }
    previous_is_delimiter = part.is_delimiter;
  }
  return joined;
}

// A delimiter joins its neighbour only if that is not itself a delimiter: of a run, one joins and the rest stand alone.
bool JoinsText(bool previous_is_delimiter, bool is_delimiter) {
  return is_delimiter && !previous_is_delimiter;
}

std::vector<Part> JoinBackward(std::vector<Part> parts) {
  std::vector<Part> joined;
  bool previous_is_delimiter = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!joined.empty() && JoinsText(previous_is_delimiter, part->is_delimiter)) {
      joined.back().begin = part->begin;
    } else {
      joined.push_back(*part);
    }
    previous_is_delimiter = part->is_delimiter;
  }
  std::reverse(joined.begin(), joined.end());
  return joined;
}

}  // namespace

StatusOr<SplitBehavior> ReadSplitBehavior(std::string_view name, std::string_view where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return UnsupportedError(where, ".behavior \"", name, "\"");
}

void SplitPiece(const Piece& piece, const std::vector<TextRange>& delimiters, SplitBehavior behavior, bool invert,
                std::vector<Piece>* out) {
  std::vector<Part> parts = CoverPiece(piece.end - piece.begin, delimiters, invert);
  if (behavior == SplitBehavior::kMergedWithPrevious) parts = JoinForward(parts, JoinsText);
  if (behavior == SplitBehavior::kMergedWithNext) parts = JoinBackward(std::move(parts));
  if (behavior == SplitBehavior::kContiguous) {
    parts = JoinForward(parts, [](bool previous, bool current) { return previous == current; });
  }
  for (const Part& part : parts) {
    if (part.begin == part.end) continue;
    if (behavior == SplitBehavior::kRemoved && part.is_delimiter) continue;
    out->push_back({piece.begin + part.begin, piece.begin + part.end, piece.at_text_start && part.begin == 0});
  }
}

}  // namespace moe
