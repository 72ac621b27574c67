#include "engine/model/packed_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/model/tensor_packer.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

// Walks the spec and packs what each part of it needs.
class Packer : private TensorPacker {
 public:
  Packer(const ModelSpec& spec, const WeightStore& store, DType format, Backend* backend, WorkerPool* pool,
         const ExpertLists* held)
      : TensorPacker(store, format, backend, pool), spec_(spec), held_(held) {}

  StatusOr<std::unique_ptr<PackedModel>> Pack(const std::function<void(double)>& progress) {
    auto model = std::make_unique<PackedModel>();
    model->format = format_;
    for (size_t l = 0; l < spec_.layers.size(); ++l) {
      prefix_ = Cat("layers.", l, ".");
      model->layers.push_back(Layer(spec_.layers[l]));
      MOE_RETURN_IF_ERROR(status_);
      if (progress) progress(static_cast<double>(l + 1) / static_cast<double>(spec_.layers.size() + 1));
    }
    prefix_ = "";
    CopyEmbedding(model.get());
    model->embed_norm = Norm("embed_norm", spec_.embedding_norm);
    model->embed_bias = VectorIf(spec_.embedding_affine, "embed_bias");
    model->embed_scale = VectorIf(spec_.embedding_affine, "embed_scale");
    if (spec_.ngram_mean) model->ngram_mean = NgramMean(*spec_.ngram_mean);
    if (spec_.layer_input) model->layer_inputs = LayerInputs(*spec_.layer_input);
    if (spec_.hyper) model->hyper_head = Hyper("hyper_head.", *spec_.hyper, true);
    model->final_norm = Norm("final_norm", spec_.final_norm);
    if (spec_.unit_head_columns) DivideByHeadColumns(&model->final_norm.weight);
    model->head.matrix = Matrix({spec_.tied_head ? "embed" : "lm_head"}, format_);
    model->head.bias = VectorIf(spec_.head_bias, "lm_head.bias");
    store_.Release("embed");
    MOE_RETURN_IF_ERROR(status_);
    model->bytes = bytes_;
    if (progress) progress(1.0);
    return model;
  }

 private:
  void CopyEmbedding(PackedModel* model) {
    Check("embed");
    const WeightSource source = store_.Get("embed");
    AppendRows(source, source.dtype, &model->embed_data);
    model->embed = {source.dtype, model->embed_data.data(), source.rows, source.cols, source.cols, 1};
    bytes_ += model->embed_data.size();
  }

  // Scaled so, the rows before the head see the stored head as one whose columns have length 1.
  void DivideByHeadColumns(std::vector<float>* weight) {
    constexpr double kSmallestNorm = 1e-7;
    const WeightSource head = store_.Get(spec_.tied_head ? "embed" : "lm_head");
    const auto element = static_cast<int64_t>(DTypeSize(head.dtype));
    std::vector<double> squares(weight->size());
    for (int64_t r = 0; r < head.rows; ++r) {
      for (int64_t c = 0; c < head.cols; ++c) {
        const double x = LoadFloat(head.dtype, head.data + (head.RowOffset(r) + c * head.col_stride) * element);
        squares[c] += x * x;
      }
    }
    for (size_t c = 0; c < squares.size(); ++c) {
      (*weight)[c] = static_cast<float>((*weight)[c] / std::max(std::sqrt(squares[c]), kSmallestNorm));
    }
  }

  void Mixer(const std::monostate&, PackedLayer*) {}

