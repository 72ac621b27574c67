#include "loaders/tokenizer/detokenize_steps.h"

#include <algorithm>
#include <utility>

#include "loaders/tokenizer/byte_alphabet.h"
#include "loaders/tokenizer/byte_token.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

// A step whose stage is made from the step's settings.
template <typename Stage, typename Settings>
class StepOf : public DetokenizeStep {
 public:
  explicit StepOf(Settings settings) : settings_(std::move(settings)) {}
  std::unique_ptr<DetokenizeStage> Start(DetokenizeStage* next) const override {
    return std::make_unique<Stage>(settings_, next);
  }

 private:
  Settings settings_;
};

struct NoSettings {};

class ByteLevelStage : public DetokenizeStage {
 public:
  ByteLevelStage(const NoSettings&, DetokenizeStage* next) : DetokenizeStage(next) {}
  void Push(std::string_view fragment, bool) override {
    AppendSpelledBytes(fragment, &bytes_);
    Emit(/*final=*/false);
  }
  void Finish() override {
    Emit(/*final=*/true);
    next_->Finish();
  }

 private:
  void Emit(bool final) {
    std::string text;
    bytes_.erase(0, AppendLossyUtf8(bytes_, final, &text));
    next_->Push(text, std::exchange(first_, false));
  }

  std::string bytes_;  // At most 3 between calls: a cut character.
  bool first_ = true;
};

class ByteFallbackStage : public DetokenizeStage {
 public:
  ByteFallbackStage(const NoSettings&, DetokenizeStage* next) : DetokenizeStage(next) {}
  void Push(std::string_view fragment, bool begins_token) override {
    const int byte = ReadByteToken(fragment);
    if (byte >= 0) {
      run_.push_back(static_cast<char>(byte));
      return;
    }
    EndRun();
    next_->Push(fragment, begins_token);
  }
  void Finish() override {
    EndRun();
    next_->Finish();
  }

 private:
  void EndRun() {
    if (run_.empty()) return;
    if (IsValidUtf8(run_)) {
      next_->Push(run_, true);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) next_->Push(kReplacementCharacter, true);
    }
    run_.clear();
  }

  std::string run_;
};

class FuseStage : public DetokenizeStage {
 public:
  FuseStage(const NoSettings&, DetokenizeStage* next) : DetokenizeStage(next) {}
  void Push(std::string_view fragment, bool) override { next_->Push(fragment, std::exchange(first_, false)); }

 private:
  bool first_ = true;
};

struct ReplaceSettings {
  Pattern pattern;
  std::string content;
  bool fused;
};

class ReplaceStage : public DetokenizeStage {
 public:
  ReplaceStage(const ReplaceSettings& settings, DetokenizeStage* next) : DetokenizeStage(next), settings_(settings) {}

  void Push(std::string_view fragment, bool begins_token) override {
    if (!settings_.fused) {
      next_->Push(Replace(fragment), begins_token);
      return;
    }
    held_ += fragment;
    if (settings_.pattern.literal.empty()) return;  // Where a pattern ends is known only at the end.
    EmitCertain();
  }

  void Finish() override {
    if (settings_.fused) next_->Push(Replace(held_), std::exchange(first_, false));
    next_->Finish();
  }

 private:
  std::string Replace(std::string_view text) const {
    auto replaced = ReplaceAll(*settings_.pattern.regex, text, settings_.content);
    return replaced.ok() ? std::move(replaced).value() : std::string(text);  // Too complex: left as it is.
  }

  // Hands on all but an end that may be the beginning of the string.
  void EmitCertain() {
    const std::string& wanted = settings_.pattern.literal;
    size_t certain = 0;
    for (size_t at = held_.find(wanted); at != std::string::npos; at = held_.find(wanted, certain)) {
      certain = at + wanted.size();
    }
    const size_t longest = std::min(wanted.size() - 1, held_.size() - certain);
    size_t tail = longest;
    while (tail > 0 && held_.compare(held_.size() - tail, tail, wanted, 0, tail) != 0) --tail;
    const size_t cut = held_.size() - tail;
    next_->Push(Replace(std::string_view(held_).substr(0, cut)), std::exchange(first_, false));
    held_.erase(0, cut);
  }

