// The settings of Metaspace, which is a pre-tokenizer and a decoder: a visible character stands for the space.
#ifndef MOE_LOADERS_TOKENIZER_METASPACE_H_
#define MOE_LOADERS_TOKENIZER_METASPACE_H_

#include <string>
#include <string_view>

#include "loaders/tokenizer/json_fields.h"
#include "parallel/base/status.h"

namespace moe {

struct Metaspace {
  // Where a mark is put in front of text that does not begin with one: nowhere, before the whole text, before each part
  // between added tokens.
  enum Scheme { kNever, kFirst, kAlways };

  std::string replacement;  // One character.
  Scheme scheme = kAlways;
  bool split = true;
};

StatusOr<Metaspace> ReadMetaspace(const Json& json, std::string_view where);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_METASPACE_H_
