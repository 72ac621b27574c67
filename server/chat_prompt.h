// ChatPrompt: a conversation, checked and parsed, ready for the chat template.
#ifndef MOE_SERVER_CHAT_PROMPT_H_
#define MOE_SERVER_CHAT_PROMPT_H_

#include "loaders/chat_template/chat_template.h"

namespace moe {

struct ChatPrompt : ChatRenderInput {};

}  // namespace moe

#endif  // MOE_SERVER_CHAT_PROMPT_H_
