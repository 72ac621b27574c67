#include <cstring>
#include <vector>

#include "engine/device/portable/portable_backend.h"

namespace moe {

void PortableBackend::GroupedGemm(const GroupedGemmOp& op) {
  std::vector<std::byte> gathered;
  for (size_t g = 0; g < op.groups.size(); ++g) {
    const ExpertGroup& group = op.groups[g];
    const PackedMatrix& w = *op.w[static_cast<size_t>(group.expert)];
    const int64_t rows = group.end - group.begin;
    const size_t row_bytes = static_cast<size_t>(w.cols()) * DTypeSize(act_dtype());
    gathered.resize(static_cast<size_t>(rows) * row_bytes);
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(gathered.data() + static_cast<size_t>(i) * row_bytes, op.rows[static_cast<size_t>(group.begin + i)],
                  row_bytes);
    }
    const bool apart = op.group_step > 0;
    Gemm({.a = {gathered.data(), act_dtype(), rows, w.cols(), w.cols()},
          .w = &w,
          .out = op.out + (apart ? static_cast<int64_t>(g) * op.group_step : group.begin * w.rows()),
          .out_stride = apart ? op.out_stride : w.rows()});
  }
}

}  // namespace moe
