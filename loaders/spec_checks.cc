#include "loaders/spec_checks.h"

#include <cmath>

#include "loaders/config_reader.h"

namespace moe::spec_checks {

Status CheckRange(const char* field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return InvalidError(field, " is ", value, ", expected an integer from ", min, " to ", max);
}

Status CheckPositive(const char* field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return InvalidError(field, " is ", value, ", expected a positive number");
}

Status CheckFinite(const char* what, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return InvalidError(what, " is ", value);
}

Status CheckNotNegative(const char* field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return InvalidError(field, " is ", value, ", expected a number that is not negative");
}

Status CheckPositionScale(const PositionScale& scale) {
  if (scale.kind == PositionScale::Kind::kNone) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(CheckFinite("the query's position scale", scale.beta));
  return CheckPositive("the query's position scale's period", scale.period);
}

Status CheckNorm(const NormSpec& norm) {
  if (!(norm.eps >= 0) || !std::isfinite(norm.eps)) return InvalidError("rms_norm_eps is ", norm.eps);
  if (norm.bias && norm.kind != NormKind::kLayer) return InvalidError("an RMS norm cannot have a bias");
  if (norm.groups < 1) return InvalidError("a norm has ", norm.groups, " groups");
  return absl::OkStatus();
}

Status CheckRope(const RopeSpec& rope, int64_t head_dim) {
  if (rope.rotary_dim <= 0 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim) {
    return InvalidError("the rotated dimensions (head_dim × partial_rotary_factor) are ", rope.rotary_dim,
                        ", expected an even number from 2 to head_dim (", head_dim, ")");
  }
  if (static_cast<int64_t>(rope.inv_freq.size()) != rope.rotary_dim / 2) {
    return InvalidError("rope: ", rope.inv_freq.size(), " frequencies for ", rope.rotary_dim, " rotated dimensions");
  }
  for (const double frequency : rope.inv_freq) {
    if (!std::isfinite(frequency) || frequency < 0) return InvalidError("rope_theta gives the frequency ", frequency);
  }
  MOE_RETURN_IF_ERROR(CheckPositive("rope attention_factor", rope.cos_sin_scale));
  if (rope.original_positions == 0) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(CheckRange("original_max_position_embeddings", rope.original_positions, 1, int64_t{1} << 40));
  if (rope.long_inv_freq.size() != rope.inv_freq.size()) {
    return InvalidError("rope: ", rope.long_inv_freq.size(), " frequencies for long contexts, ", rope.inv_freq.size(),
                        " for short ones");
  }
  for (const double frequency : rope.long_inv_freq) {
    if (!std::isfinite(frequency) || frequency < 0) return InvalidError("long_factor gives the frequency ", frequency);
  }
  return CheckPositive("the attention factor of long contexts", rope.long_cos_sin_scale);
}

Status CheckConvKernel(const char* field, int64_t kernel) {
  return CheckRange(field, kernel, 1, Mamba2Spec::kMaxConvKernel);
}

}  // namespace moe::spec_checks
