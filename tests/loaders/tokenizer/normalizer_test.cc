#include "loaders/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include "loaders/tokenizer/unicode.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

std::string Normalized(const Json& json, std::string text) {
  const auto normalizer = CreateNormalizer(&json, "normalizer");
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  EXPECT_TRUE((*normalizer)->Apply(&text).ok());
  return text;
}

TEST(Normalizer, NormalForms) {
  const std::string text = "e\u0301 \uFB01 \uAC00 A\u030A";
  EXPECT_EQ(Normalized({{"type", "NFC"}}, text), "\u00E9 \uFB01 \uAC00 \u00C5");
  EXPECT_EQ(Normalized({{"type", "NFD"}}, "\u00E9\uAC00"), "e\u0301\u1100\u1161");
  EXPECT_EQ(Normalized({{"type", "NFKC"}}, text), "\u00E9 fi \uAC00 \u00C5");
  EXPECT_EQ(Normalized({{"type", "NFKD"}}, "\uFB01\u00E9\uFDFA").substr(0, 5), "fie\u0301");
  // Marks are put in canonical order; those of one class keep theirs.
  EXPECT_EQ(Normalized({{"type", "NFC"}}, "x\u0301\u0316"), "x\u0316\u0301");
  EXPECT_EQ(Normalized({{"type", "NFD"}}, "x\u0301\u0300"), "x\u0301\u0300");
  EXPECT_EQ(Normalized({{"type", "NFC"}}, "a\u0323\u0302"), "\u1EAD");
  // Composition exclusions, and characters that normalise to others.
  EXPECT_EQ(Normalized({{"type", "NFC"}}, "\u0958"), "\u0915\u093C");
  EXPECT_EQ(Normalized({{"type", "NFC"}}, "\u212B\u2126"), "\u00C5\u03A9");
  EXPECT_EQ(Normalized({{"type", "NFC"}}, "\u11A7\u1101\u1173\u11A7\u1101\u1173\u11A8"), "\u11A7\uB044\u11A7\uB045");
  EXPECT_EQ(Normalized({{"type", "NFC"}}, std::string("a\0\u00E9", 4)), std::string("a\0\u00E9", 4));
}

// As the tokenizers library has it, whose tables are those of Unicode 9: what was given a decomposition later stays.
TEST(Normalizer, YoungCharactersStay) {
  const std::string young = "\u32FF \uA7F2 \uAB69 \U00010781 \U0001E030 \U0001F16C \U0001FBF0";
  EXPECT_EQ(Normalized({{"type", "NFKC"}}, young), young);
  EXPECT_EQ(Normalized({{"type", "NFKD"}}, young + "\U00011938"), young + "\U00011938");
  EXPECT_EQ(Normalized({{"type", "NFKC"}}, "\u32FE\u3300 \uA7F8 \uAB5F \U0001F16B"),
            "\u30F2\u30A2\u30D1\u30FC\u30C8 \u0126 \uAB52 MD");
}

// Four steps of a thousandfold growth would make ten terabytes of ten characters.
TEST(Normalizer, GrowthIsBounded) {
  Json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  const Json json = {{"type", "Sequence"}, {"normalizers", {step, step, step, step}}};
  const auto normalizer = CreateNormalizer(&json, "normalizer");
  ASSERT_TRUE(normalizer.ok()) << normalizer.status();
  std::string text(10, 'a');
  EXPECT_EQ((*normalizer)->Apply(&text).code(), absl::StatusCode::kResourceExhausted);
}

TEST(Normalizer, NormalFormsAreIdempotent) {
  for (char32_t c = 1; c < 0x30000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
      const std::string once = Normalize(form, text);
      ASSERT_EQ(Normalize(form, once), once) << "U+" << std::hex << static_cast<uint32_t>(c);
    }
    ASSERT_EQ(Normalize(NormalForm::kNfc, Normalize(NormalForm::kNfd, text)), Normalize(NormalForm::kNfc, text));
  }
}

TEST(Normalizer, Others) {
  EXPECT_EQ(Normalized({{"type", "Lowercase"}}, "ÀBC\u0130ß"), "àbci\u0307ß");
  EXPECT_EQ(Normalized({{"type", "StripAccents"}}, "e\u0301a\u0323x"), "eax");
  EXPECT_EQ(Normalized({{"type", "Prepend"}, {"prepend", "▁"}}, "a"), "▁a");
  EXPECT_EQ(Normalized({{"type", "Prepend"}, {"prepend", "▁"}}, ""), "");
  EXPECT_EQ(Normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, " \u3000a b\u00A0\n"), "a b");
  EXPECT_EQ(Normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, "  a "), "a ");
  EXPECT_EQ(Normalized({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a "), " a");
  EXPECT_EQ(Normalized({{"type", "Strip"}}, "  \t "), "");
  EXPECT_EQ(Normalized({{"type", "ByteLevel"}}, "a é"), "aĠÃ©");
  const Json literal = {{"type", "Replace"}, {"pattern", {{"String", "a.b"}}}, {"content", "$0"}};
  EXPECT_EQ(Normalized(literal, "xa.baab a.b"), "x$0aab $0");
  const Json regex = {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}};
  EXPECT_EQ(Normalized(regex, "a   b  c d"), "a b c d");
  const Json sequence = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, regex, {{"type", "Lowercase"}}}}};
  EXPECT_EQ(Normalized(sequence, "E\u0301  X"), "\u00E9 x");
  EXPECT_EQ(*CreateNormalizer(nullptr, "normalizer"), nullptr);
}

TEST(Utf8, RoundTripOfEveryCharacter) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_TRUE(IsValidUtf8(text));
    size_t pos = 0;
    ASSERT_EQ(NextCodePoint(text, &pos), c);
    ASSERT_EQ(pos, text.size());
    ASSERT_EQ(PreviousCodePoint(text, text.size()), c);
    const bool cut_is_valid = IsValidUtf8(std::string_view(text).substr(0, text.size() - 1));
    ASSERT_EQ(cut_is_valid, text.size() == 1);
  }
}

}  // namespace
}  // namespace moe
