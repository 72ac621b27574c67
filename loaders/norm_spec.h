// NormSpec: which norm a block, a head or a router uses, as data.
#ifndef MOE_LOADERS_NORM_SPEC_H_
#define MOE_LOADERS_NORM_SPEC_H_

#include <cstdint>

namespace moe {

enum class NormKind {
  kNone,       // no norm: the row itself
  kRms,        // x * rsqrt(mean(x²) + eps) * w
  kRmsOffset,  // … * (1 + w)
  kLayer,      // (x - mean) * rsqrt(var + eps) * w + b
};

struct NormSpec {
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  bool bias = false;   // kLayer only
  bool weight = true;  // false: w = 1, no tensor
  int64_t groups = 1;  // the mean is taken over each of so many equal slices of the row
  bool present() const { return kind != NormKind::kNone; }
  bool operator==(const NormSpec&) const = default;
};
inline constexpr NormSpec kNoNorm{.kind = NormKind::kNone, .weight = false};

}  // namespace moe

#endif  // MOE_LOADERS_NORM_SPEC_H_
