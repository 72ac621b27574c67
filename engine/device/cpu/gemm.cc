// Gemm and Experts: rows to the kernel's element, the plan, the tasks.
#include <cstring>

#include "engine/device/cpu/cpu_backend.h"
#include "parallel/base/check.h"

namespace moe::cpu {
namespace {

// Rows that one pass over the weights of a task works on: their A data has to stay in L2 (1–2 MB) beside the weights of
// a panel. A multiple of every kernel's row tile.
constexpr int64_t kRowBlockBytes = 384 << 10;
constexpr int64_t kRowBlockUnit = 96;

int64_t RowBlock(int64_t stride_bytes) {
  return std::max(kRowBlockUnit, kRowBlockBytes / stride_bytes / kRowBlockUnit * kRowBlockUnit);
}

// One cache line more than a multiple of two lines: rows a power of two apart would all fall into the same few sets of
// L1, and a 12-row tile would evict itself.
int64_t PaddedStride(int64_t row_bytes) {
  return (row_bytes + 127) / 128 * 128 + 64;
}

GemmPlanInput PlanInput(const PackedShape& shape, double flops_per_ns, int threads) {
  GemmPlanInput in;
  in.blocks = shape.blocks;
  in.block_bytes = shape.k_granules * shape.granule_bytes();
  in.k = shape.k_granules * kGranuleK;
  in.flops_per_ns = flops_per_ns;
  in.threads = threads;
  return in;
}

}  // namespace

CpuBackend::KernelRows CpuBackend::PackRows(const GemmKernel& kernel, const RowSource& s) {
  const int64_t size = ElementSize(kernel.a_element);
  const Element from = ElementOf(s.dtype);
  const int64_t padded_cols = (s.cols + kGranuleK - 1) / kGranuleK * kGranuleK;
  // In place: whole granules of the right element, and rows that do not collide in L1.
  const bool strided = s.pointers == nullptr && (s.rows <= 4 || s.stride_bytes % 1024 != 0);
  if (from == kernel.a_element && padded_cols == s.cols && (strided || (s.pointers != nullptr && s.rows == 1))) {
    const std::byte* data = s.pointers != nullptr ? s.pointers[0] : s.base;
    return {reinterpret_cast<const char*>(data), s.stride_bytes};
  }
  MOE_CHECK(from == kernel.a_element || kernel.a_element == Element::kF32) << DTypeName(s.dtype);
  const int64_t stride = PaddedStride(padded_cols * size);
  char* out = a_rows_.Get(static_cast<size_t>(s.rows * stride));
  ForRows(s.rows, s.cols, [&](int64_t r) {
    const std::byte* row = s.pointers != nullptr ? s.pointers[r] : s.base + r * s.stride_bytes;
    char* to = out + r * stride;
    if (from == kernel.a_element) {
      std::memcpy(to, row, static_cast<size_t>(s.cols * size));
    } else {
      ops_->widen(reinterpret_cast<const char*>(row), from, s.cols, 1.0f, reinterpret_cast<float*>(to));
    }
    std::memset(to + s.cols * size, 0, static_cast<size_t>((padded_cols - s.cols) * size));
  });
  return {out, stride};
}

void CpuBackend::RunBlocks(const GemmKernel& kernel, const PackedShape& shape, const char* w, const KernelRows& a,
                           const GemmTask& task, int64_t first_row, const Epilogue& epilogue) {
  GemmBlock b;
  b.a_stride_bytes = a.stride_bytes;
  b.w = w + shape.panel_offset(task.block_begin);
  b.k_granules = shape.k_granules;
  b.blocks = task.block_end - task.block_begin;
  b.epilogue = epilogue;
  const int64_t first_col =
      (epilogue.kind == EpilogueKind::kGated ? task.block_begin / kPanelBlocks : task.block_begin) * kBlockN;
  b.epilogue.cols = epilogue.cols - first_col;
  if (epilogue.bias != nullptr) b.epilogue.bias += first_col;
  if (epilogue.up_bias != nullptr) b.epilogue.up_bias += first_col;
  const int64_t step = RowBlock(std::max<int64_t>(a.stride_bytes, 1));
  for (int64_t row = task.row_begin; row < task.row_end; row += step) {
    b.rows = std::min(step, task.row_end - row);
    b.a = a.data + (first_row + row) * a.stride_bytes;
    b.epilogue.out =
        epilogue.out + (first_row + row) * epilogue.out_stride_bytes + first_col * ElementSize(epilogue.out_element);
    kernel.run(b);
  }
}

void CpuBackend::Gemm(const GemmOp& op) {
  const auto& w = static_cast<const CpuMatrix&>(*op.w);
  MOE_CHECK_EQ(op.a.cols, w.cols());
  if (op.a.rows == 0) return;
  const PackedShape& shape = w.shape();
  const GemmKernel kernel = KernelFor(shape.element, op.a.dtype);
  RowSource source;
  source.base = op.a.data;
  source.stride_bytes = op.a.stride * static_cast<int64_t>(DTypeSize(op.a.dtype));
  source.dtype = op.a.dtype;
  source.rows = op.a.rows;
  source.cols = op.a.cols;
  const KernelRows a = PackRows(kernel, source);

  Epilogue epilogue;
  epilogue.out = reinterpret_cast<char*>(op.out);
  epilogue.out_stride_bytes = op.out_stride * 4;
  epilogue.bias = op.bias;
  epilogue.accumulate = op.accumulate;
  epilogue.cols = w.rows();

  const GemmPlanInput in = PlanInput(shape, FlopsPerNs(kernel), threads_);
  const double total_ns = EstimateGroupNs(in, op.a.rows);
  tasks_.clear();
  PlanGroup(in, 0, op.a.rows, TargetNs(total_ns, threads_), tasks_);
  RunTasks(static_cast<int64_t>(tasks_.size()), total_ns,
           [&](int64_t i, int) { RunBlocks(kernel, shape, w.data(), a, tasks_[i], 0, epilogue); });
}

void CpuBackend::GroupedGemm(const GroupedGemmOp& op) {
  const auto matrix = [&](const ExpertGroup& group) -> const CpuMatrix& {
    return static_cast<const CpuMatrix&>(*op.w[static_cast<size_t>(group.expert)]);
  };
  if (op.rows.empty()) return;
  const CpuMatrix& any = matrix(op.groups.front());
  const PackedShape& shape = any.shape();
  const GemmKernel kernel = KernelFor(shape.element, act_dtype_);
  const GemmPlanInput in = PlanInput(shape, FlopsPerNs(kernel), threads_);
  const bool apart = op.group_step > 0;
  // As many groups at once as their rows may be copied for: few rows of many heads in one go, a long prompt's head by
  // head.
  constexpr int64_t kCopyBytes = 4 << 20;
  const int64_t row_bytes = PaddedStride(any.cols() * ElementSize(kernel.a_element));
  for (size_t begin = 0; begin < op.groups.size();) {
    const int64_t first = op.groups[begin].begin;
    size_t end = begin + 1;
    while (end < op.groups.size() && (op.groups[end].end - first) * row_bytes <= kCopyBytes) ++end;
    RowSource source;
    source.pointers = op.rows.data() + first;
    source.dtype = act_dtype_;
    source.rows = op.groups[end - 1].end - first;
    source.cols = any.cols();
    const KernelRows a = PackRows(kernel, source);

    double total_ns = 0;
    for (size_t g = begin; g < end; ++g) total_ns += EstimateGroupNs(in, op.groups[g].end - op.groups[g].begin);
    tasks_.clear();
    for (size_t g = begin; g < end; ++g) {
      const int64_t rows = op.groups[g].end - op.groups[g].begin;
      PlanGroup(in, static_cast<int32_t>(g), rows, TargetNs(total_ns, threads_), tasks_);
    }
    RunTasks(static_cast<int64_t>(tasks_.size()), total_ns, [&](int64_t i, int) {
      const ExpertGroup& group = op.groups[static_cast<size_t>(tasks_[i].group)];
      Epilogue epilogue;
      epilogue.out =
          reinterpret_cast<char*>(op.out + (apart ? tasks_[i].group * op.group_step : group.begin * any.rows()));
      epilogue.out_stride_bytes = (apart ? op.out_stride : any.rows()) * 4;
      epilogue.cols = any.rows();
      const KernelRows own{a.data + (group.begin - first) * a.stride_bytes, a.stride_bytes};
      RunBlocks(kernel, shape, matrix(group).data(), own, tasks_[i], 0, epilogue);
    });
    begin = end;
  }
}

void CpuBackend::Experts(const ExpertsOp& op) {
  const auto& experts = static_cast<const CpuExperts&>(*op.experts);
  const auto rows = static_cast<int64_t>(op.rows.size());
  if (rows == 0) return;
  const GemmKernel kernel = KernelFor(experts.up_shape().element, act_dtype_);
  RowSource source;
  source.pointers = op.rows.data();
  source.dtype = act_dtype_;
  source.rows = rows;
  source.cols = experts.width();
  const KernelRows a = PackRows(kernel, source);

  const int64_t size = ElementSize(kernel.a_element);
  const int64_t hidden_cols = experts.down_shape().k_granules * kGranuleK;
  const int64_t written = (experts.intermediate() + kBlockN - 1) / kBlockN * kBlockN;
  KernelRows hidden;
  hidden.stride_bytes = PaddedStride(hidden_cols * size);
  char* hidden_data = hidden_.Get(static_cast<size_t>(rows * hidden.stride_bytes));
  hidden.data = hidden_data;
  for (int64_t r = 0; written < hidden_cols && r < rows; ++r) {
    std::memset(hidden_data + r * hidden.stride_bytes + written * size, 0,
                static_cast<size_t>((hidden_cols - written) * size));
  }

  Epilogue up;
  up.kind = experts.gated() ? EpilogueKind::kGated : EpilogueKind::kActivation;
  switch (op.activation) {
    case Activation::kSilu:
      up.activation = ActivationKind::kSilu;
      break;
    case Activation::kGeluTanh:
      up.activation = ActivationKind::kGeluTanh;
      break;
    case Activation::kGeluErf:
      up.activation = ActivationKind::kGeluErf;
      break;
    case Activation::kRelu2:
      up.activation = ActivationKind::kRelu2;
      break;
    case Activation::kSwigluOai:
      up.activation = ActivationKind::kSwigluOai;
      break;
    case Activation::kSwigluStep:
      up.activation = ActivationKind::kSwigluStep;
      break;
  }
  up.limit = op.limit;
  up.alpha = op.alpha;
  up.cols = experts.intermediate();
  up.out_element = kernel.a_element;
  up.round_bf16 = act_dtype_ == DType::kBF16;
  up.out = hidden_data;
  up.out_stride_bytes = hidden.stride_bytes;

  Epilogue down;
  down.out_element = ElementOf(op.out_dtype);
  down.out = reinterpret_cast<char*>(op.out);
  down.out_stride_bytes = experts.width() * ElementSize(down.out_element);
  down.cols = experts.width();

  // All tasks of gate and up, then all of down: with the groups' weights read once in each.
  auto run = [&](const PackedShape& shape, const KernelRows& in_rows, const Epilogue& epilogue, bool is_up) {
    const auto of_expert = [](const float* values, int64_t expert, int64_t size) {
      return values == nullptr ? nullptr : values + expert * size;
    };
    const GemmPlanInput in = PlanInput(shape, FlopsPerNs(kernel), threads_);
    double total_ns = 0;
    for (const ExpertGroup& g : op.groups) total_ns += EstimateGroupNs(in, g.end - g.begin);
    tasks_.clear();
    for (size_t g = 0; g < op.groups.size(); ++g) {
      PlanGroup(in, static_cast<int32_t>(g), op.groups[g].end - op.groups[g].begin, TargetNs(total_ns, threads_),
                tasks_);
    }
    RunTasks(static_cast<int64_t>(tasks_.size()), total_ns, [&](int64_t i, int) {
      const ExpertGroup& g = op.groups[tasks_[i].group];
      const char* w = is_up ? experts.up(g.expert) : experts.down(g.expert);
      Epilogue own = epilogue;
      if (!is_up) {
        own.bias = of_expert(op.down_bias, g.expert, experts.width());
      } else if (experts.gated()) {
        own.bias = of_expert(op.gate_bias, g.expert, experts.intermediate());
        own.up_bias = of_expert(op.up_bias, g.expert, experts.intermediate());
      } else {
        own.bias = of_expert(op.up_bias, g.expert, experts.intermediate());
      }
      RunBlocks(kernel, shape, w, in_rows, tasks_[i], g.begin, own);
    });
  };
  run(experts.up_shape(), a, up, true);
  run(experts.down_shape(), hidden, down, false);
}

}  // namespace moe::cpu
