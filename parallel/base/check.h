// MOE_CHECK(condition) << details: an assertion about our own code, in every build. Failing ends the process with the
// condition, the details and the place. Never used for what a client, a file or a peer can cause.
#ifndef MOE_PARALLEL_BASE_CHECK_H_
#define MOE_PARALLEL_BASE_CHECK_H_

#include <sstream>

namespace moe::internal {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

}  // namespace moe::internal

#define MOE_CHECK(condition) \
  if (condition)             \
    [[likely]];              \
  else                       \
    ::moe::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define MOE_CHECK_EQ(a, b) MOE_CHECK((a) == (b)) << "(" << (a) << " vs " << (b) << ") "

#endif  // MOE_PARALLEL_BASE_CHECK_H_
