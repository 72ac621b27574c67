#include "parallel/exchange_blame.h"

#include <utility>

namespace moe {

Status DecideBlame(std::span<const ExchangeReport> reports) {
  const auto blames_a_witness = [&](const ExchangeReport& report) {
    return report.missing < static_cast<int>(reports.size()) && reports[report.missing].missing >= 0;
  };
  const auto order = [&](const ExchangeReport& report) {
    return std::pair(blames_a_witness(report), report.operation);
  };
  const ExchangeReport* best = nullptr;
  for (const ExchangeReport& report : reports) {
    if (report.missing < 0) continue;
    if (best == nullptr || order(report) < order(*best)) best = &report;
  }
  if (best == nullptr) return absl::DeadlineExceededError("an exchange timed out");
  return BlameRank(absl::DeadlineExceededError(best->text), best->missing);
}

std::string PlaceName(const ExchangeLabel& label) {
  return label.layer < 0 ? Cat("phase ", label.phase) : Cat("phase ", label.phase, " of layer ", label.layer);
}

}  // namespace moe
