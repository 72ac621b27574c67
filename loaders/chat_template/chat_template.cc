#include "loaders/chat_template/chat_template.h"

#include <utility>

#include "loaders/chat_template/chat_messages.h"
#include "loaders/chat_template/evaluator.h"
#include "loaders/chat_template/parser.h"

namespace moe {

using chat::Value;

struct ChatTemplate::Impl {
  chat::Syntax syntax;
  std::map<std::string, std::string> special_tokens;
  std::string file;
  bool mentions_content = false;
};

namespace {

Status CheckInput(const ChatRenderInput& input) {
  if (!input.messages.is_array() || input.messages.empty()) {
    return InvalidError("Cannot apply chat template to an empty conversation. Provide at least one message.");
  }
  for (const auto& message : input.messages) {
    if (!message.is_object()) return InvalidError("chat messages must be objects");
  }
  if (!input.tools.is_null() && !input.tools.is_array()) return InvalidError("tools must be an array");
  for (const auto& tool : input.tools) {
    if (!tool.is_object()) return InvalidError("tools must be objects (JSON schemas)");
  }
  if (!input.arguments.is_null() && !input.arguments.is_object()) {
    return InvalidError("template arguments must be an object");
  }
  for (const char* reserved : {"messages", "tools", "add_generation_prompt", "continue_final_message"}) {
    if (input.arguments.contains(reserved)) return InvalidError("a template argument cannot be named '", reserved, "'");
  }
  if (input.continue_final_message && input.add_generation_prompt) {
    return InvalidError(
        "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you want "
        "the model to continue the final message, and add_generation_prompt when you want to add a header that will "
        "prompt it to start a new assistant message instead.");
  }
  return absl::OkStatus();
}

std::vector<RenderedPiece> PiecesOf(const chat::StringData& prompt) {
  std::vector<RenderedPiece> pieces;
  if (prompt.view.empty()) return pieces;
  if (prompt.runs.empty()) return {{std::string(prompt.view), prompt.trusted}};
  size_t at = 0;
  for (const chat::Run& run : prompt.runs) {
    pieces.push_back({std::string(prompt.view.substr(at, run.length)), run.trusted});
    at += run.length;
  }
  return pieces;
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(std::string_view source,
                                                             std::map<std::string, std::string> special_tokens,
                                                             std::string_view file) {
  auto impl = std::make_unique<Impl>();
  MOE_ASSIGN_OR_RETURN(impl->syntax, chat::Parse(source, file));
  impl->special_tokens = std::move(special_tokens);
  impl->file = file;
  impl->mentions_content = source.find("content") != std::string_view::npos;
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

StatusOr<std::vector<RenderedPiece>> ChatTemplate::Render(const ChatRenderInput& input) const {
  MOE_RETURN_IF_ERROR(CheckInput(input));
  if (input.continue_final_message && !impl_->mentions_content) {
    return InvalidError(
        "continue_final_message is set to \"content\" but this is not an accepted field in the chat_template");
  }
  chat::Runtime runtime(impl_->file, chat::Limits());
  runtime.now = input.now.value_or(std::chrono::system_clock::now());
  chat::Evaluator evaluator(runtime, impl_->syntax);
  for (const auto& [name, text] : impl_->special_tokens) {
    evaluator.Define(name, runtime.View(text, /*trusted=*/true));
  }
  evaluator.Define("documents", Value::None());
  for (auto it = input.arguments.begin(); it != input.arguments.end(); ++it) {
    if (evaluator.Mentions(it.key())) evaluator.Define(it.key(), chat::FromJson(runtime, it.value()));
  }
  Value continued;
  evaluator.Define(
      "messages", chat::MessagesFromJson(runtime, input.messages, input.continue_final_message ? &continued : nullptr));
  evaluator.Define("tools", chat::FromJson(runtime, input.tools));
  evaluator.Define("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  Value prompt;
  {
    chat::Text out(runtime);
    if (runtime.ok()) evaluator.Run(&out);
    prompt = out.Finish();
  }
  if (runtime.ok() && input.continue_final_message) prompt = chat::CutAtContinueTag(runtime, prompt, continued);
  if (!runtime.ok()) return runtime.status();
  return PiecesOf(prompt.string());
}

std::string JoinPieces(const std::vector<RenderedPiece>& pieces) {
  std::string text;
  for (const RenderedPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace moe