  const ReplaceSettings& settings_;
  std::string held_;
  bool first_ = true;
};

struct StripSettings {
  std::string content;
  size_t start;
  size_t stop;
};

class StripStage : public DetokenizeStage {
 public:
  StripStage(const StripSettings& settings, DetokenizeStage* next) : DetokenizeStage(next), settings_(settings) {}

  void Push(std::string_view fragment, bool begins_token) override {
    if (begins_token) {
      held_.clear();  // The trailing characters of the token before.
      start_left_ = settings_.start;
    }
    const std::string& content = settings_.content;
    while (start_left_ > 0 && !fragment.empty()) {
      if (fragment.substr(0, content.size()) != content) {
        start_left_ = 0;
      } else {
        fragment.remove_prefix(content.size());
        --start_left_;
      }
    }
    held_ += fragment;
    // Hold back what may be at the end of the token.
    size_t cut = held_.size();
    for (size_t i = 0; i < settings_.stop && cut >= content.size(); ++i) {
      if (held_.compare(cut - content.size(), content.size(), content) != 0) break;
      cut -= content.size();
    }
    next_->Push(std::string_view(held_).substr(0, cut), begins_token);
    held_.erase(0, cut);
  }

 private:
  const StripSettings& settings_;
  std::string held_;
  size_t start_left_ = 0;
};

class MetaspaceStage : public DetokenizeStage {
 public:
  MetaspaceStage(const Metaspace& settings, DetokenizeStage* next) : DetokenizeStage(next), settings_(settings) {}
  void Push(std::string_view fragment, bool begins_token) override {
    const std::string& mark = settings_.replacement;
    const bool drops = std::exchange(first_, false) && settings_.scheme != Metaspace::kNever;
    std::string text;
    while (true) {
      const size_t at = fragment.find(mark);
      text += fragment.substr(0, at);
      if (at == std::string_view::npos) break;
      if (!drops) text += ' ';
      fragment.remove_prefix(at + mark.size());
    }
    next_->Push(text, begins_token);
  }

 private:
  const Metaspace& settings_;
  bool first_ = true;
};

class JoinStage : public DetokenizeStage {
 public:
  JoinStage(const NoSettings&, DetokenizeStage* next) : DetokenizeStage(next) {}
  void Push(std::string_view fragment, bool begins_token) override {
    if (!std::exchange(first_, false)) next_->Push(" ", true);
    next_->Push(fragment, begins_token);
  }

 private:
  bool first_ = true;
};

}  // namespace

std::unique_ptr<DetokenizeStep> MakeByteLevelStep() {
  return std::make_unique<StepOf<ByteLevelStage, NoSettings>>(NoSettings());
}
std::unique_ptr<DetokenizeStep> MakeByteFallbackStep() {
  return std::make_unique<StepOf<ByteFallbackStage, NoSettings>>(NoSettings());
}
std::unique_ptr<DetokenizeStep> MakeFuseStep() {
  return std::make_unique<StepOf<FuseStage, NoSettings>>(NoSettings());
}
std::unique_ptr<DetokenizeStep> MakeReplaceStep(Pattern pattern, std::string content, bool fused) {
  return std::make_unique<StepOf<ReplaceStage, ReplaceSettings>>(
      ReplaceSettings{std::move(pattern), std::move(content), fused});
}
std::unique_ptr<DetokenizeStep> MakeStripStep(std::string content, size_t start, size_t stop) {
  return std::make_unique<StepOf<StripStage, StripSettings>>(StripSettings{std::move(content), start, stop});
}
std::unique_ptr<DetokenizeStep> MakeMetaspaceStep(Metaspace settings) {
  return std::make_unique<StepOf<MetaspaceStage, Metaspace>>(std::move(settings));
}
std::unique_ptr<DetokenizeStep> MakeJoinStep() {
  return std::make_unique<StepOf<JoinStage, NoSettings>>(NoSettings());
}

}  // namespace moe
