#include "engine/model/packed_model.h"

#include <cstring>

#include "parallel/base/check.h"

namespace moe {
namespace {

class Packer {
 public:
  Packer(const ModelSpec& spec, const WeightStore& store, DType format, Backend* backend)
      : spec_(spec), store_(store), format_(format), backend_(backend) {}

  std::unique_ptr<PackedModel> Pack(const std::function<void(double)>& progress) {
    auto model = std::make_unique<PackedModel>();
    model->format = format_;
    for (size_t l = 0; l < spec_.layers.size(); ++l) {
      prefix_ = Cat("layers.", l, ".");
      model->layers.push_back(Layer(spec_.layers[l]));
      if (progress) progress(static_cast<double>(l + 1) / static_cast<double>(spec_.layers.size() + 1));
    }
    prefix_ = "";
    CopyEmbedding(model.get());
    model->final_norm = Norm("final_norm", spec_.final_norm);
    model->head = Matrix({spec_.tied_head ? "embed" : "lm_head"}, format_);
    store_.Release("embed");
    model->bytes = bytes_;
    if (progress) progress(1.0);
    return model;
  }

 private:
  void CopyEmbedding(PackedModel* model) {
    const WeightSource source = store_.Get("embed");
    const auto element = static_cast<int64_t>(DTypeSize(source.dtype));
    const int64_t row_bytes = source.cols * element;
    model->embed_data.resize(source.rows * row_bytes);
    for (int64_t r = 0; r < source.rows; ++r) {
      std::byte* out = model->embed_data.data() + r * row_bytes;
      const std::byte* in = source.data + r * source.row_stride * element;
      if (source.row_contiguous()) {
        std::memcpy(out, in, row_bytes);
        continue;
      }
      for (int64_t c = 0; c < source.cols; ++c) {
        std::memcpy(out + c * element, in + c * source.col_stride * element, element);
      }
    }
    model->embed = {source.dtype, model->embed_data.data(), source.rows, source.cols, source.cols, 1};
    bytes_ += model->embed_data.size();
  }

  std::vector<float> Vector(const std::string& name) {
    const WeightSource source = store_.Get(prefix_ + name);
    const auto element = static_cast<int64_t>(DTypeSize(source.dtype));
    std::vector<float> out;
    out.reserve(source.rows * source.cols);
    for (int64_t r = 0; r < source.rows; ++r) {
      for (int64_t c = 0; c < source.cols; ++c) {
        out.push_back(LoadFloat(source.dtype, source.data + (r * source.row_stride + c * source.col_stride) * element));
      }
    }
    bytes_ += out.size() * sizeof(float);
    return out;
  }
  std::vector<float> VectorIf(bool wanted, const std::string& name) {
    return wanted ? Vector(name) : std::vector<float>();
  }

  PackedNorm Norm(const std::string& name, const NormSpec& spec) {
    return {Vector(name), VectorIf(spec.bias, name + ".bias")};
  }

  std::unique_ptr<PackedMatrix> Matrix(const std::vector<std::string>& names, DType format) {
    std::vector<WeightSource> parts;
    for (const std::string& name : names) {
      parts.push_back(store_.Get(prefix_ + name));
      format = Unrounded(parts.back(), format);
    }
    std::unique_ptr<PackedMatrix> packed = backend_->Pack(parts, format);
    for (const std::string& name : names) {
      if (name != "embed") store_.Release(prefix_ + name);
    }
    bytes_ += packed->bytes();
    return packed;
  }

  // A matrix of a float16 model that is stored in another type is kept in float32: float16 could not hold it.
  static DType Unrounded(const WeightSource& source, DType format) {
    return format == DType::kF16 && source.data != nullptr && source.dtype != DType::kF16 ? DType::kF32 : format;
  }

  PackedLinear Linear(const std::vector<std::string>& names, bool bias) {
    PackedLinear linear;
    linear.matrix = Matrix(names, format_);
    for (const std::string& name : names) {
      if (!bias) continue;
      const std::vector<float> part = Vector(name + ".bias");
      linear.bias.insert(linear.bias.end(), part.begin(), part.end());
    }
    return linear;
  }

