// Weights that a checkpoint holds in quantised form: which of its tensors make one up, and their values.
//
// Formats (by config.json's quant_method): GPTQ v1 and v2 (AutoGPTQ, gptqmodel), AWQ GEMM (AutoAWQ), compressed-tensors
// (pack-quantized, int-quantized, float-quantized, mxfp4- and nvfp4-pack-quantized), FP8 with blocks (DeepSeek) or one
// scale a tensor, MXFP4 (gpt-oss), ModelOpt NVFP4 and FP8, Olive. Activations that a format would quantise at run time
// are not: weights alone decide.
#ifndef MOE_LOADERS_QUANT_QUANTIZED_WEIGHT_H_
#define MOE_LOADERS_QUANT_QUANTIZED_WEIGHT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "loaders/quant/quantization_config.h"
#include "loaders/safetensors.h"

namespace moe {

// A tensor with the file that it is in. No file: absent.
struct QuantPart {
  const StoredTensor* info = nullptr;
  const SafetensorsFile* file = nullptr;
  bool present() const { return file != nullptr; }
  const std::byte* data() const { return file->bytes(*info).data(); }
};

enum class QuantFormat {
  kGptq,             // codes in words down the columns: w[n][k] = (q[k][n] - zero[g][n]) * scale[g][n], g = g_idx[k]
  kAwq,              // four bits, mixed within a word, over the outputs
  kPackedInt,        // codes in words along the rows, offset by half their range
  kInt8,             // bytes, a scale (and zero point) for each row or group
  kFloat8,           // E4M3, a scale for each block (a row, a tensor, 128 × 128)
  kMxfp4,            // E2M1, a power of two for each 32 columns
  kNvfp4,            // E2M1, an E4M3 scale for each 16 columns, and one for the tensor that divides
  kNvfp4Multiplied,  // the same with one that multiplies
  kOlive,            // codes in bytes along the rows
};

struct QuantizedWeight {
  QuantFormat format = QuantFormat::kGptq;
  std::string name;            // what a float checkpoint calls it
  std::vector<int64_t> shape;  // there: [rows, cols], or a stack of such
  bool transposed = false;     // each of the stack is [cols, rows] there
  int64_t rows = 0;            // outputs of one matrix
  int64_t cols = 0;            // inputs
  int64_t count = 1;           // matrices in the stack
  int bits = 4;
  bool zeros_less_one = false;
  int64_t block_rows = 1;  // rows and columns that share a scale
  int64_t block_cols = 1;
  int64_t groups = 1;  // scales in a row of blocks
  QuantPart codes;
  QuantPart scales;
  QuantPart zeros;    // absent: symmetric
  QuantPart order;    // g_idx, absent: column k is of group k / block_cols
  QuantPart global;   // the tensor's scale
  int64_t parts = 0;  // tensors that make it up, those without use included
};

// `matrix`-th of the stack as float32 [rows, cols] ([cols, rows] if transposed), exact but for the rounding of a
// product.
void Dequantize(const QuantizedWeight& weight, int64_t matrix, float* out);

// Finds the quantised weights among `tensors`; `used` gets the indices of all tensors that belong to one. INVALID,
// naming file and tensor, where parts are missing or do not fit each other; what is of a format that `config` does not
// name stays where it is.
StatusOr<std::vector<QuantizedWeight>> FindQuantizedWeights(const std::vector<QuantPart>& tensors,
                                                            const QuantizationConfig& config,
                                                            std::vector<size_t>* used);

}  // namespace moe

#endif  // MOE_LOADERS_QUANT_QUANTIZED_WEIGHT_H_
