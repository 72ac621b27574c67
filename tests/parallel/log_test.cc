#include "parallel/base/log_plain.h"

#include <gtest/gtest.h>

#include "parallel/base/status.h"

namespace moe {
namespace {

TEST(Log, ControlCharactersAreEscaped) {
  EXPECT_EQ(EscapeControl("a\nb\tc\x1b[31m\x7f\r"), "a\\nb\\tc\\x1b[31m\\x7f\\r");
  EXPECT_EQ(EscapeControl("naïve 日本"), "naïve 日本");
}

TEST(Log, PlainLinesLookLikeTheOthers) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    SetLogFormat(format);
    ::testing::internal::CaptureStderr();
    MOE_LOG(kError) << "out of memory";
    std::string usual = ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();
    LogPlain(LogLevel::kError, "out of memory");
    std::string plain = ::testing::internal::GetCapturedStderr();
    const auto hide_time = [](std::string* line) {
      for (char& c : *line) c = c >= '0' && c <= '9' ? '0' : c;
    };
    hide_time(&usual);
    hide_time(&plain);
    EXPECT_EQ(plain, usual);
  }
  SetLogFormat(LogFormat::kText);
}

TEST(Log, JsonLinesAreOneLineAndQuoted) {
  testing::internal::CaptureStderr();
  SetLogFormat(LogFormat::kJson);
  MOE_LOG(kInfo) << "say \"hi\"\nforged line";
  MOE_LOG(kDebug) << "below the level";
  SetLogFormat(LogFormat::kText);
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
  EXPECT_NE(out.find(R"("message":"say \"hi\"\\nforged line")"), std::string::npos) << out;
}

TEST(Status, KindsAndAnnotation) {
  EXPECT_EQ(DescribeError(InvalidError("f", 1)), "INVALID: f1");
  EXPECT_EQ(ErrorKind(UnsupportedError("x")), "UNSUPPORTED");
  EXPECT_EQ(ErrorKind(CorruptError("x")), "CORRUPT");
  EXPECT_EQ(ErrorKind(absl::NotFoundError("x")), "NOT_FOUND");
  EXPECT_EQ(Annotate(CorruptError("bad"), "file").message(), "file: bad");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "file").ok());
}

}  // namespace
}  // namespace moe
