#include "server/parse_failures.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace moe {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

// "/moe.v1.Inference/Generate": every service whose code is linked in is also registered.
bool IsKnownMethod(const char* path) {
  if (path == nullptr || path[0] != '/') return false;
  std::string name = path + 1;
  std::replace(name.begin(), name.end(), '/', '.');
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name) != nullptr;
}

// Every UNIMPLEMENTED of ours carries a message; the one of a known method without any is gRPC's for a request that did
// not parse. Calls of unknown methods pass here too, and stay UNIMPLEMENTED.
class Interceptor : public grpc::experimental::Interceptor {
 public:
  explicit Interceptor(bool known_method) : known_method_(known_method) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (known_method_ && methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty()) {
        methods->ModifySendStatus(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                               "the request message is not valid protobuf, or a string in it is not "
                                               "valid UTF-8"));
      }
    }
    methods->Proceed();
  }

 private:
  const bool known_method_;
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return new Interceptor(IsKnownMethod(info->method()));  // gRPC deletes it with the call
  }
};

}  // namespace

void ReportParseFailures(grpc::ServerBuilder* builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>());
  builder->experimental().SetInterceptorCreators(std::move(factories));
}

}  // namespace moe
