// The words for routers, mixers and MLPs.
#include "engine/tools/describe_model.h"

namespace moe {
namespace {

const char* ActivationName(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kGeluErf:
      return "gelu";
    case Activation::kRelu2:
      return "relu2";
    case Activation::kSwigluOai:
      return "clamped swiglu (gpt-oss)";
    case Activation::kSwigluStep:
      return "swiglu clamped after silu";
  }
  return "?";
}

std::string DescribeMlp(const MlpSpec& mlp) {
  return Cat(mlp.gated ? "gated " : "", ActivationName(mlp.activation), " of width ", mlp.intermediate_size,
             mlp.limit > 0 ? Cat(", limit ", mlp.limit) : "", mlp.bias ? " with biases" : "");
}

const char* ScoreName(const RouterSpec& router) {
  switch (router.score) {
    case RouterSpec::Score::kSoftmax:
      return router.normalize == RouterSpec::Normalize::kSoftmaxOverChosen ? "softmax over the chosen" : "softmax";
    case RouterSpec::Score::kSigmoid:
      return "sigmoid";
    case RouterSpec::Score::kSqrtSoftplus:
      return "sqrt(softplus)";
    case RouterSpec::Score::kSparseMixer:
      return "sparse mixer";
  }
  return "?";
}

std::string DescribeRope(const std::optional<RopeSpec>& rope) {
  if (!rope) return ", no position embedding";
  return Cat(", RoPE on ", rope->rotary_dim, " dims",
             rope->layout == RopeSpec::Layout::kInterleaved ? " interleaved" : "",
             rope->original_positions > 0
                 ? Cat(", other frequencies in sequences that may exceed ", rope->original_positions, " tokens")
                 : "");
}

std::string DescribeGate(AttentionGate gate) {
  switch (gate) {
    case AttentionGate::kNone:
      return "";
    case AttentionGate::kElementSigmoid:
      return ", sigmoid output gate";
    case AttentionGate::kElementSoftplus:
      return ", softplus output gate";
    case AttentionGate::kHeadSigmoid:
      return ", sigmoid gate a head";
    case AttentionGate::kHeadSoftplus:
      return ", softplus gate a head";
  }
  return "";
}

// A mixer without words of its own.
template <typename Mixer>
std::string Describe(const Mixer&) {
  return "mixer";
}

std::string Describe(const std::monostate&) {
  return "";
}

std::string Describe(const AttentionSpec& a) {
  std::string out = Cat("attention (", a.num_heads, " heads of ", a.head_dim, ", ", a.num_kv_heads, " K/V heads");
  if (a.v_head_dim != a.head_dim) out += Cat(" with values of ", a.v_head_dim);
  out += DescribeRope(a.rope);
  if (a.qk_norm != QkNorm::kNone) out += ", QK-norm";
  if (a.q_lora > 0) out += Cat(", query rank ", a.q_lora);
  if (a.window > 0) out += Cat(", window ", a.window);
  if (a.chunk > 0) out += Cat(", chunks of ", a.chunk);
  if (a.sinks) out += ", sinks";
  if (a.logit_cap > 0) out += Cat(", scores capped at ", a.logit_cap);
  if (a.share_kv_with_layer >= 0) out += Cat(", K/V of layer ", a.share_kv_with_layer);
  if (a.block_indexer) {
    out += Cat(", indexer keeps ", a.block_indexer->top_blocks, " blocks of ", a.block_indexer->block_size, " keys");
  }
  return out + DescribeGate(a.gate) + ")";
}

std::string Describe(const MlaSpec& m) {
  std::string out = Cat("latent attention (", m.num_heads, " heads of ", m.nope_dim, " + ", m.rope_dim, ", values of ",
                        m.v_dim, ", K/V rank ", m.kv_lora);
  if (m.q_lora > 0) out += Cat(", query rank ", m.q_lora);
  out += DescribeRope(m.rope);
  if (m.window > 0) out += Cat(", window ", m.window);
  if (m.sinks) out += ", sinks";
  if (m.indexer) out += Cat(", indexer keeps ", m.indexer->top_k, " keys");
  return out + DescribeGate(m.gate) + ")";
}

std::string Describe(const CompressedAttentionSpec& a) {
  std::string out = Cat("attention (", a.num_heads, " heads of ", a.head_dim, ", 1 K/V head, query rank ", a.q_lora,
                        DescribeRope(a.rope), ", sinks, window ", a.window);
  if (a.compressor) {
    out += Cat(", entries of ", a.compressor->rate, a.compressor->overlap ? " overlapping" : "", " tokens");
  }
  if (a.indexer) out += Cat(", indexer keeps ", a.indexer->top_k, " entries");
  return out + ")";
}

std::string Describe(const Mamba2Spec& m) {
  return Cat("Mamba-2 (", m.num_heads, " heads of ", m.head_dim, ", state ", m.state_size, ", ", m.num_groups,
             " groups, convolution ", m.conv_kernel, ")");
}

std::string Describe(const GatedDeltaSpec& d) {
  return Cat(d.decay == GatedDeltaSpec::Decay::kHead ? "gated delta net" : "Kimi delta attention", " (", d.num_k_heads,
             " key heads of ", d.k_head_dim, ", ", d.num_v_heads, " value heads of ", d.v_head_dim, ", convolution ",
             d.conv_kernel, ")");
}

std::string Describe(const Mamba1Spec& m) {
  return Cat("Mamba-1 (width ", m.inner, ", state ", m.state_size, ", convolution ", m.conv_kernel, ")");
}

std::string Describe(const LightningSpec& l) {
  return Cat("lightning attention (", l.num_heads, " heads of ", l.head_dim, DescribeRope(l.rope), ")");
}

std::string Describe(const ShortConvSpec& c) {
  return Cat("gated short convolution (kernel ", c.kernel, ")");
}

}  // namespace

