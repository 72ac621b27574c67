// Requests as template values.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_CHAT_MESSAGES_H_
#define MOE_LOADERS_CHAT_TEMPLATE_CHAT_MESSAGES_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

// An untrusted value. Its strings are views into `json`, which must outlive the render.
Value FromJson(Runtime& runtime, const nlohmann::ordered_json& json, int depth = 0);

// What transformers appends to a message that is to be continued, to find its end in the prompt.
inline constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

// The variable `messages`: null keys dropped, names for reasoning completed, usual roles trusted. If `continued` is not
// null, kContinueTag is appended to the text of the last message and *continued is that text without it.
// REQUIRES: an array of objects.
Value MessagesFromJson(Runtime& runtime, const nlohmann::ordered_json& messages, Value* continued);

// Cuts a prompt rendered from messages with the tag after the text `continued`.
Value CutAtContinueTag(Runtime& runtime, const Value& prompt, const Value& continued);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_CHAT_MESSAGES_H_
