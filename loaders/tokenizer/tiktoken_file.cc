#include "loaders/tokenizer/tiktoken_file.h"

#include <charconv>
#include <unordered_set>
#include <utility>

#include "loaders/tokenizer/json_fields.h"

namespace moe {
namespace {

constexpr size_t kMaxFileBytes = size_t{16} << 20;  // The greatest known one has 4 MB.
constexpr size_t kMaxTokenBytes = 1024;             // Of known ones: 128.

int Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

// False where `text` is not what an encoder writes, padding included.
bool DecodeBase64(std::string_view text, std::string* bytes) {
  bytes->clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int digit = Base64Digit(c);
    if (digit < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes->push_back(static_cast<char>(bits >> num_bits & 0xFF));
    bits &= (1u << num_bits) - 1;
  }
  return bits == 0;
}

}  // namespace

StatusOr<std::vector<RankedToken>> ParseTiktokenFile(std::string_view text, std::string_view file, bool counts_lines) {
  if (text.size() > kMaxFileBytes) {
    return InvalidError(file, ": has ", text.size(), " bytes, expected at most ", kMaxFileBytes);
  }
  std::vector<RankedToken> tokens;
  std::unordered_set<std::string> seen;
  std::unordered_set<int32_t> ranks;
  for (size_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string where = Cat(file, ": line ", line_number);
    const size_t space = line.find(' ');
    RankedToken token;
    if (!DecodeBase64(line.substr(0, space), &token.bytes)) {
      return CorruptError(where, " does not begin with a token in Base64, or the file is cut");
    }
    if (token.bytes.size() > kMaxTokenBytes) {
      return InvalidError(where, ": a token of ", token.bytes.size(), " bytes, expected at most ", kMaxTokenBytes);
    }
    const std::string_view number = space == std::string_view::npos ? "" : line.substr(space + 1);
    int64_t rank = -1;
    const auto [number_end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
    if (error != std::errc() || number_end != number.data() + number.size() || number.empty()) {
      return CorruptError(where, " has no number behind the token, or the file is cut");
    }
    const bool repeated = !seen.insert(token.bytes).second;
    if (counts_lines) {
      if (repeated) continue;
      rank = static_cast<int64_t>(tokens.size());
    } else if (repeated) {
      return InvalidError(where, " repeats a token");
    }
    if (rank < 0 || rank > kMaxTokenId) {
      return InvalidError(where, ": the rank is ", rank, ", expected 0 to ", kMaxTokenId);
    }
    token.rank = static_cast<int32_t>(rank);
    if (!ranks.insert(token.rank).second) return InvalidError(where, " repeats the rank ", rank);
    tokens.push_back(std::move(token));
  }
  if (tokens.empty()) return CorruptError(file, ": no tokens");
  return tokens;
}

}  // namespace moe
