#include "loaders/chat_template/chat_templates.h"

namespace moe {
namespace {

using Json = nlohmann::ordered_json;

// The text of a token as configurations write it: a string, or an object with "content". Null for anything else.
const std::string* TokenText(const Json& value) {
  if (value.is_object()) {
    const auto content = value.find("content");
    return content == value.end() ? nullptr : content->get_ptr<const std::string*>();
  }
  return value.get_ptr<const std::string*>();
}

const std::string* TextAt(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

}  // namespace

StatusOr<std::unique_ptr<ChatTemplates>> ChatTemplates::Create(const Json& value,
                                                               const std::map<std::string, std::string>& special_tokens,
                                                               std::string_view file) {
  std::unique_ptr<ChatTemplates> templates(new ChatTemplates);
  if (const auto* source = value.get_ptr<const std::string*>()) {
    MOE_ASSIGN_OR_RETURN(templates->default_, ChatTemplate::Create(*source, special_tokens, file));
    return templates;
  }
  if (!value.is_array())
    return InvalidError(file, ": chat_template is ", value.type_name(), ", expected a string or a list");
  for (const Json& entry : value) {
    const std::string* name = entry.is_object() ? TextAt(entry, "name") : nullptr;
    const std::string* source = entry.is_object() ? TextAt(entry, "template") : nullptr;
    if (name == nullptr || source == nullptr) {
      return InvalidError(file, ": chat_template: an entry is not an object with the strings name and template");
    }
    if (*name != "default" && *name != "tool_use") continue;
    auto& slot = *name == "default" ? templates->default_ : templates->tool_use_;
    MOE_ASSIGN_OR_RETURN(slot, ChatTemplate::Create(*source, special_tokens, file));
  }
  if (templates->default_ == nullptr)
    return InvalidError(file, ": chat_template is a list without the name \"default\"");
  return templates;
}

const ChatTemplate& ChatTemplates::Select(const ChatRenderInput& input) const {
  return tool_use_ != nullptr && !input.tools.is_null() ? *tool_use_ : *default_;
}

StatusOr<std::vector<RenderedPiece>> ChatTemplates::Render(const ChatRenderInput& input) const {
  if (!sorts_tools_ || input.tools.is_null()) return Select(input).Render(input);
  ChatRenderInput sorted = input;
  sorted.tools = nlohmann::json(input.tools);  // Which keeps its keys in order.
  return Select(input).Render(sorted);
}

std::map<std::string, std::string> SpecialTokensFromConfig(const Json& config) {
  std::map<std::string, std::string> tokens;
  if (!config.is_object()) return tokens;
  constexpr std::string_view kSuffix = "_token";
  for (auto it = config.begin(); it != config.end(); ++it) {
    const std::string& key = it.key();
    const bool named =
        key.size() > kSuffix.size() && key.compare(key.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0;
    const std::string* text = named ? TokenText(it.value()) : nullptr;
    if (text != nullptr) tokens[key] = *text;
  }
  const auto extra = config.find("extra_special_tokens");
  if (extra != config.end() && extra->is_object()) {
    for (auto it = extra->begin(); it != extra->end(); ++it) {
      if (const std::string* text = TokenText(it.value())) tokens[it.key()] = *text;
    }
  }
  return tokens;
}

bool SortsTools(const Json& config) {
  if (!config.is_object()) return false;
  const std::string* name = TextAt(config, "tokenizer_class");
  return name != nullptr && *name == "TikTokenTokenizer";
}

StatusOr<std::unique_ptr<ChatTemplates>> ChatTemplatesFromConfig(const Json& config, std::string_view file) {
  if (!config.is_object() || !config.contains("chat_template") || config["chat_template"].is_null()) {
    return InvalidError(file, ": there is no chat_template");
  }
  return ChatTemplates::Create(config["chat_template"], SpecialTokensFromConfig(config), file);
}

}  // namespace moe
