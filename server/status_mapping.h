// Status → grpc::Status. The codes of both are the same numbers.
#ifndef MOE_SERVER_STATUS_MAPPING_H_
#define MOE_SERVER_STATUS_MAPPING_H_

#include <grpcpp/support/status.h>

#include <string>

#include "parallel/base/status.h"

namespace moe {

inline grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

}  // namespace moe

#endif  // MOE_SERVER_STATUS_MAPPING_H_