  void Mixer(const AttentionSpec& spec, PackedLayer* layer) {
    layer->attention = std::make_unique<PackedAttention>();
    PackedAttention& attention = *layer->attention;
    const bool own_kv = spec.share_kv_with_layer < 0;
    std::vector<std::string> rows = {spec.q_lora > 0 ? "attn.q_a" : "attn.q"};
    if (spec.head_experts) rows.clear();
    if (spec.q_lora > 0) {
      attention.q_up = Matrix({"attn.q"}, format_);
      attention.q_a_norm = Norm("attn.q_a_norm", spec.q_lora_norm).weight;
    }
    if (own_kv) rows.push_back("attn.k");
    if (spec.cca) rows.push_back("attn.v_delayed");
    if (own_kv) rows.push_back("attn.v");
    if (spec.relative_bias) rows.push_back("attn.r");
    if (spec.cca) attention.cca = Cca(spec);
    if (spec.head_experts) {
      attention.head_experts = HeadExperts(spec);
      attention.output.bias = VectorIf(spec.output_bias, "attn.o.bias");
    } else {
      attention.output = Linear({"attn.o"}, spec.output_bias);
    }
    attention.qkv = Linear(rows, spec.qkv_bias);
    if (spec.kv_conv > 0) {
      Append("attn.conv_k", &attention.kv_conv);
      Append("attn.conv_v", &attention.kv_conv);
    }
    if (spec.relative_bias) attention.relative_bias = RelativeBias(*spec.relative_bias);
    const bool norm_weights = spec.qk_norm != QkNorm::kNone && spec.qk_norm_spec.weight;
    attention.q_norm = VectorIf(norm_weights, "attn.q_norm");
    attention.k_norm = VectorIf(norm_weights && own_kv, "attn.k_norm");
    attention.v_norm = VectorIf(own_kv && spec.v_norm.present() && spec.v_norm.weight, "attn.v_norm");
    attention.sinks = VectorIf(spec.sinks, "attn.sinks");
    if (spec.gate != AttentionGate::kNone) attention.gate = Matrix({"attn.gate"}, format_);
    attention.gate_bias = VectorIf(spec.gate_bias, "attn.gate.bias");
    attention.gate_head_bias = VectorIf(spec.gate_head_bias, "attn.gate.head_bias");
    if (spec.block_indexer) {
      attention.block_indexer = std::make_unique<PackedBlockIndexer>();
      attention.block_indexer->qk = Matrix({"attn.block_indexer.q", "attn.block_indexer.k"}, DType::kF32);
      attention.block_indexer->q_norm = Norm("attn.block_indexer.q_norm", spec.block_indexer->norm).weight;
      attention.block_indexer->k_norm = Norm("attn.block_indexer.k_norm", spec.block_indexer->norm).weight;
    }
  }

  // [dim, extent] → as AttentionOp has it.
  std::vector<float> RelativeBias(const RelativeBiasSpec& spec) {
    const std::vector<float> by_distance = Vector("attn.relative");
    const int64_t width = spec.extent + 2 * kKvBlockTokens;
    std::vector<float> turned(static_cast<size_t>(spec.dim * width));
    for (int64_t r = 0; r < spec.dim; ++r) {
      const auto row = by_distance.begin() + r * spec.extent;
      std::reverse_copy(row, row + spec.extent, turned.begin() + r * width + kKvBlockTokens);
    }
    return turned;
  }

  std::unique_ptr<PackedCca> Cca(const AttentionSpec& spec) {
    auto cca = std::make_unique<PackedCca>();
    cca->depthwise = Vector("attn.conv_depthwise");
    cca->depthwise_bias = Vector("attn.conv_depthwise.bias");
    cca->grouped = PerHead("attn.conv_grouped", spec.num_heads + spec.num_kv_heads, spec.head_dim, false, DType::kF32);
    cca->grouped_bias = Vector("attn.conv_grouped.bias");
    cca->v_delayed_bias = VectorIf(spec.qkv_bias, "attn.v_delayed.bias");
    cca->key_scale = Vector("attn.key_scale");
    return cca;
  }

  std::unique_ptr<PackedHeadExperts> HeadExperts(const AttentionSpec& spec) {
    auto experts = std::make_unique<PackedHeadExperts>();
    experts->router = Matrix({"attn.router"}, DType::kF32);
    for (int64_t e = 0; e < spec.head_experts->num_experts; ++e) {
      experts->q.push_back(Matrix({Cat("attn.experts.", e, ".q")}, format_));
      experts->o.push_back(Matrix({Cat("attn.experts.", e, ".o")}, format_));
    }
    return experts;
  }

