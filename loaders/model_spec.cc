#include "loaders/model_spec.h"

#include <algorithm>

#include "loaders/config_reader.h"

namespace moe {
namespace {

// Enough for every known model (Kimi-K3: 896 experts × 90 layers × 3), and a bound on work and memory before the first
// tensor is looked up.
constexpr int64_t kMaxTensors = 1 << 20;

class NeedVisitor {
 public:
  NeedVisitor(const ModelSpec& spec, const std::function<void(const TensorNeed&)>& visit)
      : spec_(spec), hidden_(spec.hidden_size), visit_(visit) {}

  void Run() {
    Matrix("embed", spec_.vocab_size, hidden_);
    for (size_t i = 0; i < spec_.layers.size(); ++i) Layer("layers." + std::to_string(i) + ".", spec_.layers[i]);
    Norm("final_norm", spec_.final_norm, hidden_);
    if (!spec_.tied_head) Matrix("lm_head", spec_.vocab_size, hidden_);
  }

 private:
  void Matrix(const std::string& name, int64_t rows, int64_t cols) { visit_({name, rows, cols, false}); }
  void Vector(const std::string& name, int64_t size) { visit_({name, size, 1, true}); }
  void Linear(const std::string& name, int64_t rows, int64_t cols, bool bias) {
    Matrix(name, rows, cols);
    if (bias) Vector(name + ".bias", rows);
  }
  void Norm(const std::string& name, const NormSpec& norm, int64_t size) {
    Vector(name, size);
    if (norm.bias) Vector(name + ".bias", size);
  }
  void Mlp(const std::string& prefix, const MlpSpec& mlp, int64_t width) {
    if (mlp.gated) Linear(prefix + "gate", mlp.intermediate_size, width, mlp.bias);
    Linear(prefix + "up", mlp.intermediate_size, width, mlp.bias);
    Linear(prefix + "down", width, mlp.intermediate_size, mlp.bias);
  }

  void Mixer(const std::string&, const std::monostate&) {}
  void Mixer(const std::string& layer, const AttentionSpec& attn) {
    const std::string prefix = layer + "attn.";
    Linear(prefix + "q", attn.num_heads * attn.head_dim, hidden_, attn.qkv_bias);
    Linear(prefix + "k", attn.num_kv_heads * attn.head_dim, hidden_, attn.qkv_bias);
    Linear(prefix + "v", attn.num_kv_heads * attn.v_head_dim, hidden_, attn.qkv_bias);
    if (attn.qk_norm != QkNorm::kNone) {
      const bool full = attn.qk_norm == QkNorm::kFullWidth;
      Norm(prefix + "q_norm", attn.qk_norm_spec, full ? attn.num_heads * attn.head_dim : attn.head_dim);
      Norm(prefix + "k_norm", attn.qk_norm_spec, full ? attn.num_kv_heads * attn.head_dim : attn.head_dim);
    }
    Linear(prefix + "o", hidden_, attn.num_heads * attn.v_head_dim, attn.output_bias);
  }
  void Mixer(const std::string& layer, const Mamba2Spec& mamba) {
    const std::string prefix = layer + "mamba.";
    Linear(prefix + "in_proj", mamba.in_proj_rows(), hidden_, mamba.proj_bias);
    Matrix(prefix + "conv", mamba.conv_dim(), mamba.conv_kernel);
    if (mamba.conv_bias) Vector(prefix + "conv.bias", mamba.conv_dim());
    Vector(prefix + "dt_bias", mamba.num_heads);
    Vector(prefix + "a_log", mamba.num_heads);
    Vector(prefix + "d", mamba.num_heads);
    Vector(prefix + "norm", mamba.inner());
    Linear(prefix + "out_proj", hidden_, mamba.inner(), mamba.proj_bias);
  }

  void Ffn(const std::string&, const std::monostate&) {}
  void Ffn(const std::string& layer, const MlpSpec& mlp) { Mlp(layer + "mlp.", mlp, hidden_); }
  void Ffn(const std::string& layer, const MoeSpec& moe) {
    const std::string prefix = layer + "moe.";
    Linear(prefix + "router", moe.num_experts, hidden_, moe.router.logit_bias);
    if (moe.router.select_bias) Vector(prefix + "router.select_bias", moe.num_experts);
    if (moe.latent_size > 0) Matrix(prefix + "latent_down", moe.latent_size, hidden_);
    const int64_t width = moe.expert_width(hidden_);
    for (int64_t e = 0; e < moe.num_experts; ++e) Mlp(Cat(prefix, "experts.", e, "."), moe.expert, width);
    if (moe.latent_size > 0) Matrix(prefix + "latent_up", hidden_, moe.latent_size);
    if (moe.shared) {
      if (moe.shared->sigmoid_gated) Matrix(prefix + "shared_gate", 1, hidden_);
      Mlp(prefix + "shared.", moe.shared->mlp, hidden_);
    }
  }

  void Layer(const std::string& prefix, const LayerSpec& layer) {
    if (!std::holds_alternative<std::monostate>(layer.mixer)) {
      Norm(prefix + "mixer_norm", layer.mixer_norm, hidden_);
      std::visit([&](const auto& mixer) { Mixer(prefix, mixer); }, layer.mixer);
    }
    if (!std::holds_alternative<std::monostate>(layer.ffn)) {
      Norm(prefix + "ffn_norm", layer.ffn_norm, hidden_);
      std::visit([&](const auto& ffn) { Ffn(prefix, ffn); }, layer.ffn);
    }
  }

  const ModelSpec& spec_;
  int64_t hidden_;
  const std::function<void(const TensorNeed&)>& visit_;
};

}  // namespace

std::vector<int64_t> ModelSpec::MoeLayers() const {
  std::vector<int64_t> result;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (std::holds_alternative<MoeSpec>(layers[i].ffn)) result.push_back(static_cast<int64_t>(i));
  }
  return result;
}

bool ModelSpec::HasRecurrentState() const {
  return std::any_of(layers.begin(), layers.end(),
                     [](const LayerSpec& layer) { return std::holds_alternative<Mamba2Spec>(layer.mixer); });
}

int64_t ModelSpec::MaxTopK() const {
  int64_t result = 0;
  for (const LayerSpec& layer : layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) result = std::max(result, moe->top_k);
  }
  return result;
}

int64_t ModelSpec::MaxExperts() const {
  int64_t result = 0;
  for (const LayerSpec& layer : layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) result = std::max(result, moe->num_experts);
  }
  return result;
}

int64_t MaxRequiredTensors() {
  return kMaxTensors;
}

void ForEachRequiredTensor(const ModelSpec& spec, const std::function<void(const TensorNeed&)>& visit) {
  NeedVisitor(spec, visit).Run();
}

std::vector<TensorNeed> RequiredTensors(const ModelSpec& spec) {
  std::vector<TensorNeed> needs;
  ForEachRequiredTensor(spec, [&needs](const TensorNeed& need) { needs.push_back(need); });
  return needs;
}

}  // namespace moe
