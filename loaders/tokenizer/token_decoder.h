// The `decoder` of a tokenizer.json: turns tokens back into text, piece by piece. Decoding everything at once is the
// same thing fed all tokens, so a stream and a whole text can never differ.
#ifndef MOE_LOADERS_TOKENIZER_TOKEN_DECODER_H_
#define MOE_LOADERS_TOKENIZER_TOKEN_DECODER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loaders/tokenizer/json_fields.h"
#include "parallel/base/status.h"

namespace moe {

// One step of decoding, with the state of one stream. Text arrives and leaves as fragments of tokens: a step that fuses
// tokens makes everything one long token, whose fragments are handed on as they become certain.
class DetokenizeStage {
 public:
  explicit DetokenizeStage(DetokenizeStage* next) : next_(next) {}
  virtual ~DetokenizeStage() = default;

  // `begins_token`: the fragment is the first of a token. Fragments are whole characters.
  virtual void Push(std::string_view fragment, bool begins_token) = 0;
  // Hands on what was held back, then ends the next stage.
  virtual void Finish() {
    if (next_ != nullptr) next_->Finish();
  }

 protected:
  DetokenizeStage* next_;  // Null for the last stage only.
};

// Makes a stage in front of `next`. Immutable, shared by all streams.
class DetokenizeStep {
 public:
  virtual ~DetokenizeStep() = default;
  virtual std::unique_ptr<DetokenizeStage> Start(DetokenizeStage* next) const = 0;
};

class TokenDecoder {
 public:
  // Null json: the tokens are joined by spaces. UNSUPPORTED names an unknown type or an order that makes no sense.
  static StatusOr<TokenDecoder> Create(const Json* json, std::string_view where);

  const std::vector<std::unique_ptr<DetokenizeStep>>& steps() const { return steps_; }

 private:
  std::vector<std::unique_ptr<DetokenizeStep>> steps_;
};

// One stream of tokens through a decoder, which must outlive it.
class DetokenizeStream {
 public:
  explicit DetokenizeStream(const TokenDecoder& decoder);
  ~DetokenizeStream();

  // REQUIRES: `token` is valid UTF-8; Finish() was not called.
  void Push(std::string_view token);
  void Finish();
  // What has become certain since the last call.
  std::string TakeText();

 private:
  std::unique_ptr<std::string> text_;
  std::vector<std::unique_ptr<DetokenizeStage>> stages_;  // Last stage first.
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_TOKEN_DECODER_H_
