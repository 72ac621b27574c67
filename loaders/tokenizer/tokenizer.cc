#include "loaders/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "loaders/tokenizer/added_vocabulary.h"
#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/normalizer.h"
#include "loaders/tokenizer/post_processor.h"
#include "loaders/tokenizer/pre_tokenizer.h"
#include "loaders/tokenizer/token_decoder.h"
#include "loaders/tokenizer/token_model.h"
#include "loaders/tokenizer/tokenizer_parts.h"
#include "loaders/tokenizer/utf8.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

const std::string& EmptyString() {
  static const std::string empty;
  return empty;
}

// Cuts `range` where trusted text meets untrusted text.
std::vector<TextRange> UniformRanges(TextRange range, const Trust& trust) {
  std::vector<TextRange> ranges;
  for (const TextRange& untrusted : trust.untrusted()) {
    const size_t begin = std::clamp(untrusted.begin, range.begin, range.end);
    const size_t end = std::clamp(untrusted.end, range.begin, range.end);
    if (begin == end) continue;
    if (begin > range.begin) ranges.push_back({range.begin, begin});
    ranges.push_back({begin, end});
    range.begin = end;
  }
  if (range.begin < range.end) ranges.push_back(range);
  return ranges;
}

}  // namespace

Tokenizer::Tokenizer() : parts_(std::make_unique<Parts>()) {}
Tokenizer::~Tokenizer() = default;

const TokenDecoder& Tokenizer::decoder() const {
  return parts_->decoder;
}

StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  const Span span{text, options.recognize_special};
  return EncodeSpans(std::span(&span, 1), options.add_special_tokens);
}

StatusOr<std::vector<int32_t>> Tokenizer::EncodeSpans(std::span<const Span> spans, bool add_special_tokens) const {
  std::string joined;
  std::vector<TextRange> untrusted;
  size_t size = 0;
  for (const Span& span : spans) {
    if (!IsValidUtf8(span.text)) return InvalidError("the text is not valid UTF-8");
    if (!span.recognize_special && !span.text.empty()) {
      if (!untrusted.empty() && untrusted.back().end == size) {
        untrusted.back().end += span.text.size();
      } else {
        untrusted.push_back({size, size + span.text.size()});
      }
    }
    size += span.text.size();
  }
  std::string_view text;
  if (spans.size() == 1) {
    text = spans[0].text;
  } else {
    joined.reserve(size);
    for (const Span& span : spans) joined += span.text;
    text = joined;
  }
  std::vector<int32_t> ids;
  ids.reserve(size / 3 + 8);
  if (add_special_tokens) ids = parts_->post_processor.prefix;
  MOE_RETURN_IF_ERROR(EncodeText(text, Trust(std::move(untrusted)), &ids));
  if (add_special_tokens) {
    const auto& suffix = parts_->post_processor.suffix;
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

Status Tokenizer::EncodeText(std::string_view text, const Trust& trust, std::vector<int32_t>* ids) const {
  for (const AddedSplit& split : parts_->added.SplitRaw(text, trust)) {
    if (split.token != nullptr) {
      ids->push_back(split.token->id);
    } else {
      MOE_RETURN_IF_ERROR(EncodeSegment(text, split.range, trust, ids));
    }
  }
  return absl::OkStatus();
}

Status Tokenizer::EncodeSegment(std::string_view text, TextRange range, const Trust& trust,
                                std::vector<int32_t>* ids) const {
  std::string normalized(text.substr(range.begin, range.end - range.begin));
  if (parts_->normalizer != nullptr) MOE_RETURN_IF_ERROR(parts_->normalizer->Apply(&normalized));
  const bool at_text_start = range.begin == 0;
  if (trust.AllTrusted(range)) return EncodeNormalized(std::move(normalized), true, at_text_start, ids);
  if (!trust.AllUntrusted(range)) {
    // Which bytes of the normalised text come from where is not known. It matters only if there is a special token in
    // it: then trusted and untrusted text are encoded apart.
    const auto splits = parts_->added.SplitNormalized(normalized, Trust::All(true, normalized.size()));
    const bool has_special = std::any_of(splits.begin(), splits.end(), [](const AddedSplit& split) {
      return split.token != nullptr && split.token->special;
    });
    if (has_special) {
      for (const TextRange& part : UniformRanges(range, trust)) {
        MOE_RETURN_IF_ERROR(EncodeSegment(text, part, trust, ids));
      }
      return absl::OkStatus();
    }
  }
  return EncodeNormalized(std::move(normalized), false, at_text_start, ids);
}

Status Tokenizer::EncodeNormalized(std::string text, bool trusted, bool at_text_start,
                                   std::vector<int32_t>* ids) const {
  const auto splits = parts_->added.SplitNormalized(text, Trust::All(trusted, text.size()));
  for (const AddedSplit& split : splits) {
    if (split.token != nullptr) {
      ids->push_back(split.token->id);
      continue;
    }
    const size_t length = split.range.end - split.range.begin;
    Pieces pieces;
    if (splits.size() == 1) {
      pieces.text.swap(text);
    } else {
      pieces.text = text.substr(split.range.begin, length);
    }
    pieces.list.push_back({0, length, at_text_start && split.range.begin == 0});
    if (parts_->pre_tokenizer != nullptr) MOE_RETURN_IF_ERROR(parts_->pre_tokenizer->Apply(&pieces));
    for (const Piece& piece : pieces.list) {
      MOE_RETURN_IF_ERROR(parts_->model->Encode(pieces.View(piece), trusted, ids));
    }
  }
  return absl::OkStatus();
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool keep_special) const {
  DetokenizeStream stream(parts_->decoder);
  for (const int32_t id : ids) {
    if (IsValidId(id) && (keep_special || !IsSpecial(id))) stream.Push(DecodingToken(id));
  }
  stream.Finish();
  return stream.TakeText();
}

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  if (const AddedToken* added = parts_->added.FindByContent(token); added != nullptr) return added->id;
  const int32_t id = parts_->model->vocabulary().Find(token);
  if (id == Vocabulary::kNone) return std::nullopt;
  return id;
}

const std::string& Tokenizer::IdToToken(int32_t id) const {
  return IsValidId(id) ? entries_[static_cast<size_t>(id)].token : EmptyString();
}

const std::string& Tokenizer::DecodingToken(int32_t id) const {
  MOE_CHECK(IsValidId(id)) << id;
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return entry.decoding_token.empty() ? entry.token : entry.decoding_token;
}

const std::string& Tokenizer::SpecialToken(const std::string& name) const {
  const auto it = special_tokens_.find(name);
  return it == special_tokens_.end() ? EmptyString() : it->second;
}

}  // namespace moe