std::string DescribeRouter(const MoeSpec& moe) {
  const RouterSpec& r = moe.router;
  std::string out = Cat(ScoreName(r), ", top ", moe.top_k, " of ", moe.num_experts);
  if (moe.zero_experts > 0) out += Cat(" and ", moe.zero_experts, " identity experts");
  if (r.num_groups > 1) out += Cat(" in the best ", r.top_groups, " of ", r.num_groups, " groups");
  if (r.select_bias) out += ", selection bias";
  if (r.logit_bias) out += ", logit bias";
  if (r.logit_cap > 0) out += Cat(", logits capped at ", r.logit_cap);
  if (r.normalize == RouterSpec::Normalize::kSum) out += ", weights renormalised";
  if (r.scale != 1.0f) out += Cat(", times ", r.scale);
  if (moe.weight_on_input) out += ", weights on the input";
  if (r.reads_residual) out += ", reads the residual stream";
  return out;
}

std::string DescribeMixer(const MixerSpec& mixer) {
  return std::visit([](const auto& spec) { return Describe(spec); }, mixer);
}

std::string DescribeFfn(const FfnSpec& ffn) {
  if (const auto* mlp = std::get_if<MlpSpec>(&ffn)) return Cat("MLP (", DescribeMlp(*mlp), ")");
  if (const auto* moe = std::get_if<MoeSpec>(&ffn)) {
    std::string out = Cat("MoE (", moe->num_experts, " experts, top ", moe->top_k, ", ", DescribeMlp(moe->expert));
    if (moe->router.by_token) out += "; chosen by token id";
    if (moe->shared) out += Cat("; shared expert, ", DescribeMlp(moe->shared->mlp));
    if (moe->latent_size > 0) out += Cat("; latent ", moe->latent_size);
    return out + ")";
  }
  return "";
}

std::string DescribeBeside(const LayerSpec& layer) {
  std::string out = layer.beside ? Cat(" beside an MLP (", DescribeMlp(layer.beside->mlp), ")") : "";
  if (layer.ngram) out += Cat(", behind embeddings of n-grams up to ", layer.ngram->max_n);
  return out;
}

}  // namespace moe