  void Mixer(const MlaSpec& spec, PackedLayer* layer) {
    layer->mla = std::make_unique<PackedMla>();
    PackedMla& mla = *layer->mla;
    if (spec.q_lora > 0) {
      mla.q_a = Linear({"mla.q_a"}, spec.q_a_bias);
      mla.q_a_norm = Norm("mla.q_a_norm", spec.q_norm).weight;
    }
    mla.q = Matrix({spec.q_lora > 0 ? "mla.q_b" : "mla.q"}, format_);
    mla.kv_a = Linear({"mla.kv_a"}, spec.kv_a_bias);
    mla.kv_a_norm = Norm("mla.kv_a_norm", spec.kv_norm).weight;
    mla.k_rope_norm = Norm("mla.k_rope_norm", spec.k_rope_norm).weight;
    mla.k_up = PerHead("mla.k_up", spec.num_heads, spec.nope_dim, true);
    mla.v_up = PerHead("mla.v_up", spec.num_heads, spec.v_dim, false);
    mla.output = Linear({"mla.o"}, spec.output_bias);
    mla.sinks = VectorIf(spec.sinks, "mla.sinks");
    if (spec.gate != AttentionGate::kNone) mla.gate = Matrix({"mla.gate"}, format_);
    if (spec.indexer && spec.indexer->share_with_layer < 0) {
      mla.indexer = std::make_unique<PackedIndexer>();
      mla.indexer->q = Matrix({"mla.indexer.q"}, DType::kF32);
      mla.indexer->k = Matrix({"mla.indexer.k"}, DType::kF32);
      mla.indexer->weights = Matrix({"mla.indexer.weights"}, DType::kF32);
      const PackedNorm norm = Norm("mla.indexer.k_norm", spec.indexer->key_norm);
      mla.indexer->k_norm = norm.weight;
      mla.indexer->k_norm_bias = norm.bias;
    }
  }

  void Mixer(const CompressedAttentionSpec& spec, PackedLayer* layer) {
    layer->compressed_attention = std::make_unique<PackedCompressedAttention>();
    PackedCompressedAttention& attention = *layer->compressed_attention;
    std::vector<std::string> rows = {"cattn.q_a", "cattn.kv"};
    if (spec.compressor) {
      for (const char* part : {"kv", "gate"}) rows.push_back(Cat("cattn.compressor.", part));
      attention.bias = Vector("cattn.compressor.bias");
      attention.norm = Norm("cattn.compressor.norm", spec.norm).weight;
    }
    if (spec.indexer) {
      for (const char* part : {"kv", "gate"}) rows.push_back(Cat("cattn.indexer.", part));
      attention.index_bias = Vector("cattn.indexer.bias");
      attention.index_norm = Norm("cattn.indexer.norm", spec.norm).weight;
      attention.index_q = Matrix({"cattn.indexer.q"}, format_);
      attention.index_weights = Matrix({"cattn.indexer.weights"}, DType::kF32);
    }
    attention.in_proj = Matrix(rows, format_);
    attention.q_a_norm = Norm("cattn.q_a_norm", spec.norm).weight;
    attention.q_b = Matrix({"cattn.q_b"}, format_);
    attention.kv_norm = Norm("cattn.kv_norm", spec.norm).weight;
    attention.sinks = Vector("cattn.sinks");
    attention.o_a = PerHead("cattn.o_a", spec.output_groups, spec.output_rank, false);
    attention.o_b = Linear({"cattn.o_b"}, false);
  }

  // `parent`: "mixer_hyper.", "ffn_hyper." or "hyper_head."; the head of kGated has no inject.
  PackedHyper Hyper(const std::string& parent, const HyperSpec& spec, bool head) {
    PackedHyper hyper;
    hyper.norm = Norm(parent + "norm", spec.norm).weight;
    if (spec.kind == HyperSpec::Kind::kGated) {
      hyper.down = Matrix({parent + "down"}, format_);
      hyper.up = Matrix({parent + "up"}, format_);
      if (!head) hyper.fn = Matrix({parent + "inject"}, DType::kF32);
    } else {
      hyper.fn = Matrix({parent + "fn"}, DType::kF32);
      hyper.base = Vector(parent + "base");
      hyper.scale = Vector(parent + "scale");
    }
    return hyper;
  }

  void Mixer(const GatedDeltaSpec& spec, PackedLayer* layer) {
    layer->gated_delta = std::make_unique<PackedGatedDelta>();
    PackedGatedDelta& delta = *layer->gated_delta;
    std::vector<std::string> rows = {"delta.q", "delta.k", "delta.v", "delta.b"};
    if (spec.gate_rank == 0) rows.push_back("delta.z");
    if (spec.decay_rank == 0) rows.push_back("delta.a");
    delta.in_proj = Linear(rows, false);
    if (spec.decay_rank > 0) {
      delta.f_a = Matrix({"delta.f_a"}, format_);
      delta.f_b = Matrix({"delta.f_b"}, format_);
    }
    if (spec.gate_rank > 0) {
      delta.g_a = Matrix({"delta.g_a"}, format_);
      delta.g_b = Linear({"delta.g_b"}, spec.gate_bias);
    }
    for (const char* part : {"delta.conv_q", "delta.conv_k", "delta.conv_v"}) {
      Append(part, &delta.conv_weight);
      if (spec.conv_bias) Append(Cat(part, ".bias"), &delta.conv_bias);
    }
    delta.a_log = Vector("delta.a_log");
    delta.dt_bias = Vector("delta.dt_bias");
    delta.norm = Norm("delta.norm", spec.norm).weight;
    delta.output = Linear({"delta.o"}, false);
  }

