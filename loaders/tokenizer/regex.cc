#include "loaders/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "loaders/tokenizer/regex_syntax.h"
#include "loaders/tokenizer/unicode.h"
#include "loaders/tokenizer/utf8.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

constexpr size_t kMaxPatternBytes = 64 * 1024;
constexpr uint32_t kMaxGroupNesting = 64;
// For one match, not for one text. Known patterns need a few steps per character of the match.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kInterpreterHeapKib = 64 * 1024;
constexpr size_t kJitStackStartBytes = 32 * 1024;
constexpr size_t kJitStackMaxBytes = 8 * 1024 * 1024;

// Each thread that matches has one of these: PCRE2 writes into them.
struct ThreadState {
  pcre2_match_data* match_data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* jit_stack = nullptr;

  ~ThreadState() {
    pcre2_match_data_free(match_data);
    if (jit_stack != nullptr) pcre2_jit_stack_free(jit_stack);
  }
};

ThreadState& LocalState() {
  thread_local ThreadState state;
  return state;
}

pcre2_jit_stack* LocalJitStack(void*) {
  ThreadState& state = LocalState();
  if (state.jit_stack == nullptr) {
    state.jit_stack = pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr);
  }
  return state.jit_stack;  // Null falls back to 32 KiB of the thread's own stack.
}

std::string ErrorText(int code) {
  PCRE2_UCHAR text[160];
  if (pcre2_get_error_message(code, text, sizeof(text)) < 0) return Cat("error ", code);
  return reinterpret_cast<const char*>(text);
}

// White space that reaches to the end of its line, as `\s+$` finds it.
void FindTrailingSpace(std::string_view text, std::vector<TextRange>* matches) {
  for (size_t pos = 0; pos < text.size();) {
    size_t run_begin = pos;
    if (!IsWhiteSpace(NextCodePoint(text, &pos))) continue;
    size_t last_newline = std::string_view::npos;
    size_t run_end = run_begin;
    for (size_t next = run_begin; next < text.size(); run_end = next) {
      const size_t at = next;
      const char32_t c = NextCodePoint(text, &next);
      if (!IsWhiteSpace(c)) break;
      if (c == '\n' && at > run_begin) last_newline = at;
    }
    if (run_end == text.size()) {
      matches->push_back({run_begin, run_end});
    } else if (last_newline != std::string_view::npos) {
      matches->push_back({run_begin, last_newline});
    }
    pos = run_end;
  }
}

}  // namespace

struct Regex::Code {
  pcre2_code* pattern = nullptr;
  pcre2_match_context* context = nullptr;

  ~Code() {
    if (context != nullptr) pcre2_match_context_free(context);
    if (pattern != nullptr) pcre2_code_free(pattern);
  }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() = default;

StatusOr<std::unique_ptr<Regex>> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) return UnsupportedError("a pattern of ", pattern.size(), " bytes");
  MOE_ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(pattern));
  pcre2_compile_context* compile_context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(compile_context, PCRE2_NEWLINE_LF);
  pcre2_set_bsr(compile_context, PCRE2_BSR_UNICODE);
  pcre2_set_parens_nest_limit(compile_context, kMaxGroupNesting);
  // Oniguruma's ^ and $ stand at every line: that is PCRE2_MULTILINE.
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  auto code = std::make_unique<Code>();
  code->pattern = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &error,
                                &error_offset, compile_context);
  pcre2_compile_context_free(compile_context);
  if (code->pattern == nullptr) {
    return UnsupportedError("a pattern that does not compile: ", ErrorText(error), " at offset ", error_offset, " of ",
                            translated);
  }
  // Without the just-in-time compiler (a hardened kernel may forbid it) the interpreter does the same, slower.
  pcre2_jit_compile(code->pattern, PCRE2_JIT_COMPLETE);
  code->context = pcre2_match_context_create(nullptr);
  MOE_CHECK(code->context != nullptr);
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kInterpreterHeapKib);
  pcre2_jit_stack_assign(code->context, &LocalJitStack, nullptr);
  std::unique_ptr<Regex> regex(new Regex(std::move(code)));
  regex->trailing_space_ = pattern == "\\s+$";
  return regex;
}

StatusOr<std::unique_ptr<Regex>> Regex::CompileLiteral(std::string_view text) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Regex> regex, Compile(EscapeRegex(text)));
  regex->literal_ = std::string(text);
  return regex;
}

Status Regex::FindAll(std::string_view text, std::vector<TextRange>* matches) const {
  matches->clear();
  if (!literal_.empty()) {
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      matches->push_back({at, at + literal_.size()});
    }
    return absl::OkStatus();
  }
  if (trailing_space_) {
    FindTrailingSpace(text, matches);
    return absl::OkStatus();
  }
  pcre2_match_data* match_data = LocalState().match_data;
  if (match_data == nullptr) return absl::ResourceExhaustedError("no memory for pattern matching");
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match_data);
  size_t from = 0;
  while (from <= text.size()) {
    const int result = pcre2_match(code_->pattern, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                   PCRE2_NO_UTF_CHECK, match_data, code_->context);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) return absl::ResourceExhaustedError(Cat("the text is too complex to split: ", ErrorText(result)));
    const TextRange match{range[0], range[1]};
    const bool empty = match.begin == match.end;
    if (empty && !matches->empty() && matches->back().end == match.end) {
      if (from >= text.size()) break;
      NextCodePoint(text, &from);
      continue;
    }
    matches->push_back(match);
    from = match.end;
  }
  return absl::OkStatus();
}

}  // namespace moe
