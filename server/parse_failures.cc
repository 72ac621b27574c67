#include "server/parse_failures.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <vector>

namespace moe {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

// Every UNIMPLEMENTED of ours carries a message; the one of a registered method without any is gRPC's for a request
// that did not parse. (Unknown methods never reach an interceptor.)
class Interceptor : public grpc::experimental::Interceptor {
 public:
  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty()) {
        methods->ModifySendStatus(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                               "the request message is not valid protobuf, or a string in it is not "
                                               "valid UTF-8"));
      }
    }
    methods->Proceed();
  }
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo*) override {
    return new Interceptor;  // gRPC deletes it with the call
  }
};

}  // namespace

void ReportParseFailures(grpc::ServerBuilder* builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>());
  builder->experimental().SetInterceptorCreators(std::move(factories));
}

}  // namespace moe