  void Mixer(const Mamba1Spec& spec, PackedLayer* layer) {
    layer->mamba1 = std::make_unique<PackedMamba1>();
    PackedMamba1& mamba = *layer->mamba1;
    mamba.in_proj = Linear({"mamba1.in_proj"}, spec.proj_bias);
    mamba.conv_weight = Vector("mamba1.conv");
    mamba.conv_bias = VectorIf(spec.conv_bias, "mamba1.conv.bias");
    mamba.x_proj = Matrix({"mamba1.x_proj"}, format_);
    mamba.dt_proj = Linear({"mamba1.dt_proj"}, true);
    mamba.dt_norm = Norm("mamba1.dt_norm", spec.inner_norm).weight;
    mamba.b_norm = Norm("mamba1.b_norm", spec.inner_norm).weight;
    mamba.c_norm = Norm("mamba1.c_norm", spec.inner_norm).weight;
    mamba.a_log = Vector("mamba1.a_log");
    mamba.d = Vector("mamba1.d");
    mamba.out_proj = Linear({"mamba1.out_proj"}, spec.proj_bias);
  }

  void Mixer(const LightningSpec& spec, PackedLayer* layer) {
    layer->lightning = std::make_unique<PackedLightning>();
    PackedLightning& lightning = *layer->lightning;
    lightning.in_proj = Linear({"lightning.q", "lightning.k", "lightning.v", "lightning.gate"}, false);
    const bool norm_weights = spec.qk_norm != QkNorm::kNone && spec.qk_norm_spec.weight;
    lightning.q_norm = VectorIf(norm_weights, "lightning.q_norm");
    lightning.k_norm = VectorIf(norm_weights, "lightning.k_norm");
    lightning.norm = Norm("lightning.norm", spec.norm).weight;
    lightning.output = Linear({"lightning.o"}, false);
  }

  void Mixer(const ShortConvSpec& spec, PackedLayer* layer) {
    layer->short_conv = std::make_unique<PackedShortConv>();
    PackedShortConv& conv = *layer->short_conv;
    conv.in_proj = Linear({"short_conv.in_proj"}, spec.proj_bias);
    conv.conv_weight = Vector("short_conv.conv");
    conv.conv_bias = VectorIf(spec.bias, "short_conv.conv.bias");
    conv.out_proj = Linear({"short_conv.out_proj"}, spec.proj_bias);
  }

  void Mixer(const Mamba2Spec& spec, PackedLayer* layer) {
    layer->mamba2 = std::make_unique<PackedMamba2>();
    PackedMamba2* mamba = layer->mamba2.get();
    mamba->in_proj = Linear({"mamba.in_proj"}, spec.proj_bias);
    mamba->out_proj = Linear({"mamba.out_proj"}, spec.proj_bias);
    mamba->conv_weight = Vector("mamba.conv");
    mamba->conv_bias = VectorIf(spec.conv_bias, "mamba.conv.bias");
    mamba->dt_bias = Vector("mamba.dt_bias");
    mamba->a_log = Vector("mamba.a_log");
    mamba->d = Vector("mamba.d");
    mamba->norm = Vector("mamba.norm");
  }

  std::unique_ptr<PackedRouterMlp> RouterMlp(const RouterMlpSpec& spec) {
    auto mlp = std::make_unique<PackedRouterMlp>();
    mlp->down = Matrix({"moe.router.down"}, DType::kF32);
    mlp->fc1 = Matrix({"moe.router.fc1"}, DType::kF32);
    mlp->fc2 = Matrix({"moe.router.fc2"}, DType::kF32);
    mlp->down_bias = Vector("moe.router.down.bias");
    mlp->fc1_bias = Vector("moe.router.fc1.bias");
    mlp->fc2_bias = Vector("moe.router.fc2.bias");
    mlp->norm = Norm("moe.router.mlp_norm", spec.norm).weight;
    mlp->carry = VectorIf(spec.carries, "moe.router.carry");
    return mlp;
  }

