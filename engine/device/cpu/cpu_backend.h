// The vectorised CPU backend: drivers that cut operations into tasks for the worker pool and call the kernels of one
// instruction set (kernels.h).
//
// Threads split rows, outputs, heads and channels, never a sum, so their number changes no bit. Operations of less than
// a few microseconds run on the calling thread.
#ifndef MOE_ENGINE_DEVICE_CPU_CPU_BACKEND_H_
#define MOE_ENGINE_DEVICE_CPU_CPU_BACKEND_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/cpu/aligned_buffer.h"
#include "engine/device/cpu/gemm_plan.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/packed.h"
#include "engine/device/portable/portable_backend.h"

namespace moe::cpu {

class CpuBackend : public PortableBackend {
 public:
  // attention: instead of the path's own (of a path that this processor lacks, over a model of it), or null.
  CpuBackend(CpuIsa isa, DType act, WorkerPool* pool, const AttentionKernels* attention = nullptr);

  std::string name() const override;
  DType act_dtype() const override { return act_dtype_; }
  std::unique_ptr<PackedMatrix> Pack(std::span<const WeightSource> parts, DType format) override;
  void SetExpert(PackedExperts* experts, int64_t expert, const ExpertSource* source) override {
    static_cast<CpuExperts*>(experts)->Set(expert, source, pool_);
  }
  std::unique_ptr<PackedExperts> PackExperts(std::span<const ExpertSource> experts, bool gated, DType format,
                                             const std::function<void(int64_t)>& release) override;
  void UsePackedCache(PackedCache* cache) override { packed_cache_ = cache; }
  std::string PackedLayout() const override { return Cat("cpu layout ", kPackedLayout); }

  void Embed(const EmbedOp& op) override;              // rows.cc
  void Norm(const NormOp& op) override;                // rows.cc
  void Round(const RoundOp& op) override;              // rows.cc
  void Gemm(const GemmOp& op) override;                // gemm.cc
  void GroupedGemm(const GroupedGemmOp& op) override;  // gemm.cc
  void Route(const RouteOp& op) override;              // route.cc
  void Experts(const ExpertsOp& op) override;          // gemm.cc
  void Combine(const CombineOp& op) override;          // rows.cc
  void AddRows(const AddRowsOp& op) override;          // rows.cc
  void Qkv(const QkvOp& op) override;                  // attention.cc
  void Attention(const AttentionOp& op) override;      // attention.cc
  void Gate(const GateOp& op) override;                // rows.cc
  void MlaKeys(const MlaKeysOp& op) override;          // latent_attention.cc
  void MlaQueries(const MlaQueriesOp& op) override;    // latent_attention.cc
  void Conv(const ConvOp& op) override;                // convolution.cc
  void Mamba2(const Mamba2Op& op) override;            // mamba2.cc
  void GatedDelta(const GatedDeltaOp& op) override;    // gated_delta.cc
  void Mamba1(const Mamba1Op& op) override;            // mamba1.cc
  void Lightning(const LightningOp& op) override;      // lightning.cc
  void LogitStats(const LogitStatsOp& op) override;    // rows.cc

 protected:
  void ForTasks(int64_t count, double work, const std::function<void(int64_t)>& fn) override;
  void StoreKey(const float* key, int64_t head_dim, int64_t token, std::byte* block) override;
  void StoreValue(const float* value, int64_t v_head_dim, int64_t token, std::byte* block) override;
  void LoadKey(const std::byte* block, int64_t head_dim, int64_t token, float* key) const override;
  void LoadValue(const std::byte* block, int64_t v_head_dim, int64_t token, float* value) const override;

