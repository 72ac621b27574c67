// MOE_LOG(kInfo) << "text": one line on stderr, as text or JSON (SetLogFormat). Control characters are escaped, so that
// nothing from outside can forge lines or move a terminal. Prompts and outputs are never logged.
#ifndef MOE_PARALLEL_BASE_LOG_H_
#define MOE_PARALLEL_BASE_LOG_H_

#include <sstream>
#include <string>
#include <string_view>

namespace moe {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };
enum class LogFormat { kText, kJson };

void SetLogLevel(LogLevel level);
void SetLogFormat(LogFormat format);
LogLevel GetLogLevel();

// Replaces control characters (and a lone ESC, DEL, line ends) by \xNN or \n, \r, \t.
std::string EscapeControl(std::string_view text);

namespace internal {
class LogLine {
 public:
  explicit LogLine(LogLevel level) : level_(level) {}
  ~LogLine();
  std::ostream& stream() { return text_; }

 private:
  LogLevel level_;
  std::ostringstream text_;
};
}  // namespace internal
}  // namespace moe

#define MOE_LOG(level)                                 \
  if (::moe::LogLevel::level < ::moe::GetLogLevel()) { \
  } else                                               \
    ::moe::internal::LogLine(::moe::LogLevel::level).stream()

#endif  // MOE_PARALLEL_BASE_LOG_H_
