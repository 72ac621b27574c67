// WeightStore: the checkpoint's tensors by canonical name (model_spec.h), as views into the mapped files.
#ifndef MOE_LOADERS_WEIGHT_STORE_H_
#define MOE_LOADERS_WEIGHT_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "loaders/model_files.h"
#include "loaders/model_spec.h"
#include "loaders/quant/quantization_config.h"
#include "loaders/tensor_rules.h"
#include "parallel/base/dtype.h"
#include "parallel/base/status.h"

namespace moe {

// Element (r, c) is at data + (RowOffset(r) + c * col_stride) * DTypeSize(dtype). Strides express every layout on
// disk (per expert, stacked, fused gate/up, transposed, interleaved, head by head) without a copy. Data may be
// unaligned.
struct WeightSource {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;    // in elements
  int64_t col_stride = 1;    // in elements
  int64_t group_rows = 0;    // > 0: rows come in groups of so many,
  int64_t group_stride = 0;  // whose first rows are this far apart, in elements
  int64_t RowOffset(int64_t r) const {
    return group_rows > 0 ? r / group_rows * group_stride + r % group_rows * row_stride : r * row_stride;
  }
  bool row_contiguous() const { return col_stride == 1; }
};

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  // The view of a canonical tensor; of a quantised one it is in memory from the first Get to Release. REQUIRES: `name`
  // is in RequiredTensors(spec) (all of which were checked at Open: present exactly once, with the right shape and a
  // floating dtype).
  virtual WeightSource Get(const std::string& name) const = 0;
  virtual bool Has(const std::string& name) const = 0;

  // The checkpoint's own name of a canonical tensor, and the file it is in, for messages.
  virtual std::string SourceName(const std::string& name) const = 0;
  virtual std::string FileName(const std::string& name) const = 0;

  // What the checkpoint holds of a canonical tensor that is quantised: codes. Empty: it is not.
  virtual std::span<const std::byte> QuantizedBytes(const std::string& name) const {
    (void)name;
    return {};
  }

  // The pages behind a canonical tensor will not be read again by the caller (it has packed them).
  virtual void Release(const std::string& name) const = 0;

  // The dtype of the routed experts' weights (of the dense MLPs without experts): what --dtype auto follows. Quantised
  // ones count as bfloat16.
  virtual DType expert_dtype() const = 0;
  virtual int64_t total_bytes() const = 0;  // of all mapped tensors
  virtual int64_t quantized_weights() const { return 0; }
  virtual int64_t ignored_tensors() const = 0;  // skipped by the family's named rules
};

// Maps the checkpoint's files and matches their tensors with what `spec` needs, strictly both ways: a missing tensor, a
// wrong shape, a tensor that is neither used nor ignored by a rule, or one that contradicts the config (ImpliedTensor)
// is INVALID; a non-float weight, and one quantised in a way that `quantization` does not name, is UNSUPPORTED. Copies
// nothing; quantised weights are widened to float32 when they are asked for. A head stored beside tied embeddings is
// skipped if it equals them; if it differs it is used and spec->tied_head becomes false.
StatusOr<std::unique_ptr<WeightStore>> OpenWeightStore(const ModelFiles& files, ModelSpec* spec,
                                                       const TensorRules& rules,
                                                       const QuantizationConfig& quantization = {});

}  // namespace moe

#endif  // MOE_LOADERS_WEIGHT_STORE_H_
