#include "parallel/communicator.h"

#include <string>

namespace moe {
namespace {

constexpr const char* kBlamedRank = "moe/blamed-rank";

}  // namespace

Status BlameRank(Status status, int rank) {
  if (!status.ok()) status.SetPayload(kBlamedRank, absl::Cord(Cat(rank)));
  return status;
}

int BlamedRank(const Status& status) {
  const auto payload = status.GetPayload(kBlamedRank);
  return payload.has_value() ? std::stoi(std::string(*payload)) : -1;
}

}  // namespace moe
