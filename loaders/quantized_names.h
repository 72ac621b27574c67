// Tensor names by which quantised checkpoints are recognised.
#ifndef MOE_LOADERS_QUANTIZED_NAMES_H_
#define MOE_LOADERS_QUANTIZED_NAMES_H_

#include <string_view>

namespace moe {

// True for the suffixes of the common formats (GPTQ, AWQ, compressed-tensors, FP8 scales, MXFP4 blocks, NVFP4,
// bitsandbytes, Olive), as ".qweight" or "_qweight".
bool IsQuantizedName(std::string_view name);

}  // namespace moe

#endif  // MOE_LOADERS_QUANTIZED_NAMES_H_