  std::unique_ptr<PackedMoe> Moe(const MoeSpec& spec) {
    auto moe = std::make_unique<PackedMoe>();
    moe->router = Matrix({"moe.router"}, DType::kF32);
    moe->logit_bias = VectorIf(spec.router.logit_bias, "moe.router.bias");
    moe->select_bias = VectorIf(spec.router.select_bias, "moe.router.select_bias");
    moe->router_norm = Norm("moe.router.norm", spec.router.input_norm).weight;
    moe->expert_scale = VectorIf(spec.router.expert_scale, "moe.router.expert_scale");
    if (spec.router.by_token) moe->table = Whole("moe.router.table");
    moe->output_bias = VectorIf(spec.output_bias, "moe.output_bias");
    std::vector<std::string> parents;
    for (int64_t e = 0; e < spec.num_experts; ++e) parents.push_back(Cat("moe.experts.", e));
    moe->experts = Experts(parents, spec.expert, held_ != nullptr ? &(*held_)[moe_layers_] : nullptr);
    ++moe_layers_;
    if (spec.router.mlp) moe->router_mlp = RouterMlp(*spec.router.mlp);
    if (spec.router.sinks > 0) moe->sinks = Matrix({"moe.router.sinks"}, DType::kF32);
    if (spec.router.weight_scale) moe->weight_scale = Vector("moe.router.weight_scale")[0];
    if (spec.shared) {
      std::vector<std::string> shared = {"moe.shared"};
      if (spec.shared->router_weighted) {
        shared.clear();
        for (int64_t e = 0; e < spec.shared->count; ++e) shared.push_back(Cat("moe.shared.", e));
      }
      moe->shared = Experts(shared, spec.shared->mlp);
      if (spec.shared->sigmoid_gated) moe->shared_gate = Matrix({"moe.shared_gate"}, DType::kF32);
    }
    if (spec.latent_size > 0) {
      moe->latent_down = Matrix({"moe.latent_down"}, format_);
      moe->latent_up = Matrix({"moe.latent_up"}, format_);
      moe->latent_down_bias = VectorIf(spec.latent_bias, "moe.latent_down.bias");
      moe->latent_up_bias = VectorIf(spec.latent_bias, "moe.latent_up.bias");
    }
    return moe;
  }

  std::unique_ptr<PackedNgram> Ngram(const NgramSpec& spec) {
    auto ngram = std::make_unique<PackedNgram>();
    const int64_t cols = spec.embed_dim / spec.heads();
    std::vector<std::string> parts;
    for (size_t p = 0; p < spec.part_rows.size(); ++p) parts.push_back(Cat(prefix_, "ngram.table.", p));
    DType dtype = store_.Get(parts[0]).dtype;
    int64_t rows = 0;
    for (const std::string& part : parts) {
      const WeightSource source = store_.Get(part);
      rows += source.rows;
      if (source.dtype != dtype) dtype = DType::kF32;
    }
    ngram->table_data.reserve(static_cast<size_t>(rows * cols) * DTypeSize(dtype));
    for (const std::string& part : parts) {
      Check(part);
      AppendRows(store_.Get(part), dtype, &ngram->table_data);
      store_.Release(part);
    }
    ngram->table = {dtype, ngram->table_data.data(), rows, cols, cols, 1};
    bytes_ += ngram->table_data.size();
    ngram->key = Matrix({"ngram.key"}, format_);
    ngram->value = Matrix({"ngram.value"}, format_);
    ngram->key_norm = Norm("ngram.key_norm", spec.norm).weight;
    ngram->query_norm = Norm("ngram.query_norm", spec.norm).weight;
    ngram->conv_norm = Norm("ngram.conv_norm", spec.norm).weight;
    ngram->conv_weight = Vector("ngram.conv");
    return ngram;
  }

  // A table that rows are looked up in, copied to `data` in its own dtype.
  WeightSource Table(const std::string& name, std::vector<std::byte>* data) {
    const WeightSource source = store_.Get(name);
    Check(name);
    AppendRows(source, source.dtype, data);
    store_.Release(name);
    bytes_ += data->size();
    return {source.dtype, data->data(), source.rows, source.cols, source.cols, 1};
  }

  std::unique_ptr<PackedNgramMean> NgramMean(const NgramMeanSpec& spec) {
    auto mean = std::make_unique<PackedNgramMean>();
    mean->table_data.resize(static_cast<size_t>(spec.heads()));
    for (size_t h = 0; h < mean->table_data.size(); ++h) {
      mean->tables.push_back(Table(Cat("ngram_mean.", h, ".table"), &mean->table_data[h]));
      mean->projections.push_back(Matrix({Cat("ngram_mean.", h, ".projection")}, format_));
    }
    return mean;
  }

