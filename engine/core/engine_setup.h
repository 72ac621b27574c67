// The decisions of Engine::Create that depend on options, model and machine alone.
#ifndef MOE_ENGINE_CORE_ENGINE_SETUP_H_
#define MOE_ENGINE_CORE_ENGINE_SETUP_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/core/engine_options.h"
#include "engine/device/backend.h"
#include "parallel/base/dtype.h"

namespace moe {

struct NumericFormat {
  DType weights = DType::kF32;  // of packed matrices: kF32, kBF16 or kF16
  DType act = DType::kF32;      // of rows entering GEMMs, K/V and exchanges
  std::vector<std::string> notes;
};

// --dtype and the dtype of the checkpoint's experts → what is computed in. Never rounds silently: float16 stays 16 bits
// wide and is widened exactly; bfloat16 from a wider dtype only when asked for, with a note.
StatusOr<NumericFormat> ResolveFormat(const std::string& dtype, DType expert_dtype);

// --device auto|cpu|reference → one backend. The pool outlives it.
StatusOr<std::unique_ptr<Backend>> CreateBackend(const EngineOptions& options, DType act, WorkerPool* pool);

// By the name that Backend::name() gives it.
StatusOr<std::unique_ptr<Backend>> CreateNamedBackend(const std::string& name, DType act, WorkerPool* pool);

// Names of the backends that this machine can run, the best first, as far as --device and --cpu-isa allow them. Never
// empty.
StatusOr<std::vector<std::string>> RunnableBackends(const std::string& device, const std::string& cpu_isa);

}  // namespace moe

#endif  // MOE_ENGINE_CORE_ENGINE_SETUP_H_
