#include "engine/device/cpu/packed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "parallel/base/check.h"

namespace moe::cpu {
namespace {

f16_t FloatToF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x47800000u) return sign | 0x7c00u;  // 65536 and more
  if (magnitude < 0x38800000u) {                        // a subnormal half: a multiple of 2^-24
    return sign | static_cast<uint16_t>(std::nearbyintf(std::bit_cast<float>(magnitude) * 16777216.0f));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23);
  return sign | static_cast<uint16_t>(rounded >> 13);
}

// Elements [k, k + n) of a row of `source` to `out`, converted to `format`.
void CopyElements(const WeightSource& source, int64_t row, int64_t k, int64_t n, Element format, char* out) {
  const auto size = static_cast<int64_t>(DTypeSize(source.dtype));
  const std::byte* in = source.data + (source.RowOffset(row) + k * source.col_stride) * size;
  const int64_t step = source.col_stride * size;
  const bool same = (source.dtype == DType::kF32 && format == Element::kF32) ||
                    (source.dtype == DType::kBF16 && format == Element::kBF16) ||
                    (source.dtype == DType::kF16 && format == Element::kF16);
  if (same && source.row_contiguous()) {
    std::memcpy(out, in, static_cast<size_t>(n * size));
    return;
  }
  for (int64_t i = 0; i < n; ++i, in += step) {
    if (same) {
      std::memcpy(out + i * size, in, static_cast<size_t>(size));
      continue;
    }
    float value;
    if (source.dtype == DType::kBF16) {
      bf16_t bits;
      std::memcpy(&bits, in, sizeof(bits));
      value = Bf16ToFloat(bits);
    } else if (source.dtype == DType::kF32) {
      std::memcpy(&value, in, sizeof(value));
    } else {
      value = LoadFloat(source.dtype, in);
    }
    if (format == Element::kF32) {
      std::memcpy(out + i * 4, &value, 4);
    } else {
      const uint16_t bits = format == Element::kBF16 ? FloatToBf16(value) : FloatToF16(value);
      std::memcpy(out + i * 2, &bits, 2);
    }
  }
}

// rows: 16 rows of 32 elements, row-major. out: one granule.
void PackGranule(const char* rows, Element element, char* out) {
  if (element == Element::kBF16) {
    // [16 n][16 pairs] → [16 pairs][16 n]
    uint32_t in[16][16];
    uint32_t turned[16][16];
    std::memcpy(in, rows, sizeof(in));
    for (int p = 0; p < 16; ++p) {
      for (int n = 0; n < 16; ++n) turned[p][n] = in[n][p];
    }
    std::memcpy(out, turned, sizeof(turned));
  } else if (element == Element::kF16) {
    uint16_t in[16][32];
    uint16_t turned[32][16];
    std::memcpy(in, rows, sizeof(in));
    for (int k = 0; k < 32; ++k) {
      for (int n = 0; n < 16; ++n) turned[k][n] = in[n][k];
    }
    std::memcpy(out, turned, sizeof(turned));
  } else {
    uint32_t in[16][32];
    uint32_t turned[32][16];
    std::memcpy(in, rows, sizeof(in));
    for (int k = 0; k < 32; ++k) {
      for (int n = 0; n < 16; ++n) turned[k][n] = in[n][k];
    }
    std::memcpy(out, turned, sizeof(turned));
  }
}

// A row of the packed matrix: of which source. `source` null: padding.
struct RowRef {
  const WeightSource* source = nullptr;
  int64_t row = 0;
};

// Packs block `block` (16 rows) of a matrix; `base` is its first panel.
void PackBlock(const PackedShape& shape, int64_t block, const RowRef (&rows)[kBlockN], int64_t k, char* base) {
  const int64_t in_panel = block % kPanelBlocks;
  const int64_t first = block - in_panel;
  const int64_t panel_blocks = std::min(kPanelBlocks, shape.blocks - first);
  char* out = base + shape.panel_offset(first) + in_panel * shape.granule_bytes();
  const int64_t row_bytes = kGranuleK * ElementSize(shape.element);
  alignas(64) char staged[kBlockN * kGranuleK * 4];
  for (int64_t g = 0; g < shape.k_granules; ++g) {
    const int64_t n = std::min(kGranuleK, k - g * kGranuleK);
    for (int64_t r = 0; r < kBlockN; ++r) {
      char* row = staged + r * row_bytes;
      if (rows[r].source == nullptr || n < kGranuleK) std::memset(row, 0, static_cast<size_t>(row_bytes));
      if (rows[r].source != nullptr) {
        CopyElements(*rows[r].source, rows[r].row, g * kGranuleK, n, shape.element, row);
      }
    }
    PackGranule(staged, shape.element, out);
    out += panel_blocks * shape.granule_bytes();
  }
}

