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
  return InvalidError("device: \"", options.device, "\" is not one of auto, cpu, reference");
}

StatusOr<std::unique_ptr<Backend>> CreateNamedBackend(const std::string& name, DType act, WorkerPool* pool) {
  EngineOptions options;
  const std::string cpu = "cpu-";
  if (name.starts_with(cpu)) {
    options.device = "cpu";
    options.cpu_isa = name.substr(cpu.size());
  } else {
    options.device = name;
  }
  return CreateBackend(options, act, pool);
}

StatusOr<std::vector<std::string>> RunnableBackends(const std::string& device, const std::string& cpu_isa) {
  std::vector<std::string> names;
  if (device == "reference") return std::vector<std::string>{device};
  for (CpuIsa isa : {CpuIsa::kAmx, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2}) {
    if (CpuIsaAvailable(isa) && (cpu_isa == "auto" || cpu_isa == CpuIsaName(isa))) {
      names.push_back(Cat("cpu-", CpuIsaName(isa)));
    }
  }
  // The error for nothing is that of making one.
  WorkerPool pool(1);
  if (names.empty())
    MOE_RETURN_IF_ERROR(CreateBackend({.device = device, .cpu_isa = cpu_isa}, DType::kF32, &pool).status());
  return names;
}

}  // namespace moe