  // The MLPs whose matrices are called <parent>[e].{gate,up,down}.
  std::unique_ptr<PackedExperts> Experts(const std::vector<std::string>& parents, const MlpSpec& spec) {
    std::vector<ExpertSource> sources;
    DType format = format_;
    for (const std::string& parent : parents) {
      ExpertSource source;
      if (spec.gated) source.gate = store_.Get(prefix_ + parent + ".gate");
      source.up = store_.Get(prefix_ + parent + ".up");
      source.down = store_.Get(prefix_ + parent + ".down");
      for (const WeightSource& matrix : {source.gate, source.up, source.down}) format = Unrounded(matrix, format);
      sources.push_back(source);
    }
    const auto release = [&](int64_t e) {
      if (spec.gated) store_.Release(prefix_ + parents[e] + ".gate");
      store_.Release(prefix_ + parents[e] + ".up");
      store_.Release(prefix_ + parents[e] + ".down");
    };
    std::unique_ptr<PackedExperts> packed = backend_->PackExperts(sources, spec.gated, format, release);
    bytes_ += packed->bytes();
    return packed;
  }

  std::unique_ptr<PackedAttention> Attention(const AttentionSpec& spec) {
    auto attention = std::make_unique<PackedAttention>();
    attention->qkv = Linear({"attn.q", "attn.k", "attn.v"}, spec.qkv_bias);
    attention->output = Linear({"attn.o"}, spec.output_bias);
    attention->q_norm = VectorIf(spec.qk_norm != QkNorm::kNone, "attn.q_norm");
    attention->k_norm = VectorIf(spec.qk_norm != QkNorm::kNone, "attn.k_norm");
    return attention;
  }

  std::unique_ptr<PackedMamba2> Mamba2(const Mamba2Spec& spec) {
    auto mamba = std::make_unique<PackedMamba2>();
    mamba->in_proj = Linear({"mamba.in_proj"}, spec.proj_bias);
    mamba->out_proj = Linear({"mamba.out_proj"}, spec.proj_bias);
    mamba->conv_weight = Vector("mamba.conv");
    mamba->conv_bias = VectorIf(spec.conv_bias, "mamba.conv.bias");
    mamba->dt_bias = Vector("mamba.dt_bias");
    mamba->a_log = Vector("mamba.a_log");
    mamba->d = Vector("mamba.d");
    mamba->norm = Vector("mamba.norm");
    return mamba;
  }

  std::unique_ptr<PackedMoe> Moe(const MoeSpec& spec) {
    auto moe = std::make_unique<PackedMoe>();
    moe->router = Matrix({"moe.router"}, DType::kF32);
    moe->logit_bias = VectorIf(spec.router.logit_bias, "moe.router.bias");
    moe->select_bias = VectorIf(spec.router.select_bias, "moe.router.select_bias");
    std::vector<std::string> parents;
    for (int64_t e = 0; e < spec.num_experts; ++e) parents.push_back(Cat("moe.experts.", e));
    moe->experts = Experts(parents, spec.expert);
    if (spec.shared) {
      moe->shared = Experts({"moe.shared"}, spec.shared->mlp);
      if (spec.shared->sigmoid_gated) moe->shared_gate = Matrix({"moe.shared_gate"}, DType::kF32);
    }
    if (spec.latent_size > 0) {
      moe->latent_down = Matrix({"moe.latent_down"}, format_);
      moe->latent_up = Matrix({"moe.latent_up"}, format_);
    }
    return moe;
  }

  PackedLayer Layer(const LayerSpec& spec) {
    PackedLayer layer;
    if (!std::holds_alternative<std::monostate>(spec.mixer)) layer.mixer_norm = Norm("mixer_norm", spec.mixer_norm);
    if (!std::holds_alternative<std::monostate>(spec.ffn)) layer.ffn_norm = Norm("ffn_norm", spec.ffn_norm);
    if (const auto* attention = std::get_if<AttentionSpec>(&spec.mixer)) layer.attention = Attention(*attention);
    if (const auto* mamba = std::get_if<Mamba2Spec>(&spec.mixer)) layer.mamba2 = Mamba2(*mamba);
    if (const auto* mlp = std::get_if<MlpSpec>(&spec.ffn)) layer.mlp = Experts({"mlp"}, *mlp);
    if (const auto* moe = std::get_if<MoeSpec>(&spec.ffn)) layer.moe = Moe(*moe);
    return layer;
  }

  const ModelSpec& spec_;
  const WeightStore& store_;
  DType format_;
  Backend* backend_;
  std::string prefix_;
  size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<PackedModel> PackModel(const ModelSpec& spec, const WeightStore& store, DType format, Backend* backend,
                                       const std::function<void(double)>& progress) {
  return Packer(spec, store, format, backend).Pack(progress);
}

}  // namespace moe
