#include "loaders/chat_template/chat_messages.h"

#include <algorithm>

#include "loaders/chat_template/strings.h"

namespace moe::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kRoles[] = {"system", "developer", "user",    "assistant",
                                       "tool",   "function",  "ipython", "model"};
// The first is the one that templates read; gpt-oss reads "thinking".
constexpr std::string_view kReasoningKeys[] = {"reasoning_content", "thinking", "reasoning"};

Value Key(Runtime& rt, std::string_view name) {
  return rt.View(name, /*trusted=*/true);
}

Value RoleFromJson(Runtime& rt, const Json& role) {
  const auto* text = role.get_ptr<const std::string*>();
  const bool usual = text != nullptr && std::find(std::begin(kRoles), std::end(kRoles), *text) != std::end(kRoles);
  return usual ? rt.View(*text, /*trusted=*/true) : FromJson(rt, role, 2);
}

Value MessageFromJson(Runtime& rt, const Json& message) {
  DictObject* dict = nullptr;
  Value out = rt.NewDict(&dict, /*trusted=*/false);
  Value reasoning;
  for (const std::string_view key : kReasoningKeys) {
    const auto found = message.find(std::string(key));
    if (found == message.end() || found->is_null()) continue;
    reasoning = FromJson(rt, *found, 2);
    rt.Put(dict, Key(rt, "thinking"), reasoning);
    break;
  }
  for (auto it = message.begin(); it != message.end() && rt.ok(); ++it) {
    if (it.value().is_null()) continue;
    rt.Put(dict, rt.View(it.key(), false),
           it.key() == "role" ? RoleFromJson(rt, it.value()) : FromJson(rt, it.value(), 2));
  }
  if (!reasoning.IsUndefined()) rt.Put(dict, Key(rt, "reasoning_content"), reasoning);
  return out;
}

Value WithTag(Runtime& rt, const Value& text) {
  Text tagged(rt);
  tagged.Append(text.string());
  tagged.Append(kContinueTag, /*trusted=*/false);
  return tagged.Finish();
}

// Appends the tag to the text of `message`: its content, or the last part of that which has text.
Value TagMessage(Runtime& rt, const Value& message) {
  const Value* content = message.dict().Find("content");
  if (content == nullptr) {
    return rt.Raise("continue_final_message is set but the final message has no \"content\" to continue!");
  }
  if (content->IsString()) {
    Value text = *content;
    message.dict().Set(Key(rt, "content"), WithTag(rt, text));
    return text;
  }
  if (content->IsList()) {
    auto& parts = content->list().items;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      const Value* text = part->IsDict() ? part->dict().Find("text") : nullptr;
      if (text == nullptr || !text->IsString()) continue;
      Value untagged = *text;
      part->dict().Set(Key(rt, "text"), WithTag(rt, untagged));
      return untagged;
    }
  }
  return rt.Raise("continue_final_message is set but we could not find any text to continue in the final message!");
}

}  // namespace

Value FromJson(Runtime& rt, const Json& json, int depth) {
  if (!rt.Step()) return Value();
  if (depth > rt.limits().value_depth) {
    return rt.Raise(Cat("the request is nested deeper than ", rt.limits().value_depth, " levels"));
  }
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(*json.get_ptr<const bool*>(), false);
    case Json::value_t::number_integer:
      return Value::Int(*json.get_ptr<const Json::number_integer_t*>(), false);
    case Json::value_t::number_unsigned: {
      const uint64_t n = *json.get_ptr<const Json::number_unsigned_t*>();
      return n <= static_cast<uint64_t>(INT64_MAX) ? Value::Int(static_cast<int64_t>(n), false)
                                                   : Value::BigInt(n, false);
    }
    case Json::value_t::number_float:
      return Value::Float(*json.get_ptr<const Json::number_float_t*>(), false);
    case Json::value_t::string:
      return rt.View(*json.get_ptr<const std::string*>(), false);
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) {
        items.push_back(FromJson(rt, item, depth + 1));
        if (!rt.ok()) break;
      }
      return rt.NewList(std::move(items), ListKind::kList, /*trusted=*/false);
    }
    case Json::value_t::object: {
      DictObject* dict = nullptr;
      Value out = rt.NewDict(&dict, /*trusted=*/false);
      for (auto it = json.begin(); it != json.end() && rt.ok(); ++it) {
        rt.Put(dict, rt.View(it.key(), false), FromJson(rt, it.value(), depth + 1));
      }
      return out;
    }
    default:
      return Value::None(/*trusted=*/false);
  }
}

Value MessagesFromJson(Runtime& rt, const Json& messages, Value* continued) {
  std::vector<Value> items;
  for (const Json& message : messages) {
    items.push_back(MessageFromJson(rt, message));
    if (!rt.ok()) return Value();
  }
  if (continued != nullptr) *continued = TagMessage(rt, items.back());
  return rt.NewList(std::move(items), ListKind::kList, /*trusted=*/false);
}

Value CutAtContinueTag(Runtime& rt, const Value& prompt, const Value& continued) {
  const std::string_view text = prompt.text();
  const std::string_view bare_tag = kContinueTag.substr(0, kContinueTag.size() - 1);
  const Value wanted = Strip(rt, continued, nullptr, true, true);
  const size_t at = text.rfind(bare_tag);
  if (at == std::string_view::npos || text.find(wanted.text()) == std::string_view::npos) {
    return rt.Raise(
        "continue_final_message is set but the final message does not appear in the chat after applying the chat "
        "template! This can happen if the chat template deletes portions of the final message.");
  }
  const Value head = rt.Slice(prompt, 0, at);
  // Where the template trimmed the message, it would have trimmed the end of this one as well.
  const bool spacing_kept = text.substr(at, kContinueTag.size()) == kContinueTag;
  return spacing_kept ? head : Strip(rt, head, nullptr, false, true);
}

}  // namespace moe::chat
