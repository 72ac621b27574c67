// Character classes and normal forms, as far as tokenizers need them.
#ifndef MOE_LOADERS_TOKENIZER_UNICODE_H_
#define MOE_LOADERS_TOKENIZER_UNICODE_H_

#include <string>
#include <string_view>

namespace moe {

bool IsWhiteSpace(char32_t c);     // property White_Space
bool IsNumber(char32_t c);         // categories Nd, Nl, No
bool IsPunctuation(char32_t c);    // categories P*, and the ASCII symbols
bool IsMark(char32_t c);           // categories Mn, Mc, Me
bool IsWordCharacter(char32_t c);  // what \w means: letters, marks, decimal digits, connectors, joiners

// Appends the lower-case form. One character becomes two: U+0130.
void AppendLowercase(char32_t c, std::string* out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// REQUIRES: `text` is valid UTF-8. Time n log n also for text that is nothing but combining marks.
std::string Normalize(NormalForm form, std::string_view text);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_UNICODE_H_
