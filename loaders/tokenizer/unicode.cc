#include "loaders/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "loaders/tokenizer/utf8.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Characters whose decomposition is younger than Unicode 9. The tokenizers library, whose ids are the measure, has that
// version's tables and leaves them as they are.
bool IsWholeInUnicode9(char32_t c) {
  if (c < 0x32FF) return false;
  return c == 0x32FF || (c >= 0xA7F2 && c <= 0xA7F4) || c == 0xAB69 || (c >= 0x10781 && c <= 0x107BA) || c == 0x11938 ||
         (c >= 0x1E030 && c <= 0x1E06D) || c == 0x1F16C || (c >= 0x1FBF0 && c <= 0x1FBF9);
}

// Decomposes character by character. utf8proc's own whole-string call orders combining marks by exchanging neighbours,
// which takes quadratic time on a long run of marks; untrusted text may be one.
std::vector<utf8proc_int32_t> Decompose(std::string_view text, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  int boundclass = 0;
  utf8proc_int32_t expanded[64];  // The longest decomposition, that of U+FDFA, has 18 characters.
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, &pos);
    if (IsWholeInUnicode9(c)) {
      points.push_back(static_cast<utf8proc_int32_t>(c));
      continue;
    }
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), expanded, 64, options, &boundclass);
    MOE_CHECK(count >= 0 && count <= 64) << "U+" << std::hex << static_cast<uint32_t>(c);
    points.insert(points.end(), expanded, expanded + count);
  }
  return points;
}

// Canonical ordering: each run of characters with a non-zero combining class is sorted by it, stably.
void OrderMarks(std::vector<utf8proc_int32_t>* points) {
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  std::vector<std::pair<int, utf8proc_int32_t>> run;
  for (size_t begin = 0; begin < points->size();) {
    if ((*points)[begin] < 0x300) {  // No combining marks below U+0300.
      ++begin;
      continue;
    }
    run.clear();
    size_t end = begin;
    for (; end < points->size(); ++end) {
      const int mark_class = combining_class((*points)[end]);
      if (mark_class == 0) break;
      run.emplace_back(mark_class, (*points)[end]);
    }
    std::stable_sort(run.begin(), run.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < run.size(); ++i) (*points)[begin + i] = run[i].second;
    begin = std::max(end, begin + 1);
  }
}

void Compose(std::vector<utf8proc_int32_t>* points) {
  // It composes with nothing, but utf8proc takes it for a final consonant of Hangul, the one before the first, and
  // drops it: the parts between are composed one by one.
  constexpr utf8proc_int32_t kNoFinalConsonant = 0x11A7;
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  auto end_of_result = points->begin();
  for (auto begin = points->begin(); begin != points->end();) {
    auto end = std::find(begin, points->end(), kNoFinalConsonant);
    const auto length = utf8proc_normalize_utf32(points->data() + (begin - points->begin()), end - begin, kOptions);
    MOE_CHECK(length >= 0);
    end_of_result = std::copy_n(begin, length, end_of_result);
    if (end != points->end()) *end_of_result++ = *end++;
    begin = end;
  }
  points->erase(end_of_result, points->end());
}

}  // namespace

bool IsWhiteSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsNumber(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsMark(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsWordCharacter(char32_t c) {
  if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  const auto category = Category(c);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;  // L*, M*, Nd, Nl
  if (category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  // Circled and squared letters are symbols, and alphabetic all the same.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

void AppendLowercase(char32_t c, std::string* out) {
  if (c == 0x130) {
    out->append("i\xCC\x87");
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

std::string Normalize(NormalForm form, std::string_view text) {
  if (IsAscii(text)) return std::string(text);
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  std::vector<utf8proc_int32_t> points = Decompose(text, static_cast<utf8proc_option_t>(options));
  OrderMarks(&points);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    Compose(&points);
  }
  std::string result;
  result.reserve(text.size());
  for (const utf8proc_int32_t c : points) AppendUtf8(static_cast<char32_t>(c), &result);
  return result;
}

}  // namespace moe
