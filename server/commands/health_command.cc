#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "engine/tools/engine_flags.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/commands/client.h"
#include "server/commands/commands.h"
#include "server/commands/flags.h"

namespace moe {
namespace {

struct HealthFlags {
  std::string target = kDefaultTarget;
  std::string service;
  double timeout = 5;
};

int RunHealth(const HealthFlags& flags) {
  const auto stub = grpc::health::v1::Health::NewStub(OpenChannel(flags.target));
  grpc::ClientContext context;
  const auto wait = std::chrono::duration<double>(flags.timeout);
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::system_clock::duration>(wait));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(flags.service);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = stub->Check(&context, request, &response);
  if (!status.ok()) {
    std::cerr << "moe health: " << DescribeGrpcError(status, flags.target) << "\n";
    return 1;
  }
  std::cout << grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status()) << "\n";
  return response.status() == grpc::health::v1::HealthCheckResponse::SERVING ? 0 : 1;
}

}  // namespace

void RegisterHealthCommand(CLI::App& app, int* exit_code) {
  CLI::App* health = app.add_subcommand("health", "Ask a server's health: exit code 0 when SERVING, 1 otherwise");
  auto flags = std::make_shared<HealthFlags>();
  AddFlag(health, "--target", flags->target, "HOST:PORT of the server");
  health->add_option("--service", flags->service, "Service to ask about; empty: the server as a whole");
  health->add_option("--timeout", flags->timeout, "Seconds to wait for the answer")
      ->capture_default_str()
      ->check(FiniteRange(0.001, 86400.0));
  health->callback([flags, exit_code] { *exit_code = RunHealth(*flags); });
}

}  // namespace moe