void PackRows(const PackedShape& shape, const WeightSource& source, int64_t block, int64_t first_row, char* base) {
  RowRef rows[kBlockN];
  for (int64_t r = 0; r < kBlockN && first_row + r < source.rows; ++r) rows[r] = {&source, first_row + r};
  PackBlock(shape, block, rows, source.cols, base);
}

}  // namespace

Element ElementOf(DType t) {
  switch (t) {
    case DType::kF32:
      return Element::kF32;
    case DType::kBF16:
      return Element::kBF16;
    case DType::kF16:
      return Element::kF16;
    default:
      MOE_CHECK(false) << "packed format " << DTypeName(t);
      return Element::kF32;
  }
}

PackedShape ShapeOf(int64_t n, int64_t k, Element element) {
  return {(n + kBlockN - 1) / kBlockN, (k + kGranuleK - 1) / kGranuleK, element};
}

CpuMatrix::CpuMatrix(std::span<const WeightSource> parts, DType format, PackedCache* cache, WorkerPool* pool) {
  MOE_CHECK(!parts.empty());
  format_ = format;
  cols_ = parts[0].cols;
  for (const WeightSource& part : parts) {
    MOE_CHECK_EQ(part.cols, cols_);
    rows_ += part.rows;
  }
  std::vector<RowRef> refs;
  refs.reserve(static_cast<size_t>(rows_));
  for (const WeightSource& part : parts) {
    for (int64_t r = 0; r < part.rows; ++r) refs.push_back({&part, r});
  }
  shape_ = ShapeOf(rows_, cols_, ElementOf(format));
  bytes_ = static_cast<size_t>(shape_.bytes());
  buffer_ = PackedMemory(bytes_, cache);
  if (buffer_.packed()) return;
  pool->ParallelFor(shape_.blocks, [&](int64_t block) {
    RowRef rows[kBlockN];
    for (int64_t r = 0; r < kBlockN && block * kBlockN + r < rows_; ++r) rows[r] = refs[block * kBlockN + r];
    PackBlock(shape_, block, rows, cols_, buffer_.data());
  });
}

CpuExperts::CpuExperts(std::span<const ExpertSource> experts, bool gated, DType format,
                       const std::function<void(int64_t)>& release, PackedCache* cache, WorkerPool* pool)
    : gated_(gated) {
  MOE_CHECK(!experts.empty());
  num_experts_ = static_cast<int64_t>(experts.size());
  width_ = experts[0].up.cols;
  intermediate_ = experts[0].up.rows;
  format_ = format;
  up_ = ShapeOf(intermediate_, width_, ElementOf(format));
  if (gated) up_.blocks *= 2;
  down_ = ShapeOf(width_, intermediate_, ElementOf(format));
  // Room for all: pages of experts that are not held are never touched, so they take no memory.
  buffer_ = PackedMemory(static_cast<size_t>(num_experts_) * expert_bytes(), cache);
  for (int64_t e = 0; e < num_experts_; ++e) {
    if (!experts[e].held) continue;
    PackOne(e, experts[e], pool);
    if (release) release(e);
  }
}

void CpuExperts::PackOne(int64_t expert, const ExpertSource& source, WorkerPool* pool) {
  MOE_CHECK(source.up.rows == intermediate_ && source.up.cols == width_) << "expert " << expert << ": up";
  MOE_CHECK(source.down.rows == width_ && source.down.cols == intermediate_) << "expert " << expert << ": down";
  MOE_CHECK_EQ(gated_, source.gate.data != nullptr) << "expert " << expert;
  char* up_out = buffer_.data() + expert * static_cast<int64_t>(expert_bytes());
  char* down_out = up_out + up_.bytes();
  bytes_ += expert_bytes();
  if (buffer_.packed()) return;
  pool->ParallelFor(up_.blocks + down_.blocks, [&](int64_t task) {
    if (task >= up_.blocks) {
      const int64_t block = task - up_.blocks;
      PackRows(down_, source.down, block, block * kBlockN, down_out);
    } else if (gated_) {
      PackRows(up_, task % 2 == 0 ? source.gate : source.up, task, task / 2 * kBlockN, up_out);
    } else {
      PackRows(up_, source.up, task, task * kBlockN, up_out);
    }
  });
}

void CpuExperts::Set(int64_t expert, const ExpertSource* source, WorkerPool* pool) {
  MOE_CHECK(expert >= 0 && expert < num_experts_ && !buffer_.packed()) << "expert " << expert;
  if (source != nullptr) {
    PackOne(expert, *source, pool);
    return;
  }
  bytes_ -= expert_bytes();
  ReturnPages(buffer_.data() + static_cast<size_t>(expert) * expert_bytes(), expert_bytes());
}

}  // namespace moe::cpu
