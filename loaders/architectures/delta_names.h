// Tensor names of Kimi delta attention, as kimi_linear and bailing_hybrid have them.
#ifndef MOE_LOADERS_ARCHITECTURES_DELTA_NAMES_H_
#define MOE_LOADERS_ARCHITECTURES_DELTA_NAMES_H_

#include <string>

#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// Under IN ("model.layers.{l}.self_attn."); `output`: "o_proj" for one, "dense" for the other.
inline void AddKimiDeltaNames(TensorRules* rules, const std::string& in, const GatedDeltaSpec& delta,
                              const std::string& output) {
  const std::string out = "layers.{l}.delta.";
  int64_t begin = 0;
  for (const char* name : {"q", "k", "v"}) {
    rules->Add(out + name, Cat(in, name, "_proj.weight"));
    rules->Add(Cat(out, "conv_", name), Cat(in, name, "_conv1d.weight"));
    // As transformers holds it: all three in one.
    rules->Add(Cat(out, "conv_", name), in + "conv1d.weight", RowSlice(begin, delta.conv_dim()));
    begin += delta.k_dim();
  }
  // … and the forget gate as a module of its own.
  for (const std::string& gate : {in, in + "forget_gate."}) {
    rules->Add(out + "f_a", gate + "f_a_proj.weight");
    rules->Add(out + "f_b", gate + "f_b_proj.weight");
    rules->Add(out + "a", gate + "f_proj.weight");
    rules->Add(out + "dt_bias", gate + "dt_bias");
    rules->Add(out + "a_log", gate + "A_log");
  }
  rules->Add(out + "b", in + "b_proj.weight");
  rules->Add(out + "g_a", in + "g_a_proj.weight");
  rules->Add(out + "g_b", in + "g_b_proj.weight");
  rules->Add(out + "z", in + "g_proj.weight");
  rules->Add(out + "norm", in + "o_norm.weight");
  rules->Add(out + "o", Cat(in, output, ".weight"));
}

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_DELTA_NAMES_H_
