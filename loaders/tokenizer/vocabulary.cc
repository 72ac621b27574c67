#include "loaders/tokenizer/vocabulary.h"

namespace moe {

bool Vocabulary::Add(std::string_view token, int32_t id) {
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) {
    tokens_.resize(index + 1);
    used_.resize(index + 1, false);
  }
  if (used_[index]) return false;
  used_[index] = true;
  tokens_[index] = std::string(token);
  ids_.insert_or_assign(std::string(token), id);
  return true;
}

int32_t Vocabulary::Find(std::string_view token) const {
  const auto it = ids_.find(token);
  return it == ids_.end() ? kNone : it->second;
}

const std::string* Vocabulary::TokenOrNull(int32_t id) const {
  if (id < 0 || id >= size() || !used_[static_cast<size_t>(id)]) return nullptr;
  return &tokens_[static_cast<size_t>(id)];
}

}  // namespace moe
