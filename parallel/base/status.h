// Error handling: failure of the outside world is an absl::Status, our own bugs are MOE_CHECKs.
//
// Errors of files use three kinds (how to read a message and what to do differs):
//   INVALID      kInvalidArgument  well-formed bytes that break a rule
//   UNSUPPORTED  kUnimplemented    legal, but not offered by this product
//   CORRUPT      kDataLoss         bytes are damaged, cut or absent
// A message names the file (base name), the field or tensor, what was found and what was expected.
#ifndef MOE_PARALLEL_BASE_STATUS_H_
#define MOE_PARALLEL_BASE_STATUS_H_

#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moe {

using absl::Status;
using absl::StatusOr;

// Concatenates anything that has operator<<. Used instead of absl::StrCat, because absl::string_view and
// std::string_view are different types on some distributions.
template <typename... Args>
std::string Cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

template <typename... Args>
Status InvalidError(const Args&... args) {
  return absl::InvalidArgumentError(Cat(args...));
}
template <typename... Args>
Status UnsupportedError(const Args&... args) {
  return absl::UnimplementedError(Cat(args...));
}
template <typename... Args>
Status CorruptError(const Args&... args) {
  return absl::DataLossError(Cat(args...));
}

// "INVALID", "UNSUPPORTED", "CORRUPT" for the three kinds above, the canonical code name otherwise.
std::string ErrorKind(const Status& status);

// "INVALID: message", for people.
std::string DescribeError(const Status& status);

// Puts `prefix` in front of the message; OK stays OK.
Status Annotate(const Status& status, const std::string& prefix);

}  // namespace moe

#define MOE_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                             \
    if (::moe::Status moe_status_ = (expr); !moe_status_.ok()) return moe_status_; \
  } while (0)

#define MOE_CONCAT_INNER_(a, b) a##b
#define MOE_CONCAT_(a, b) MOE_CONCAT_INNER_(a, b)
// MOE_ASSIGN_OR_RETURN(auto x, F()): x = value of F(), or returns F()'s error.
#define MOE_ASSIGN_OR_RETURN(lhs, expr) MOE_ASSIGN_OR_RETURN_IMPL_(MOE_CONCAT_(moe_statusor_, __LINE__), lhs, expr)
#define MOE_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.status();              \
  lhs = std::move(tmp).value()

#endif  // MOE_PARALLEL_BASE_STATUS_H_
