// A tiktoken vocabulary ("tiktoken.model", "hy.tiktoken"): a line for each token, its bytes in Base64 and its rank.
#ifndef MOE_LOADERS_TOKENIZER_TIKTOKEN_FILE_H_
#define MOE_LOADERS_TOKENIZER_TIKTOKEN_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

struct RankedToken {
  std::string bytes;  // Not always valid UTF-8.
  int32_t rank;       // Also its id.
};

// `counts_lines`: ranks are line numbers, whatever the lines say, and a token that is there again is left out;
// otherwise ranks are those of the lines, and a repetition is INVALID. `file`: its name, for messages. CORRUPT names
// the line.
StatusOr<std::vector<RankedToken>> ParseTiktokenFile(std::string_view text, std::string_view file, bool counts_lines);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_TIKTOKEN_FILE_H_
