#include "engine/device/cpu/cpu_backend.h"

#include "parallel/base/check.h"

namespace moe::cpu {

namespace {

const OpKernels& OpsOf(CpuIsa isa) {
  return isa == CpuIsa::kAvx2 ? Avx2Ops() : Avx512Ops();
}

AttentionKernels AttentionOf(CpuIsa isa, DType act) {
  if (act == DType::kBF16 && isa == CpuIsa::kAmx) return AmxAttention();
  if (act == DType::kBF16 && isa == CpuIsa::kAvx512Bf16) return Avx512Bf16Attention();
  return OpsOf(isa).attention;
}

}  // namespace

CpuBackend::CpuBackend(CpuIsa isa, DType act, WorkerPool* pool, const AttentionKernels* attention)
    : isa_(isa),
      act_dtype_(act),
      act_(ElementOf(act)),
      pool_(pool),
      threads_(pool->num_threads()),
      ops_(&OpsOf(isa)),
      attention_(attention != nullptr ? *attention : AttentionOf(isa, act)) {}

std::string CpuBackend::name() const {
  return std::string("cpu-") + CpuIsaName(isa_);
}

std::unique_ptr<PackedMatrix> CpuBackend::Pack(std::span<const WeightSource> parts, DType format) {
  return std::make_unique<CpuMatrix>(parts, format, packed_cache_, pool_);
}

std::unique_ptr<PackedExperts> CpuBackend::PackExperts(std::span<const ExpertSource> experts, bool gated, DType format,
                                                       const std::function<void(int64_t)>& release) {
  return std::make_unique<CpuExperts>(experts, gated, format, release, packed_cache_, pool_);
}

GemmKernel CpuBackend::KernelFor(Element weights, DType rows) const {
  // bf16 × bf16 has its own instructions; everything else is float32 FMA over widened weights.
  if (weights == Element::kBF16 && rows == DType::kBF16) {
    if (isa_ == CpuIsa::kAmx) return {AmxGemm(), Element::kBF16};
    if (isa_ == CpuIsa::kAvx512Bf16) return {Avx512Bf16Gemm(), Element::kBF16};
  }
  return {isa_ == CpuIsa::kAvx2 ? Avx2Gemm(weights) : Avx512Gemm(weights), Element::kF32};
}

double CpuBackend::FlopsPerNs(const GemmKernel& kernel) const {
  if (kernel.a_element == Element::kF32) return 100;
  return isa_ == CpuIsa::kAmx ? 2000 : 200;
}

}  // namespace moe::cpu

namespace moe {
namespace {

// Best first.
constexpr CpuIsa kIsas[] = {CpuIsa::kAmx, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2};

std::string AvailableIsas() {
  std::string names;
  for (CpuIsa isa : kIsas) {
    if (!CpuIsaAvailable(isa)) continue;
    if (!names.empty()) names += ", ";
    names += CpuIsaName(isa);
  }
  return names.empty() ? "none" : names;
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const std::string& isa, DType act, WorkerPool* pool) {
  MOE_CHECK(act == DType::kBF16 || act == DType::kF32) << DTypeName(act);
  for (CpuIsa candidate : kIsas) {
    if (isa != "auto" && isa != CpuIsaName(candidate)) continue;
    if (CpuIsaAvailable(candidate)) return std::make_unique<cpu::CpuBackend>(candidate, act, pool);
    if (isa == "auto") continue;
    return UnsupportedError("cpu instruction set '", isa, "': this processor has ", AvailableIsas());
  }
  if (isa == "auto") {
    return UnsupportedError(
        "the cpu backend needs AVX2, FMA and F16C; this processor lacks them (--device reference runs)");
  }
  return InvalidError("cpu instruction set '", isa,
                      "': expected auto, amx, avx512bf16, avx512 or avx2; this processor has ", AvailableIsas());
}

}  // namespace moe
