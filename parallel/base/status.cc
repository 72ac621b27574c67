#include "parallel/base/status.h"

namespace moe {

std::string ErrorKind(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return "INVALID";
    case absl::StatusCode::kUnimplemented:
      return "UNSUPPORTED";
    case absl::StatusCode::kDataLoss:
      return "CORRUPT";
    default:
      return absl::StatusCodeToString(status.code());
  }
}

std::string DescribeError(const Status& status) {
  return Cat(ErrorKind(status), ": ", std::string(status.message()));
}

Status Annotate(const Status& status, const std::string& prefix) {
  if (status.ok()) return status;
  return Status(status.code(), Cat(prefix, ": ", std::string(status.message())));
}

}  // namespace moe
