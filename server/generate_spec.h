// GenerateSpec: a GenerateRequest, checked, with every default filled in; what is left to do is encoding the prompt.
#ifndef MOE_SERVER_GENERATE_SPEC_H_
#define MOE_SERVER_GENERATE_SPEC_H_

#include <memory>
#include <string>

#include "engine/schedule/request.h"
#include "server/output_assembler.h"

namespace moe {

struct ChatPrompt;

struct GenerateSpec {
  enum class Input { kText, kTokens, kChat };
  Input input = Input::kTokens;
  std::string text;                        // kText
  std::shared_ptr<const ChatPrompt> chat;  // kChat
  Request request;                         // its prompt is there for kTokens only
  TextWanted text_wanted;
};

}  // namespace moe

#endif  // MOE_SERVER_GENERATE_SPEC_H_
