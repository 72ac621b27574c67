// Which tensors a spec needs, in the order of use.
#include "loaders/config_reader.h"
#include "loaders/model_spec.h"

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
    Norm("embed_norm", spec_.embedding_norm, hidden_);
    if (spec_.embedding_affine) {
      Vector("embed_bias", hidden_);
      Vector("embed_scale", hidden_);
    }
    if (spec_.ngram_mean) NgramMean(*spec_.ngram_mean);
    if (spec_.layer_input) {
      const auto width = static_cast<int64_t>(spec_.layers.size()) * spec_.layer_input->dim;
      Matrix("layer_input.table", spec_.vocab_size, width);
      Matrix("layer_input.projection", width, hidden_);
      Norm("layer_input.norm", spec_.layer_input->projection_norm, spec_.layer_input->dim);
    }
    for (size_t i = 0; i < spec_.layers.size(); ++i) Layer("layers." + std::to_string(i) + ".", spec_.layers[i]);
    if (spec_.hyper) Hyper("hyper_head.", true);
    Norm("final_norm", spec_.final_norm, hidden_);
    if (!spec_.tied_head) Matrix("lm_head", spec_.head_rows > 0 ? spec_.head_rows : spec_.vocab_size, hidden_);
    if (spec_.head_bias) Vector("lm_head.bias", spec_.vocab_size);
  }

 private:
  void Matrix(const std::string& name, int64_t rows, int64_t cols) { visit_({name, rows, cols, false, false}); }
  void FloatMatrix(const std::string& name, int64_t rows, int64_t cols) { visit_({name, rows, cols, false, true}); }
  void Vector(const std::string& name, int64_t size) { visit_({name, size, 1, true, true}); }
  void Linear(const std::string& name, int64_t rows, int64_t cols, bool bias) {
    Matrix(name, rows, cols);
    if (bias) Vector(name + ".bias", rows);
  }
  void Norm(const std::string& name, const NormSpec& norm, int64_t size) {
    if (!norm.present()) return;
    if (norm.weight) Vector(name, size);
    if (norm.bias) Vector(name + ".bias", size);
  }
  void Conv(const std::string& name, int64_t channels, int64_t kernel, bool bias) {
    FloatMatrix(name, channels, kernel);
    if (bias) Vector(name + ".bias", channels);
  }
  void Mlp(const std::string& prefix, const MlpSpec& mlp, int64_t width) {
    if (mlp.gated) Linear(prefix + "gate", mlp.intermediate_size, width, mlp.bias);
    Linear(prefix + "up", mlp.intermediate_size, width, mlp.bias);
    Linear(prefix + "down", width, mlp.intermediate_size, mlp.bias);
  }
  void Gate(const std::string& prefix, AttentionGate gate, bool bias, int64_t heads, int64_t v_dim, int64_t in) {
    if (gate == AttentionGate::kNone) return;
    Linear(prefix + "gate", PerElement(gate) ? heads * v_dim : heads, in, bias);
  }

  void NormGate(const std::string& prefix, int64_t rank) {
    if (rank == 0) return;
    Matrix(prefix + "gate_down", rank, hidden_);
    Matrix(prefix + "gate_up", hidden_, rank);
  }

  void Mixer(const std::string&, const std::monostate&) {}
  void Mixer(const std::string& layer, const AttentionSpec& attn) {
    const std::string prefix = layer + "attn.";
    if (attn.head_experts) {
      HeadExperts(prefix, attn);
    } else {
      if (attn.q_lora > 0) {
        Matrix(prefix + "q_a", attn.q_lora, hidden_);
        Norm(prefix + "q_a_norm", attn.q_lora_norm, attn.q_lora);
      }
      Linear(prefix + "q", attn.num_heads * attn.head_dim, attn.q_lora > 0 ? attn.q_lora : hidden_, attn.qkv_bias);
    }
    const bool full = attn.qk_norm == QkNorm::kFullWidth;
    if (attn.qk_norm != QkNorm::kNone) {
      Norm(prefix + "q_norm", attn.qk_norm_spec, full ? attn.num_heads * attn.head_dim : attn.head_dim);
    }
    if (attn.share_kv_with_layer < 0) {
      Linear(prefix + "k", attn.num_kv_heads * attn.head_dim, hidden_, attn.qkv_bias);
      const int64_t v_rows = attn.num_kv_heads * attn.v_head_dim;
      Linear(prefix + "v", attn.cca ? v_rows / 2 : v_rows, hidden_, attn.qkv_bias);
      if (attn.cca) Cca(prefix, attn);
      if (attn.kv_conv > 0) {
        Conv(prefix + "conv_k", attn.num_kv_heads * attn.head_dim, attn.kv_conv, false);
        Conv(prefix + "conv_v", v_rows, attn.kv_conv, false);
      }
      if (attn.qk_norm != QkNorm::kNone) {
        Norm(prefix + "k_norm", attn.qk_norm_spec, full ? attn.num_kv_heads * attn.head_dim : attn.head_dim);
      }
      Norm(prefix + "v_norm", attn.v_norm, attn.v_head_dim);
    }
    if (attn.sinks) Vector(prefix + "sinks", attn.num_heads);
    Gate(prefix, attn.gate, attn.gate_bias, attn.num_heads, attn.v_head_dim, hidden_);
    if (attn.gate_head_bias) Vector(prefix + "gate.head_bias", attn.num_heads);
    if (attn.block_indexer) {
      const BlockIndexerSpec& indexer = *attn.block_indexer;
      const std::string scorer = prefix + "block_indexer.";
      FloatMatrix(scorer + "q", indexer.num_heads * indexer.head_dim, hidden_);
      FloatMatrix(scorer + "k", indexer.head_dim, hidden_);
      Norm(scorer + "q_norm", indexer.norm, indexer.head_dim);
      Norm(scorer + "k_norm", indexer.norm, indexer.head_dim);
    }
    if (attn.relative_bias) {
      Matrix(prefix + "r", attn.num_heads * attn.relative_bias->dim, hidden_);
      FloatMatrix(prefix + "relative", attn.relative_bias->dim, attn.relative_bias->extent);
    }
    if (!attn.head_experts) {
      Linear(prefix + "o", hidden_, attn.num_heads * attn.v_head_dim, attn.output_bias);
    } else if (attn.output_bias) {
      Vector(prefix + "o.bias", hidden_);
    }
  }
  void Cca(const std::string& prefix, const AttentionSpec& attn) {
    const int64_t channels = (attn.num_heads + attn.num_kv_heads) * attn.head_dim;
    Linear(prefix + "v_delayed", attn.num_kv_heads * attn.v_head_dim / 2, hidden_, attn.qkv_bias);
    Conv(prefix + "conv_depthwise", channels, attn.cca->depthwise_taps, true);
    Conv(prefix + "conv_grouped", channels, attn.head_dim * attn.cca->grouped_taps, true);
    Vector(prefix + "key_scale", attn.num_kv_heads);
  }
  void HeadExperts(const std::string& prefix, const AttentionSpec& attn) {
    FloatMatrix(prefix + "router", attn.head_experts->num_experts, hidden_);
    for (int64_t e = 0; e < attn.head_experts->num_experts; ++e) {
      Matrix(Cat(prefix, "experts.", e, ".q"), attn.num_kv_heads * attn.head_dim, hidden_);
      Matrix(Cat(prefix, "experts.", e, ".o"), hidden_, attn.num_kv_heads * attn.v_head_dim);
    }
  }
  int64_t QInput(const MlaSpec& mla) const {
    return mla.q_lora == 0 ? hidden_ : mla.q_reads_raw_latent ? 2 * mla.q_lora : mla.q_lora;
  }
  void Mixer(const std::string& layer, const MlaSpec& mla) {
    const std::string prefix = layer + "mla.";
    const int64_t q_rows = mla.num_heads * (mla.nope_dim + mla.rope_dim);
    if (mla.q_lora > 0) {
      Linear(prefix + "q_a", mla.q_lora, hidden_, mla.q_a_bias);
      Norm(prefix + "q_a_norm", mla.q_norm, mla.q_lora);
      Matrix(prefix + "q_b", q_rows, QInput(mla));
    } else {
      Matrix(prefix + "q", q_rows, hidden_);
    }
    Linear(prefix + "kv_a", mla.kv_lora + mla.rope_dim, hidden_, mla.kv_a_bias);
    Norm(prefix + "kv_a_norm", mla.kv_norm, mla.kv_lora);
    Norm(prefix + "k_rope_norm", mla.k_rope_norm, mla.rope_dim);
    Matrix(prefix + "k_up", mla.num_heads * mla.nope_dim, mla.kv_lora);
    Matrix(prefix + "v_up", mla.num_heads * mla.v_dim, mla.kv_lora);
    if (mla.sinks) Vector(prefix + "sinks", mla.num_heads);
    Gate(prefix, mla.gate, false, mla.num_heads, mla.v_dim, mla.gate_from_q_lora ? QInput(mla) : hidden_);
    if (mla.indexer && mla.indexer->share_with_layer < 0) {
      const IndexerSpec& indexer = *mla.indexer;
      const std::string scorer = prefix + "indexer.";
      FloatMatrix(scorer + "q", indexer.num_heads * indexer.head_dim, mla.q_lora > 0 ? mla.q_lora : hidden_);
      FloatMatrix(scorer + "k", indexer.head_dim, hidden_);
      Norm(scorer + "k_norm", indexer.key_norm, indexer.head_dim);
      FloatMatrix(scorer + "weights", indexer.num_heads, hidden_);
    }
    Linear(prefix + "o", hidden_, mla.num_heads * mla.v_dim, mla.output_bias);
  }
  void Mixer(const std::string& layer, const CompressedAttentionSpec& attn) {
    const std::string prefix = layer + "cattn.";
    const int64_t width = attn.num_heads * attn.head_dim;
    Matrix(prefix + "q_a", attn.q_lora, hidden_);
    Norm(prefix + "q_a_norm", attn.norm, attn.q_lora);
    Matrix(prefix + "q_b", width, attn.q_lora);
    Matrix(prefix + "kv", attn.head_dim, hidden_);
    Norm(prefix + "kv_norm", attn.norm, attn.head_dim);
    Vector(prefix + "sinks", attn.num_heads);
    if (attn.compressor) Compressor(prefix + "compressor.", attn, attn.head_dim);
    if (attn.indexer) {
      Compressor(prefix + "indexer.", attn, attn.indexer->head_dim);
      Matrix(prefix + "indexer.q", attn.indexer->num_heads * attn.indexer->head_dim, attn.q_lora);
      FloatMatrix(prefix + "indexer.weights", attn.indexer->num_heads, hidden_);
    }
    Matrix(prefix + "o_a", attn.output_groups * attn.output_rank, width / attn.output_groups);
    Matrix(prefix + "o_b", hidden_, attn.output_groups * attn.output_rank);
  }
  void Compressor(const std::string& prefix, const CompressedAttentionSpec& attn, int64_t head_dim) {
    const int64_t rows = attn.series() * head_dim;
    Matrix(prefix + "kv", rows, hidden_);
    Matrix(prefix + "gate", rows, hidden_);
    FloatMatrix(prefix + "bias", attn.compressor->rate, rows);
    Norm(prefix + "norm", attn.norm, head_dim);
  }
  // Of a block, or of the head.
  void Hyper(const std::string& prefix, bool head) {
    const HyperSpec& hyper = *spec_.hyper;
    const int64_t width = hyper.streams * hidden_;
    Norm(prefix + "norm", hyper.norm, width);
    if (hyper.kind == HyperSpec::Kind::kGated) {
      Matrix(prefix + "down", hyper.rank, width);
      Matrix(prefix + "up", width, hyper.rank);
      if (!head) FloatMatrix(prefix + "inject", hyper.mixes(), width);
      return;
    }
    const int64_t mixes = head ? hyper.streams : hyper.mixes();
    FloatMatrix(prefix + "fn", mixes, width);
    Vector(prefix + "base", mixes);
    Vector(prefix + "scale", head ? 1 : hyper.kind == HyperSpec::Kind::kManifold ? 3 : 2);
  }
  void Mixer(const std::string& layer, const Mamba2Spec& mamba) {
    const std::string prefix = layer + "mamba.";
    Linear(prefix + "in_proj", mamba.in_proj_rows(), hidden_, mamba.proj_bias);
    Conv(prefix + "conv", mamba.conv_dim(), mamba.conv_kernel, mamba.conv_bias);
    Vector(prefix + "dt_bias", mamba.num_heads);
    Vector(prefix + "a_log", mamba.num_heads);
    Vector(prefix + "d", mamba.num_heads);
    Vector(prefix + "norm", mamba.inner());
    Linear(prefix + "out_proj", hidden_, mamba.inner(), mamba.proj_bias);
  }
  void Mixer(const std::string& layer, const GatedDeltaSpec& delta) {
    const std::string prefix = layer + "delta.";
    Matrix(prefix + "q", delta.k_dim(), hidden_);
    Matrix(prefix + "k", delta.k_dim(), hidden_);
    Matrix(prefix + "v", delta.v_dim(), hidden_);
    Conv(prefix + "conv_q", delta.k_dim(), delta.conv_kernel, delta.conv_bias);
    Conv(prefix + "conv_k", delta.k_dim(), delta.conv_kernel, delta.conv_bias);
    Conv(prefix + "conv_v", delta.v_dim(), delta.conv_kernel, delta.conv_bias);
    const int64_t decays = delta.decay == GatedDeltaSpec::Decay::kHead ? delta.num_v_heads : delta.k_dim();
    LowRank(prefix, "a", "f_a", "f_b", decays, delta.decay_rank, false);
    Matrix(prefix + "b", delta.num_v_heads, hidden_);
    LowRank(prefix, "z", "g_a", "g_b", delta.v_dim(), delta.gate_rank, delta.gate_bias);
    Vector(prefix + "a_log", delta.num_v_heads);
    Vector(prefix + "dt_bias", decays);
    Norm(prefix + "norm", delta.norm, delta.v_head_dim);
    Matrix(prefix + "o", hidden_, delta.v_dim());
  }
  void LowRank(const std::string& prefix, const char* whole, const char* first, const char* second, int64_t rows,
               int64_t rank, bool bias) {
    if (rank > 0) {
      Matrix(prefix + first, rank, hidden_);
      Linear(prefix + second, rows, rank, bias);
    } else {
      Matrix(prefix + whole, rows, hidden_);
    }
  }
  void Mixer(const std::string& layer, const Mamba1Spec& mamba) {
    const std::string prefix = layer + "mamba1.";
    Linear(prefix + "in_proj", 2 * mamba.inner, hidden_, mamba.proj_bias);
    Conv(prefix + "conv", mamba.inner, mamba.conv_kernel, mamba.conv_bias);
    Matrix(prefix + "x_proj", mamba.dt_rank + 2 * mamba.state_size, mamba.inner);
    Linear(prefix + "dt_proj", mamba.inner, mamba.dt_rank, true);
    Norm(prefix + "dt_norm", mamba.inner_norm, mamba.dt_rank);
    Norm(prefix + "b_norm", mamba.inner_norm, mamba.state_size);
    Norm(prefix + "c_norm", mamba.inner_norm, mamba.state_size);
    FloatMatrix(prefix + "a_log", mamba.inner, mamba.state_size);
    Vector(prefix + "d", mamba.inner);
    Linear(prefix + "out_proj", hidden_, mamba.inner, mamba.proj_bias);
  }
  void Mixer(const std::string& layer, const LightningSpec& lightning) {
    const std::string prefix = layer + "lightning.";
    const int64_t width = lightning.num_heads * lightning.head_dim;
    for (const char* name : {"q", "k", "v"}) Matrix(prefix + name, width, hidden_);
    if (lightning.qk_norm != QkNorm::kNone) {
      const int64_t size = lightning.qk_norm == QkNorm::kFullWidth ? width : lightning.head_dim;
      Norm(prefix + "q_norm", lightning.qk_norm_spec, size);
      Norm(prefix + "k_norm", lightning.qk_norm_spec, size);
    }
    Norm(prefix + "norm", lightning.norm, width);
    Matrix(prefix + "gate", width, hidden_);
    Matrix(prefix + "o", hidden_, width);
  }
  void Mixer(const std::string& layer, const ShortConvSpec& conv) {
    const std::string prefix = layer + "short_conv.";
    Linear(prefix + "in_proj", 3 * hidden_, hidden_, conv.proj_bias);
    Conv(prefix + "conv", hidden_, conv.kernel, conv.bias);
    Linear(prefix + "out_proj", hidden_, hidden_, conv.proj_bias);
  }

  void Ffn(const std::string&, const std::monostate&) {}
  void Ffn(const std::string& layer, const MlpSpec& mlp) { Mlp(layer + "mlp.", mlp, hidden_); }
  void Ffn(const std::string& layer, const MoeSpec& moe) {
    const std::string prefix = layer + "moe.";
    const RouterSpec& router = moe.router;
    FloatMatrix(prefix + "router", moe.num_choices(), router.mlp ? router.mlp->width : hidden_);
    if (router.mlp) RouterMlp(prefix + "router.", *router.mlp);
    if (router.sinks > 0) FloatMatrix(prefix + "router.sinks", router.sinks, hidden_);
    if (router.weight_scale) Vector(prefix + "router.weight_scale", 1);
    if (moe.router.logit_bias) Vector(prefix + "router.bias", moe.num_choices());
    if (moe.router.select_bias) Vector(prefix + "router.select_bias", moe.num_choices());
    Norm(prefix + "router.norm", moe.router.input_norm, hidden_);
    if (moe.router.expert_scale) Vector(prefix + "router.expert_scale", moe.num_choices());
    if (moe.router.by_token) {
      visit_({prefix + "router.table", spec_.vocab_size, moe.top_k, false, true, moe.num_choices()});
    }
    if (moe.latent_size > 0) Linear(prefix + "latent_down", moe.latent_size, hidden_, moe.latent_bias);
    const int64_t width = moe.expert_width(hidden_);
    for (int64_t e = 0; e < moe.num_experts; ++e) Mlp(Cat(prefix, "experts.", e, "."), moe.expert, width);
    if (moe.latent_size > 0) Linear(prefix + "latent_up", hidden_, moe.latent_size, moe.latent_bias);
    if (moe.output_bias) Vector(prefix + "output_bias", hidden_);
    if (moe.shared) {
      if (moe.shared->sigmoid_gated) FloatMatrix(prefix + "shared_gate", 1, hidden_);
      for (int64_t e = 0; moe.shared->router_weighted && e < moe.shared->count; ++e) {
        Mlp(Cat(prefix, "shared.", e, "."), moe.shared->mlp, hidden_);
      }
      if (!moe.shared->router_weighted) Mlp(prefix + "shared.", moe.shared->mlp, hidden_);
    }
  }
  void RouterMlp(const std::string& prefix, const RouterMlpSpec& mlp) {
    FloatMatrix(prefix + "down", mlp.width, hidden_);
    Vector(prefix + "down.bias", mlp.width);
    if (mlp.carries) Vector(prefix + "carry", mlp.width);
    Norm(prefix + "mlp_norm", mlp.norm, mlp.width);
    for (const char* name : {"fc1", "fc2"}) {
      FloatMatrix(prefix + name, mlp.width, mlp.width);
      Vector(prefix + name + ".bias", mlp.width);
    }
  }

  void Ngram(const std::string& layer, const NgramSpec& ngram) {
    const std::string prefix = layer + "ngram.";
    const int64_t width = ngram.streams * hidden_;
    for (size_t p = 0; p < ngram.part_rows.size(); ++p) {
      Matrix(Cat(prefix, "table.", p), ngram.part_rows[p], ngram.embed_dim / ngram.heads());
    }
    Matrix(prefix + "key", width, ngram.embed_dim);
    Matrix(prefix + "value", hidden_, ngram.embed_dim);
    for (const char* name : {"key_norm", "query_norm", "conv_norm"}) Norm(prefix + name, ngram.norm, width);
    Conv(prefix + "conv", width, ngram.conv_kernel, false);
  }

  void NgramMean(const NgramMeanSpec& ngram) {
    for (size_t h = 0; h < ngram.head_rows.size(); ++h) {
      Matrix(Cat("ngram_mean.", h, ".table"), ngram.head_rows[h], ngram.dim);
      Matrix(Cat("ngram_mean.", h, ".projection"), hidden_, ngram.dim);
    }
  }

  void Residual(const std::string& prefix, const ResidualSpec& residual) {
    if (!residual.learnt) return;
    for (const char* name : {"skip", "skip_bias", "branch", "branch_bias"}) Vector(prefix + name, hidden_);
  }

  void Layer(const std::string& prefix, const LayerSpec& layer) {
    if (layer.ngram) Ngram(prefix, *layer.ngram);
    if (!std::holds_alternative<std::monostate>(layer.mixer)) {
      Norm(prefix + "mixer_norm", layer.mixer_norm, hidden_);
      NormGate(prefix + "mixer_norm.", layer.mixer_norm_gate);
      if (spec_.hyper) Hyper(prefix + "mixer_hyper.", false);
      std::visit([&](const auto& mixer) { Mixer(prefix, mixer); }, layer.mixer);
      if (layer.mixer_conv > 0) Conv(prefix + "mixer.conv", hidden_, layer.mixer_conv, false);
      Norm(prefix + "mixer_post_norm", layer.mixer_post_norm, hidden_);
      Residual(prefix + "mixer_residual.", layer.mixer_residual);
    }
    if (!std::holds_alternative<std::monostate>(layer.ffn)) {
      Norm(prefix + "ffn_norm", layer.ffn_norm, hidden_);
      NormGate(prefix + "ffn_norm.", layer.ffn_norm_gate);
      if (spec_.hyper) Hyper(prefix + "ffn_hyper.", false);
      std::visit([&](const auto& ffn) { Ffn(prefix, ffn); }, layer.ffn);
      Norm(prefix + "ffn_own_post_norm", layer.ffn_own_post_norm, hidden_);
      if (layer.beside) {
        Norm(prefix + "beside.norm", layer.beside->norm, hidden_);
        Mlp(prefix + "beside.", layer.beside->mlp, hidden_);
        Norm(prefix + "beside.post_norm", layer.beside->post_norm, hidden_);
      }
      if (layer.ffn_scale) Vector(prefix + "ffn_scale", 1);
      if (layer.ffn_conv > 0) Conv(prefix + "ffn.conv", hidden_, layer.ffn_conv, false);
      Norm(prefix + "ffn_post_norm", layer.ffn_post_norm, hidden_);
      Residual(prefix + "ffn_residual.", layer.ffn_residual);
    }
    if (spec_.layer_input) {
      Matrix(prefix + "layer_input.gate", spec_.layer_input->dim, hidden_);
      Matrix(prefix + "layer_input.projection", hidden_, spec_.layer_input->dim);
      Norm(prefix + "layer_input.norm", spec_.layer_input->norm, hidden_);
    }
    if (layer.layer_scale) Vector(prefix + "layer_scale", 1);
  }

  const ModelSpec& spec_;
  int64_t hidden_;
  const std::function<void(const TensorNeed&)>& visit_;
};

}  // namespace

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
