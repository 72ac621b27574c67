// The values of quantised weights, format by format, as written in the formats' own decoders.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "loaders/quant/float8.h"
#include "loaders/quant/quantized_weight.h"

namespace moe {
namespace {

uint32_t Word(const std::byte* words, int64_t i) {
  uint32_t word = 0;
  std::memcpy(&word, words + i * static_cast<int64_t>(sizeof(word)), sizeof(word));
  return word;
}

// Field `i` of `bits` in row-major words of 32, or of 8, lowest bits first.
uint32_t FieldOfWords(const std::byte* words, int64_t i, int bits) {
  const int64_t per_word = 32 / bits;
  return Word(words, i / per_word) >> (i % per_word * bits) & ((1u << bits) - 1);
}
uint32_t FieldOfBytes(const std::byte* bytes, int64_t i, int bits) {
  const int64_t per_byte = 8 / bits;
  return static_cast<uint32_t>(bytes[i / per_byte]) >> (i % per_byte * bits) & ((1u << bits) - 1);
}

float Scale(const QuantPart& scales, int64_t i) {
  const DType dtype = scales.info->dtype;
  const std::byte* at = scales.data() + i * static_cast<int64_t>(DTypeSize(dtype));
  if (dtype == DType::kF8E4M3) return E4m3ToFloat(static_cast<uint8_t>(*at));
  if (dtype == DType::kF8E8M0 || dtype == DType::kU8) return E8m0ToFloat(static_cast<uint8_t>(*at));
  return LoadFloat(dtype, at);
}

// The group of a column. −1: g_idx names none that exists, so the weight is no number, which loading finds.
int64_t GroupOf(const QuantizedWeight& w, int64_t k) {
  if (!w.order.present()) return k / w.block_cols;
  const auto group = static_cast<int32_t>(Word(w.order.data(), k));
  return group >= 0 && group < w.groups ? group : -1;
}

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

// The scales and zero points of a matrix, [rows, groups].
struct Grid {
  Grid(const QuantizedWeight& w, int32_t middle)
      : scale(static_cast<size_t>(w.rows * w.groups)), zero(static_cast<size_t>(w.rows * w.groups), middle) {}
  std::vector<float> scale;
  std::vector<int32_t> zero;
};

// GPTQ and AWQ: codes run down the columns, scales and zero points are stored [groups, rows]. code(k, n), zero(g, n).
template <typename Code, typename Zero>
void ByColumns(const QuantizedWeight& w, int64_t columns_at_once, const Code& code, const Zero& zero, float* out) {
  Grid grid(w, 0);
  for (int64_t g = 0; g < w.groups; ++g) {
    for (int64_t n = 0; n < w.rows; ++n) {
      grid.scale[n * w.groups + g] = Scale(w.scales, g * w.rows + n);
      grid.zero[n * w.groups + g] = zero(g, n);
    }
  }
  std::vector<int64_t> group(static_cast<size_t>(w.cols));
  for (int64_t k = 0; k < w.cols; ++k) group[k] = GroupOf(w, k);
  for (int64_t begin = 0; begin < w.cols; begin += columns_at_once) {
    const int64_t end = std::min(w.cols, begin + columns_at_once);
    for (int64_t n = 0; n < w.rows; ++n) {
      for (int64_t k = begin; k < end; ++k) {
        const int64_t at = n * w.groups + group[k];
        out[n * w.cols + k] =
            group[k] < 0 ? kNoNumber : static_cast<float>(code(k, n) - grid.zero[at]) * grid.scale[at];
      }
    }
  }
}

void Gptq(const QuantizedWeight& w, float* out) {
  const int64_t per_word = 32 / w.bits;
  const uint32_t mask = (1u << w.bits) - 1;
  const int64_t zero_bytes = (w.rows * w.bits + 31) / 32 * 4;
  const auto code = [&](int64_t k, int64_t n) {
    return static_cast<int32_t>(Word(w.codes.data(), k / per_word * w.rows + n) >> (k % per_word * w.bits) & mask);
  };
  const auto zero = [&](int64_t g, int64_t n) {
    if (!w.zeros.present()) return static_cast<int32_t>(1u << (w.bits - 1));
    const uint32_t stored = FieldOfWords(w.zeros.data() + g * zero_bytes, n, w.bits);
    return static_cast<int32_t>(w.zeros_less_one ? (stored + 1) & mask : stored);
  };
  ByColumns(w, per_word, code, zero, out);
}

void Awq(const QuantizedWeight& w, float* out) {
  const int64_t words = w.rows / 8;
  const auto field = [&](const QuantPart& part, int64_t row, int64_t n) {
    constexpr int kNibbleOf[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of the eight outputs in a word
    return static_cast<int32_t>(Word(part.data(), row * words + n / 8) >> (4 * kNibbleOf[n % 8]) & 15);
  };
  ByColumns(
      w, 16, [&](int64_t k, int64_t n) { return field(w.codes, k, n); },
      [&](int64_t g, int64_t n) { return field(w.zeros, g, n); }, out);
}

// Codes run along the rows: code(n, k).
template <typename Code>
void ByRows(const QuantizedWeight& w, const Grid& grid, const Code& code, float* out) {
  for (int64_t n = 0; n < w.rows; ++n) {
    for (int64_t k = 0; k < w.cols; ++k) {
      const int64_t g = GroupOf(w, k);
      const int64_t at = n * w.groups + g;
      out[n * w.cols + k] = g < 0 ? kNoNumber : static_cast<float>(code(n, k) - grid.zero[at]) * grid.scale[at];
    }
  }
}

void PackedInt(const QuantizedWeight& w, float* out) {
  const int64_t row_bytes = (w.cols * w.bits + 31) / 32 * 4;
  const int64_t per_word = 32 / w.bits;
  Grid grid(w, static_cast<int32_t>(1u << (w.bits - 1)));
  for (int64_t n = 0; n < w.rows; ++n) {
    for (int64_t g = 0; g < w.groups; ++g) {
      const int64_t at = n * w.groups + g;
      grid.scale[at] = Scale(w.scales, at);
      if (!w.zeros.present()) continue;  // their fields run down the rows
      grid.zero[at] = static_cast<int32_t>(
          Word(w.zeros.data(), n / per_word * w.groups + g) >> (n % per_word * w.bits) & ((1u << w.bits) - 1));
    }
  }
  const std::byte* codes = w.codes.data();
  ByRows(
      w, grid,
      [&](int64_t n, int64_t k) { return static_cast<int32_t>(FieldOfWords(codes + n * row_bytes, k, w.bits)); }, out);
}

void Olive(const QuantizedWeight& w, int64_t matrix, float* out) {
  const int64_t row_bytes = (w.cols * w.bits + 7) / 8;
  const int64_t zero_bytes = (w.groups * w.bits + 7) / 8;
  Grid grid(w, static_cast<int32_t>(1u << (w.bits - 1)));
  for (int64_t n = 0; n < w.rows; ++n) {
    const int64_t row = matrix * w.rows + n;
    for (int64_t g = 0; g < w.groups; ++g) {
      grid.scale[n * w.groups + g] = Scale(w.scales, row * w.groups + g);
      if (!w.zeros.present()) continue;
      grid.zero[n * w.groups + g] = static_cast<int32_t>(FieldOfBytes(w.zeros.data() + row * zero_bytes, g, w.bits));
    }
  }
  const std::byte* codes = w.codes.data() + matrix * w.rows * row_bytes;
  ByRows(
      w, grid,
      [&](int64_t n, int64_t k) { return static_cast<int32_t>(FieldOfBytes(codes + n * row_bytes, k, w.bits)); }, out);
}

void Bytes(const QuantizedWeight& w, int64_t matrix, float* out) {
  const std::byte* codes = w.codes.data() + matrix * w.rows * w.cols;
  const int64_t row_blocks = (w.rows + w.block_rows - 1) / w.block_rows;
  for (int64_t n = 0; n < w.rows; ++n) {
    const int64_t first = (matrix * row_blocks + n / w.block_rows) * w.groups;
    for (int64_t g = 0; g < w.groups; ++g) {
      const float scale = Scale(w.scales, first + g);
      const int32_t zero = w.zeros.present() ? static_cast<int8_t>(w.zeros.data()[first + g]) : 0;
      const int64_t end = std::min(w.cols, (g + 1) * w.block_cols);
      for (int64_t k = g * w.block_cols; k < end; ++k) {
        const auto code = static_cast<uint8_t>(codes[n * w.cols + k]);
        const float value =
            w.format == QuantFormat::kFloat8 ? E4m3ToFloat(code) : static_cast<float>(static_cast<int8_t>(code) - zero);
        out[n * w.cols + k] = value * scale;
      }
    }
  }
}

void Float4(const QuantizedWeight& w, int64_t matrix, float* out) {
  const float global = w.global.present() ? LoadFloat(w.global.info->dtype, w.global.data()) : 1.0f;
  const int64_t row_step = w.transposed ? 1 : w.cols;
  const int64_t col_step = w.transposed ? w.rows : 1;
  for (int64_t n = 0; n < w.rows; ++n) {
    const int64_t row = matrix * w.rows + n;
    const std::byte* codes = w.codes.data() + row * w.cols / 2;
    for (int64_t g = 0; g < w.groups; ++g) {
      float scale = Scale(w.scales, row * w.groups + g);
      if (w.format == QuantFormat::kNvfp4) scale /= global;
      if (w.format == QuantFormat::kNvfp4Multiplied) scale *= global;
      const int64_t end = std::min(w.cols, (g + 1) * w.block_cols);
      for (int64_t k = g * w.block_cols; k < end; ++k) {
        out[n * row_step + k * col_step] = E2m1ToFloat(FieldOfBytes(codes, k, 4)) * scale;
      }
    }
  }
}

}  // namespace

void Dequantize(const QuantizedWeight& weight, int64_t matrix, float* out) {
  switch (weight.format) {
    case QuantFormat::kGptq:
      return Gptq(weight, out);
    case QuantFormat::kAwq:
      return Awq(weight, out);
    case QuantFormat::kPackedInt:
      return PackedInt(weight, out);
    case QuantFormat::kInt8:
    case QuantFormat::kFloat8:
      return Bytes(weight, matrix, out);
    case QuantFormat::kMxfp4:
    case QuantFormat::kNvfp4:
    case QuantFormat::kNvfp4Multiplied:
      return Float4(weight, matrix, out);
    case QuantFormat::kOlive:
      return Olive(weight, matrix, out);
  }
}

}  // namespace moe
