#include "server/delta.h"

#include <iterator>
#include <utility>

namespace moe {
namespace {

template <typename T>
void MoveTo(std::vector<T>& to, std::vector<T>&& from) {
  if (to.empty()) {
    to = std::move(from);
  } else {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }
}

int64_t TokenBytes(const std::vector<TokenInfo>& tokens) {
  int64_t bytes = 0;
  for (const TokenInfo& token : tokens) {
    bytes += static_cast<int64_t>(sizeof(TokenInfo) + token.top.size() * sizeof(TokenProb));
  }
  return bytes;
}

}  // namespace

void Delta::Append(Delta later) {
  text += later.text;
  MoveTo(tokens, std::move(later.tokens));
  MoveTo(prompt_tokens, std::move(later.prompt_tokens));
  MoveTo(expert_ids, std::move(later.expert_ids));
  expert_rows += later.expert_rows;
  if (later.finish != FinishReason::kNone) finish = later.finish;
  if (!later.stop_match.empty()) stop_match = std::move(later.stop_match);
}

int64_t Delta::Bytes() const {
  return static_cast<int64_t>(sizeof(Delta) + text.size() + stop_match.size() + expert_ids.size() * sizeof(int32_t)) +
         TokenBytes(tokens) + TokenBytes(prompt_tokens);
}

}  // namespace moe
