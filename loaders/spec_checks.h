// Checks that the parts of ValidateSpec share. Each names the field of config.json it is about.
#ifndef MOE_LOADERS_SPEC_CHECKS_H_
#define MOE_LOADERS_SPEC_CHECKS_H_

#include <cstdint>

#include "loaders/model_spec.h"

namespace moe::spec_checks {

Status CheckRange(const char* field, int64_t value, int64_t min, int64_t max);
Status CheckPositive(const char* field, double value);
Status CheckFinite(const char* what, double value);
Status CheckNotNegative(const char* field, double value);
Status CheckPositionScale(const PositionScale& scale);
Status CheckNorm(const NormSpec& norm);
Status CheckRope(const RopeSpec& rope, int64_t head_dim);
Status CheckConvKernel(const char* field, int64_t kernel);
Status CheckMlp(const char* field, const MlpSpec& mlp);

// Every mixer, and every kind of ffn.
Status CheckMixer(const MixerSpec& mixer);
Status CheckFfn(const FfnSpec& ffn);

}  // namespace moe::spec_checks

#endif  // MOE_LOADERS_SPEC_CHECKS_H_
