#include "loaders/chat_template/text.h"

#include <algorithm>
#include <utility>

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

Text::~Text() {
  runtime_.Release(charged_bytes_);
}

bool Text::Grow(size_t bytes) {
  if (!runtime_.Process(bytes) || !runtime_.Reserve(bytes)) return false;
  charged_bytes_ += bytes;
  return true;
}

void Text::AddRun(size_t length, bool trusted) {
  if (length == 0) return;
  if (!runs_.empty() && runs_.back().trusted == trusted) {
    runs_.back().length += length;
  } else if (runtime_.Reserve(sizeof(Run))) {
    charged_bytes_ += sizeof(Run);
    runs_.push_back({length, trusted});
  }
}

void Text::Append(std::string_view text, bool trusted) {
  if (!Grow(text.size())) return;
  text_.append(text);
  AddRun(text.size(), trusted);
}

void Text::AppendRepeated(std::string_view text, size_t times, bool trusted) {
  // Checked in one go, and before the product can overflow.
  const auto limit = static_cast<size_t>(runtime_.limits().live_bytes);
  if (text.empty() || times == 0 || !Grow(times > limit / text.size() ? limit + 1 : times * text.size())) return;
  if (text.size() == 1) {
    text_.append(times, text[0]);
  } else {
    for (size_t i = 0; i < times; ++i) text_.append(text);
  }
  AddRun(times * text.size(), trusted);
}

void Text::AppendSlice(const StringData& source, size_t begin, size_t end) {
  if (begin >= end || !Grow(end - begin)) return;
  text_.append(source.view.substr(begin, end - begin));
  if (source.runs.empty()) return AddRun(end - begin, source.trusted);
  runtime_.Step(static_cast<int64_t>(source.runs.size()) / 8);
  size_t at = 0;
  for (const Run& run : source.runs) {
    const size_t from = std::max(begin, at), to = std::min(end, at + run.length);
    if (from < to) AddRun(to - from, run.trusted);
    at += run.length;
    if (at >= end) break;
  }
}

void Text::Truncate(size_t bytes) {
  if (bytes >= text_.size()) return;
  text_.resize(bytes);
  size_t at = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (at + runs_[i].length >= bytes) {
      runs_[i].length = bytes - at;
      runs_.resize(runs_[i].length > 0 ? i + 1 : i);
      return;
    }
    at += runs_[i].length;
  }
}

Value Text::Finish() {
  runtime_.Step();
  auto* data = new StringData;
  data->owned = std::move(text_);
  data->view = data->owned;
  if (runs_.size() > 1) {
    data->runs = std::move(runs_);
  } else {
    data->trusted = runs_.empty() || runs_[0].trusted;
  }
  data->runtime = &runtime_;
  data->charged_bytes = charged_bytes_;
  // The book-keeping of a string counts too, or a list of empty ones would cost nothing.
  if (runtime_.Reserve(sizeof(StringData))) data->charged_bytes += sizeof(StringData);
  text_.clear();
  runs_.clear();
  charged_bytes_ = 0;
  return Value::String(data);
}

}  // namespace moe::chat