  std::unique_ptr<PackedLayerInputs> LayerInputs(const LayerInputSpec& spec) {
    auto inputs = std::make_unique<PackedLayerInputs>();
    inputs->table = Table("layer_input.table", &inputs->table_data);
    inputs->projection = Matrix({"layer_input.projection"}, format_);
    inputs->norm = Norm("layer_input.norm", spec.projection_norm).weight;
    return inputs;
  }

  std::unique_ptr<PackedLayerInput> LayerInput(const LayerInputSpec& spec) {
    auto input = std::make_unique<PackedLayerInput>();
    input->gate = Matrix({"layer_input.gate"}, format_);
    input->projection = Matrix({"layer_input.projection"}, format_);
    input->norm = Norm("layer_input.norm", spec.norm).weight;
    return input;
  }

  PackedResidual Residual(const std::string& prefix, const ResidualSpec& spec) {
    if (!spec.learnt) return {};
    return {Vector(prefix + "skip"), Vector(prefix + "skip_bias"), Vector(prefix + "branch"),
            Vector(prefix + "branch_bias")};
  }

  PackedNormGate NormGate(const std::string& prefix, int64_t rank) {
    if (rank == 0) return {};
    return {Matrix({prefix + "gate_down"}, format_), Matrix({prefix + "gate_up"}, format_)};
  }

  PackedLayer Layer(const LayerSpec& spec) {
    PackedLayer layer;
    if (spec.ngram) layer.ngram = Ngram(*spec.ngram);
    if (!std::holds_alternative<std::monostate>(spec.mixer)) {
      layer.mixer_norm = Norm("mixer_norm", spec.mixer_norm);
      layer.mixer_norm_gate = NormGate("mixer_norm.", spec.mixer_norm_gate);
      layer.mixer_post_norm = Norm("mixer_post_norm", spec.mixer_post_norm);
      std::visit([&](const auto& mixer) { Mixer(mixer, &layer); }, spec.mixer);
      if (spec_.hyper) layer.mixer_hyper = Hyper("mixer_hyper.", *spec_.hyper, false);
    }
    if (!std::holds_alternative<std::monostate>(spec.ffn)) {
      layer.ffn_norm = Norm("ffn_norm", spec.ffn_norm);
      layer.ffn_norm_gate = NormGate("ffn_norm.", spec.ffn_norm_gate);
      if (spec_.hyper) layer.ffn_hyper = Hyper("ffn_hyper.", *spec_.hyper, false);
      layer.ffn_own_post_norm = Norm("ffn_own_post_norm", spec.ffn_own_post_norm);
      layer.ffn_post_norm = Norm("ffn_post_norm", spec.ffn_post_norm);
    }
    if (const auto* mlp = std::get_if<MlpSpec>(&spec.ffn)) layer.mlp = Experts({"mlp"}, *mlp);
    if (const auto* moe = std::get_if<MoeSpec>(&spec.ffn)) layer.moe = Moe(*moe);
    if (spec.beside) {
      layer.beside_norm = Norm("beside.norm", spec.beside->norm);
      layer.beside_post_norm = Norm("beside.post_norm", spec.beside->post_norm);
      layer.beside = Experts({"beside"}, spec.beside->mlp);
    }
    if (spec_.layer_input) layer.layer_input = LayerInput(*spec_.layer_input);
    layer.layer_scale = VectorIf(spec.layer_scale, "layer_scale");
    layer.ffn_scale = VectorIf(spec.ffn_scale, "ffn_scale");
    layer.mixer_conv = VectorIf(spec.mixer_conv > 0, "mixer.conv");
    layer.ffn_conv = VectorIf(spec.ffn_conv > 0, "ffn.conv");
    layer.mixer_residual = Residual("mixer_residual.", spec.mixer_residual);
    layer.ffn_residual = Residual("ffn_residual.", spec.ffn_residual);
    return layer;
  }

  const ModelSpec& spec_;
  const ExpertLists* held_;
  size_t moe_layers_ = 0;  // packed so far
};

}  // namespace

StatusOr<std::unique_ptr<PackedModel>> PackModel(const ModelSpec& spec, const WeightStore& store, DType format,
                                                 Backend* backend, WorkerPool* pool,
                                                 const std::function<void(double)>& progress, const ExpertLists* held) {
  return Packer(spec, store, format, backend, pool, held).Pack(progress);
}

}  // namespace moe
