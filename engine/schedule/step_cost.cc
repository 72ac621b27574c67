#include "engine/schedule/step_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <variant>

#include "loaders/tensor_rules.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

// The arithmetic of a row as a share of reading the weights it uses: bandwidth over operations per second, for 16-bit
// weights. Processors lie between 0.01 (AMX) and 0.06 (FMA).
constexpr double kRowShare = 0.04;
constexpr int64_t kTabulated = 1024;

struct Experts {
  double parameters = 0;  // of all
  double share = 1;       // of them that one row reads
};

}  // namespace

StepCost::StepCost(const ModelSpec& spec) {
  double total = 0;
  double not_read = 0;  // tables of which a row reads one line
  bool has_head = false;
  std::map<int64_t, Experts> layers;
  ForEachRequiredTensor(spec, [&](const TensorNeed& need) {
    const auto size = static_cast<double>(need.rows * need.cols);
    total += size;
    if (need.name == "embed") not_read += size;
    if (need.name == "lm_head") has_head = true;
    const CanonicalName name = ParseCanonicalName(need.name);
    if (name.pattern.find(".table") != std::string::npos) not_read += size;
    if (name.pattern.find(".moe.experts.{e}.") == std::string::npos) return;
    layers[name.layer].parameters += size;
  });
  if (!has_head) {  // tied: the embedding is read as the head
    ForEachRequiredTensor(spec, [&](const TensorNeed& need) {
      if (need.name == "embed") not_read -= static_cast<double>(need.rows * need.cols);
    });
  }
  double fixed = total - not_read;
  for (auto& [layer, experts] : layers) {
    const auto& moe = std::get<MoeSpec>(spec.layers[static_cast<size_t>(layer)].ffn);
    experts.share = std::min(1.0, static_cast<double>(moe.top_k) / static_cast<double>(moe.num_experts));
    fixed -= experts.parameters;
  }
  double active = fixed;
  for (const auto& [layer, experts] : layers) active += experts.parameters * experts.share;
  MOE_CHECK(active > 0);
  per_row_ = kRowShare;
  for (int64_t n = 1; n <= kTabulated; ++n) {
    double read = fixed;
    for (const auto& [layer, experts] : layers) {
      read += experts.parameters * (1 - std::pow(1 - experts.share, static_cast<double>(n)));
    }
    costs_.push_back(read / active + kRowShare * static_cast<double>(n - 1));
  }
}

double StepCost::operator()(int64_t rows) const {
  MOE_CHECK(rows >= 1) << rows;
  if (costs_.empty()) return 1;
  const auto tabulated = static_cast<int64_t>(costs_.size());
  return rows <= tabulated ? costs_[static_cast<size_t>(rows - 1)]
                           : costs_.back() + per_row_ * static_cast<double>(rows - tabulated);
}

}  // namespace moe
