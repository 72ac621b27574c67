// What the client subcommands share.
#ifndef MOE_SERVER_COMMANDS_CLIENT_H_
#define MOE_SERVER_COMMANDS_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace moe {

inline constexpr const char* kDefaultTarget = "127.0.0.1:50051";

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& target);

// "UNAVAILABLE: connection refused (127.0.0.1:50051)": code and message for people, fit for a terminal.
std::string DescribeGrpcError(const grpc::Status& status, const std::string& target);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_CLIENT_H_
