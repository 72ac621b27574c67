// What the recurrent mixers share: passes of a bounded number of positions, columns of states, norms of heads.
#include "engine/device/cpu/cpu_backend.h"

namespace moe::cpu {
namespace {

// Positions of one pass over the phases of a mixer: their intermediate rows stay in L2 and L3, and the scratch stays
// small.
constexpr int64_t kPassRows = 256;

}  // namespace

void CpuBackend::ForPasses(std::span<const MixerSlice> slices, const std::function<void(const Pass&)>& fn) {
  pass_slices_.clear();
  pass_first_.clear();
  pass_source_.clear();
  const auto flush = [&] {
    if (!pass_source_.empty()) fn({pass_slices_, pass_first_, pass_source_});
    pass_slices_.clear();
    pass_first_.clear();
    pass_source_.clear();
  };
  for (const MixerSlice& slice : slices) {
    for (int64_t done = 0; done < slice.count;) {
      const auto rows = static_cast<int64_t>(pass_source_.size());
      const int64_t n = std::min(slice.count - done, kPassRows - rows);
      MixerSlice part = slice;
      part.row0 += done;
      part.first_pos += done;
      part.count = n;
      pass_slices_.push_back(part);
      pass_first_.push_back(rows);
      for (int64_t i = 0; i < n; ++i) pass_source_.push_back(part.row0 + i);
      done += n;
      if (rows + n == kPassRows) flush();
    }
  }
  flush();
}

int64_t CpuBackend::ColumnParts(int64_t tasks, int64_t columns) const {
  constexpr int64_t kLeast = 32;  // two cache lines of a row, which the processor fetches together
  int64_t parts = 1;
  while (threads_ > 1 && tasks * parts < 4 * threads_ && columns % (2 * parts * kLeast) == 0) parts *= 2;
  return parts;
}

void CpuBackend::NormInPlace(const NormSpec& spec, const float* weight, int64_t dim, float* x) const {
  if (!spec.present()) return;
  const int64_t part = dim / spec.groups;
  for (int64_t begin = 0; begin < dim; begin += part) {
    NormArgs a;
    a.x = x + begin;
    a.dim = part;
    a.layer = spec.kind == NormKind::kLayer;
    a.weight_offset = spec.kind == NormKind::kRmsOffset;
    a.eps = spec.eps;
    if (weight != nullptr) a.weight = weight + begin;
    a.out_f32 = x + begin;
    ops_->norm(a);
  }
}

}  // namespace moe::cpu
