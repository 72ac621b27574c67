#include "parallel/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "parallel/base/log_plain.h"

namespace moe {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::atomic<LogFormat> g_format{LogFormat::kText};

constexpr const char* kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};

// Time, level, text.
constexpr char kTextLine[] = "%s %-7s %s\n";
constexpr char kJsonLine[] = "{\"time\":\"%s\",\"level\":\"%s\",\"message\":\"%s\"}\n";

// The time now.
struct Stamp {
  char text[64];

  Stamp() {
    const auto now = std::chrono::system_clock::now();
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    const int millis =
        static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    std::snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                  utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, millis);
  }
};

std::string JsonEscape(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

void SetLogLevel(LogLevel level) {
  g_level = level;
}
void SetLogFormat(LogFormat format) {
  g_format = format;
}
LogLevel GetLogLevel() {
  return g_level;
}

std::string EscapeControl(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  char buffer[8];
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      std::snprintf(buffer, sizeof(buffer), "\\x%02x", byte);
      out += buffer;
    } else {
      out += c;
    }
  }
  return out;
}

void LogPlain(LogLevel level, const char* text) {
  const Stamp stamp;
  char line[1024];
  const char* format = g_format == LogFormat::kJson ? kJsonLine : kTextLine;
  const int wanted = std::snprintf(line, sizeof(line), format, stamp.text, kNames[static_cast<int>(level)], text);
  const auto size = static_cast<size_t>(std::clamp<int>(wanted, 0, sizeof(line) - 1));
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, size);
}

namespace internal {

LogLine::~LogLine() {
  const Stamp stamp;
  const std::string text = EscapeControl(text_.str());
  const char* name = kNames[static_cast<int>(level_)];
  // One fprintf a line: stdio locks the stream, so lines of several threads do not mix.
  if (g_format == LogFormat::kJson) {
    std::fprintf(stderr, kJsonLine, stamp.text, name, JsonEscape(text).c_str());
  } else {
    std::fprintf(stderr, kTextLine, stamp.text, name, text.c_str());
  }
}

}  // namespace internal
}  // namespace moe
