// LayerInputs: what each layer is told about its tokens beside the residual row (formulas: LayerInputSpec).
#ifndef MOE_ENGINE_MODEL_LAYER_INPUT_H_
#define MOE_ENGINE_MODEL_LAYER_INPUT_H_

#include <cstdint>
#include <span>

#include "engine/model/packed_model.h"
#include "engine/moe/moe_runner.h"

namespace moe {

class LayerInputs {
 public:
  LayerInputs(const LayerInputSpec* spec, const PackedLayerInputs* weights, int64_t layers)
      : spec_(spec), weights_(weights), width_(layers * spec->dim) {}
  // e of all layers, in the arena: [tokens, layers * dim]. embedded [tokens, hidden].
  const float* Read(const ForwardContext& context, std::span<const int32_t> tokens, const float* embedded,
                    int64_t hidden) const;
  // x [rows, hidden] gets layer l's part of `inputs` added, as its weights say.
  void Add(const ForwardContext& context, const PackedLayerInput& weights, const float* inputs, int64_t l, int64_t rows,
           int64_t hidden, float* x) const;

 private:
  const LayerInputSpec* spec_;
  const PackedLayerInputs* weights_;
  int64_t width_;  // of e
};

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_LAYER_INPUT_H_
