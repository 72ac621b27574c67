#include "engine/core/engine_setup.h"

namespace moe {

StatusOr<NumericFormat> ResolveFormat(const std::string& dtype, DType expert_dtype) {
  NumericFormat format;
  if (dtype == "auto") {
    format.weights = expert_dtype;
    format.act = expert_dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
    if (expert_dtype == DType::kF16) {
      format.notes.push_back("float16 weights stay 16 bits wide and are widened exactly; activations are float32");
    } else if (expert_dtype != DType::kBF16 && expert_dtype != DType::kF32) {
      return UnsupportedError("dtype ", DTypeName(expert_dtype), " of the expert weights");
    }
  } else if (dtype == "float32") {
    if (expert_dtype != DType::kF32) {
      format.notes.push_back(Cat(DTypeName(expert_dtype), " weights are widened to float32, as --dtype asks"));
    }
  } else if (dtype == "bfloat16") {
    format.weights = DType::kBF16;
    format.act = DType::kBF16;
    if (expert_dtype != DType::kBF16) {
      format.notes.push_back(Cat(DTypeName(expert_dtype), " weights are ROUNDED to bfloat16, as --dtype asks"));
    }
  } else {
    return InvalidError("dtype: \"", dtype, "\" is not one of auto, float32, bfloat16");
  }
  return format;
}

StatusOr<std::unique_ptr<Backend>> CreateBackend(const EngineOptions& options, DType act, WorkerPool* pool) {
  if (options.device == "reference") return CreateReferenceBackend(act);
  if (options.device == "auto" || options.device == "cpu") return CreateCpuBackend(options.cpu_isa, act, pool);
  if (options.device == "cuda") return UnsupportedError("device: this build has no CUDA backend; use cpu or auto");
  return InvalidError("device: \"", options.device, "\" is not one of auto, cpu, cuda, reference");
}

}  // namespace moe
