#include "loaders/tokenizer/token_decoder.h"

#include <utility>

#include "loaders/tokenizer/detokenize_steps.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

using Steps = std::vector<std::unique_ptr<DetokenizeStep>>;

constexpr int64_t kMaxStrip = 1024;

class CollectStage : public DetokenizeStage {
 public:
  explicit CollectStage(std::string* text) : DetokenizeStage(nullptr), text_(text) {}
  void Push(std::string_view fragment, bool) override { text_->append(fragment); }

 private:
  std::string* text_;
};

Status AppendStrip(const Json& json, std::string_view where, Steps* steps) {
  MOE_ASSIGN_OR_RETURN(std::string content, RequireString(json, "content", where));
  size_t length = 0;
  if (!content.empty()) NextCodePoint(content, &length);
  if (length == 0 || length != content.size()) {
    return InvalidError(where, ".content \"", content, "\" is not one character");
  }
  MOE_ASSIGN_OR_RETURN(const int64_t start, IntegerOr(json, "start", 0, where));
  MOE_ASSIGN_OR_RETURN(const int64_t stop, IntegerOr(json, "stop", 0, where));
  for (const int64_t count : {start, stop}) {
    if (count < 0 || count > kMaxStrip) {
      return InvalidError(where, ".start and .stop are ", start, " and ", stop, ", expected 0 to ", kMaxStrip);
    }
  }
  steps->push_back(MakeStripStep(std::move(content), static_cast<size_t>(start), static_cast<size_t>(stop)));
  return absl::OkStatus();
}

Status AppendReplace(const Json& json, std::string_view where, bool fused, Steps* steps) {
  MOE_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(json, where));
  MOE_ASSIGN_OR_RETURN(std::string content, RequireString(json, "content", where));
  steps->push_back(MakeReplaceStep(std::move(pattern), std::move(content), fused));
  return absl::OkStatus();
}

// `fused` tells whether the tokens have become one, and is updated.
Status AppendSteps(const Json& json, std::string_view where, bool* fused, Steps* steps) {
  if (!json.is_object()) return InvalidError(where, " is ", json.type_name(), ", expected an object");
  MOE_ASSIGN_OR_RETURN(const std::string type, RequireString(json, "type", where));
  if (type == "Sequence") {
    MOE_ASSIGN_OR_RETURN(const Json* list, RequireArray(json, "decoders", where));
    for (size_t i = 0; i < list->size(); ++i) {
      MOE_RETURN_IF_ERROR(AppendSteps((*list)[i], Cat(where, ".decoders[", i, "]"), fused, steps));
    }
    return absl::OkStatus();
  }
  if (type == "Replace") return AppendReplace(json, where, *fused, steps);
  if (type == "Strip") return AppendStrip(json, where, steps);
  if (type == "Fuse") {
    if (!*fused) steps->push_back(MakeFuseStep());
    *fused = true;
    return absl::OkStatus();
  }
  const bool known = type == "ByteLevel" || type == "ByteFallback" || type == "Metaspace";
  if (!known) return UnsupportedError(where, ".type \"", type, "\"");
  // These look at tokens one by one.
  if (*fused) return UnsupportedError(where, ".type \"", type, "\" behind a step that makes all tokens one");
  if (type == "ByteLevel") {
    steps->push_back(MakeByteLevelStep());
    *fused = true;
  } else if (type == "ByteFallback") {
    steps->push_back(MakeByteFallbackStep());
  } else {
    MOE_ASSIGN_OR_RETURN(Metaspace settings, ReadMetaspace(json, where));
    steps->push_back(MakeMetaspaceStep(std::move(settings)));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<TokenDecoder> TokenDecoder::Create(const Json* json, std::string_view where) {
  TokenDecoder decoder;
  if (json == nullptr || json->is_null()) {
    decoder.steps_.push_back(MakeJoinStep());
    return decoder;
  }
  bool fused = false;
  MOE_RETURN_IF_ERROR(AppendSteps(*json, where, &fused, &decoder.steps_));
  return decoder;
}

DetokenizeStream::DetokenizeStream(const TokenDecoder& decoder) : text_(std::make_unique<std::string>()) {
  stages_.push_back(std::make_unique<CollectStage>(text_.get()));
  for (auto step = decoder.steps().rbegin(); step != decoder.steps().rend(); ++step) {
    stages_.push_back((*step)->Start(stages_.back().get()));
  }
}

DetokenizeStream::~DetokenizeStream() = default;

void DetokenizeStream::Push(std::string_view token) {
  stages_.back()->Push(token, /*begins_token=*/true);
}

void DetokenizeStream::Finish() {
  stages_.back()->Finish();
}

std::string DetokenizeStream::TakeText() {
  return std::exchange(*text_, std::string());
}

}  // namespace moe
