#include <cstring>
#include <vector>

#include "engine/device/portable/portable_backend.h"

namespace moe {

void PortableBackend::GroupedGemm(const GroupedGemmOp& op) {
  std::vector<std::byte> gathered;
  for (const ExpertGroup& group : op.groups) {
    const PackedMatrix& w = *op.w[static_cast<size_t>(group.expert)];
    const int64_t rows = group.end - group.begin;
    const size_t row_bytes = static_cast<size_t>(w.cols()) * DTypeSize(act_dtype());
    gathered.resize(static_cast<size_t>(rows) * row_bytes);
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(gathered.data() + static_cast<size_t>(i) * row_bytes, op.rows[static_cast<size_t>(group.begin + i)],
                  row_bytes);
    }
    Gemm({.a = {gathered.data(), act_dtype(), rows, w.cols(), w.cols()},
          .w = &w,
          .out = op.out + group.begin * w.rows(),
          .out_stride = w.rows()});
  }
}

}  // namespace moe