 private:
  // fn(task, thread) for each task; on the calling thread alone if `work_ns` is too little to share.
  template <typename Fn>
  void RunTasks(int64_t count, double work_ns, Fn&& fn) {
    if (count <= 0) return;
    if (count == 1 || threads_ == 1 || work_ns < kInlineNs) {
      for (int64_t i = 0; i < count; ++i) fn(i, 0);
      return;
    }
    std::atomic<int64_t> next{0};
    pool_->Run([&](int thread) {
      for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        fn(i, thread);
      }
    });
  }
  // fn(row) for each row, in tasks of neighbouring rows. `row_elements`: floats touched by one row.
  template <typename Fn>
  void ForRows(int64_t rows, int64_t row_elements, Fn&& fn) {
    // A row streams at some 4 floats a nanosecond; a task is at least 2 µs.
    const int64_t per_task = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, row_elements));
    const int64_t tasks = (rows + per_task - 1) / per_task;
    RunTasks(tasks, static_cast<double>(rows * row_elements) / 4, [&](int64_t task, int) {
      const int64_t end = std::min(rows, (task + 1) * per_task);
      for (int64_t r = task * per_task; r < end; ++r) fn(r);
    });
  }

  // The kernel for these weights and rows of this type.
  GemmKernel KernelFor(Element weights, DType rows) const;
  double FlopsPerNs(const GemmKernel& kernel) const;

  // Rows as a kernel wants them: its element, K padded with zeros.
  struct KernelRows {
    const char* data = nullptr;
    int64_t stride_bytes = 0;
  };
  // `pointers` [rows], or null: row r is at base + r * stride bytes.
  struct RowSource {
    const std::byte* const* pointers = nullptr;
    const std::byte* base = nullptr;
    int64_t stride_bytes = 0;
    DType dtype = DType::kF32;
    int64_t rows = 0;
    int64_t cols = 0;
  };
  KernelRows PackRows(const GemmKernel& kernel, const RowSource& source);
  void RunBlocks(const GemmKernel& kernel, const PackedShape& shape, const char* w, const KernelRows& a,
                 const GemmTask& task, int64_t first_row, const Epilogue& epilogue);

  // Some positions of some slices: as many rows of scratch as the phases of a recurrent mixer may hand to each other.
  struct Pass {
    std::span<const MixerSlice> slices;
    std::span<const int64_t> first;   // [slices]: row of each slice's first position in the scratch
    std::span<const int64_t> source;  // [rows]: row of the step for each row of the scratch
    int64_t rows() const { return static_cast<int64_t>(source.size()); }
    // Floats from row to row of a scratch: rows a multiple of 4 KB apart would fall into the same few sets of L1.
    static int64_t Stride(int64_t floats) { return (floats + 31) / 32 * 32 + 16; }
  };
  // fn(pass) until all positions have been in one, in order. A slice may be cut anywhere (N6: position by position).
  void ForPasses(std::span<const MixerSlice> slices, const std::function<void(const Pass&)>& fn);  // passes.cc
  void Mamba2Pass(const Mamba2Op& op, const Pass& pass);
  void GatedDeltaPass(const GatedDeltaOp& op, const Pass& pass);
  void LightningPass(const LightningOp& op, const Pass& pass);
  // Into how many equal runs of vectors `columns` columns of a state are cut, so that `tasks` tasks of one run each
  // feed every thread.
  int64_t ColumnParts(int64_t tasks, int64_t columns) const;  // passes.cc
  // Norm of `dim` floats in place; nothing where `spec` is none. `weight`: [dim] or null.
  void NormInPlace(const NormSpec& spec, const float* weight, int64_t dim, float* x) const;  // passes.cc

  CpuIsa isa_;
  DType act_dtype_;
  Element act_;
  WorkerPool* pool_;
  PackedCache* packed_cache_ = nullptr;  // while weights are packed
  int threads_;
  const OpKernels* ops_;
  AttentionKernels attention_;

  // Scratch, all of it overwritten by every use.
  Scratch a_rows_;  // packed rows
  Scratch hidden_;  // intermediate rows of experts
  Scratch per_thread_;
  Scratch partials_;  // attention
  Scratch conv_;      // recurrent mixers
  Scratch y_;
  Scratch dt_;
  std::vector<GemmTask> tasks_;
  std::vector<MixerSlice> pass_slices_;
  std::vector<int64_t> pass_first_;
  std::vector<int64_t> pass_source_;
  // Some positions of a slice, for one K/V head.
  struct AttentionPart {
    const MixerSlice* slice = nullptr;
    int64_t first = 0;  // within the slice
    int64_t count = 0;
    int64_t kv_head = 0;
    int64_t split_begin = 0;
    int64_t split_end = 0;
  };
  std::vector<AttentionPart> attention_tiles_;
};

}  // namespace moe::cpu

#endif  // MOE_ENGINE_DEVICE_CPU_CPU_BACKEND_H_
