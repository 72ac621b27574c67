// Chat templates: the Jinja2 programs in tokenizer_config.json that turn messages into a prompt.
//
// The language is the one of Hugging Face transformers' apply_chat_template (trim_blocks, lstrip_blocks, immutable
// sandbox, loop controls, generation blocks, tojson that escapes nothing, raise_exception, strftime_now), and so is the
// treatment of messages: keys with the value null are dropped, reasoning_content, thinking and reasoning stand in for
// one another. Not offered: include, import, extends, block, autoescape, \N{…} escapes, integers over 64 bits, and the
// filters random, pprint, xmlattr, urlize, striptags, wordwrap, filesizeformat. `safe` and `escape` give plain strings.
//
// A template comes with a model, messages come from anybody: neither is trusted with time, memory or stack (see Limits
// in runtime.h), and no text of a message is ever evaluated.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_CHAT_TEMPLATE_H_
#define MOE_LOADERS_CHAT_TEMPLATE_CHAT_TEMPLATE_H_

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

// A stretch of the prompt and where it comes from. `trusted`: written by the template (its text, the string constants
// in its expressions, special tokens like bos_token). Everything else came from messages, tools or arguments, and must
// not be read as control tokens. Text whose characters were computed from both is not trusted.
//
// One exception: the role of a message, if it is a word of the usual set (system, developer, user, assistant, tool,
// function, ipython, model), is trusted. Some templates build control tokens around it, '<|' + message.role + '|>', and
// nobody can say anything with a word from a fixed list.
struct RenderedPiece {
  std::string text;
  bool trusted;
};

struct ChatRenderInput {
  nlohmann::ordered_json messages;  // Array of objects, at least one.
  nlohmann::ordered_json tools;     // Array of objects, or null.
  bool add_generation_prompt = true;
  // The prompt ends where the last message's content does. Not together with add_generation_prompt.
  bool continue_final_message = false;
  // Further variables of the template (object or null), e.g. enable_thinking. They may replace special tokens, not
  // messages, tools and add_generation_prompt.
  nlohmann::ordered_json arguments;
  // What strftime_now sees, as local time. Default: the clock.
  std::optional<std::chrono::system_clock::time_point> now;
};

class ChatTemplate {
 public:
  // Parses `source`. special_tokens: name → text, e.g. {"bos_token", "<s>"}. `file` is used in errors
  // ("tokenizer_config.json" or "chat_template.jinja"). INVALID: bad syntax, with the line. UNSUPPORTED: a tag, filter
  // or test that this engine does not have.
  static StatusOr<std::unique_ptr<ChatTemplate>> Create(std::string_view source,
                                                        std::map<std::string, std::string> special_tokens,
                                                        std::string_view file);
  ~ChatTemplate();

  // The prompt, as pieces; neighbours differ in `trusted`, none is empty. Thread-safe. Errors are kInvalidArgument:
  // what the template says through raise_exception, word for word; else "FILE: chat_template line N: …", which includes
  // exceeded limits; or what is wrong with the input.
  StatusOr<std::vector<RenderedPiece>> Render(const ChatRenderInput& input) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

std::string JoinPieces(const std::vector<RenderedPiece>& pieces);

}  // namespace moe

#endif  // MOE_LOADERS_CHAT_TEMPLATE_CHAT_TEMPLATE_H_
