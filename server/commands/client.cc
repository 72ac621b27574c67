#include "server/commands/client.h"

#include "parallel/base/log.h"
#include "parallel/base/status.h"
#include "server/server_counters.h"

namespace moe {

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // the server's limit counts
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

std::string DescribeGrpcError(const grpc::Status& status, const std::string& target) {
  const int code = status.error_code();
  std::string text = Cat(code >= 0 && code < kNumStatusCodes ? kStatusCodeNames[static_cast<size_t>(code)] : "UNKNOWN",
                         ": ", EscapeControl(status.error_message()));
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    text += Cat(" (target ", target, "; is `moe serve` running there?)");
  }
  return text;
}

}  // namespace moe
