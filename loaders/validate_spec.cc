// Rules that every model obeys, whatever its family. Field names are those that most config.json files use.
#include <cmath>
#include <limits>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/spec_checks.h"

namespace moe {
namespace {

using namespace spec_checks;  // NOLINT: the checks are this file's vocabulary

Status CheckNgram(const NgramSpec& ngram, int64_t vocab_size) {
  constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();
  MOE_RETURN_IF_ERROR(CheckRange("ngram_size", ngram.max_n, 2, NgramSpec::kMaxN));
  MOE_RETURN_IF_ERROR(CheckRange("heads_per_ngram", ngram.heads_per_n, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("ple_embed_dim", ngram.embed_dim, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckRange("ple_conv_kernel_size", ngram.conv_kernel, 1, Mamba2Spec::kMaxConvKernel));
  MOE_RETURN_IF_ERROR(CheckRange("hc_count", ngram.streams, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckNorm(ngram.norm));
  if (ngram.embed_dim % ngram.heads() != 0) {
    return InvalidError("ple_embed_dim is ", ngram.embed_dim, ", not a multiple of the ", ngram.heads(),
                        " n-gram heads");
  }
  if (static_cast<int64_t>(ngram.multipliers.size()) != ngram.max_n ||
      static_cast<int64_t>(ngram.head_rows.size()) != ngram.heads()) {
    return InvalidError("n-gram embeddings: ", ngram.multipliers.size(), " multipliers and ", ngram.head_rows.size(),
                        " heads");
  }
  for (const int64_t multiplier : ngram.multipliers) {
    MOE_RETURN_IF_ERROR(
        CheckRange("an n-gram multiplier", multiplier, 1, std::numeric_limits<int64_t>::max() / vocab_size));
  }
  int64_t needed = 0;
  for (const int64_t rows : ngram.head_rows) {
    MOE_RETURN_IF_ERROR(CheckRange("ngram_vocab_size_base", rows, 1, kMaxRows));
    needed += rows;
  }
  int64_t stored = 0;
  for (const int64_t rows : ngram.part_rows) {
    MOE_RETURN_IF_ERROR(CheckRange("the rows of a part of the n-gram table", rows, 1, kMaxRows));
    stored += rows;
  }
  if (needed > stored || stored > kMaxRows) {
    return InvalidError("the n-gram table has ", stored, " rows, expected ", needed, " to ", kMaxRows);
  }
  return CheckRange("the n-gram boundary token", ngram.boundary, 0, vocab_size - 1);
}

Status CheckNgramMean(const NgramMeanSpec& ngram, const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckRange("emb_neighbor_num", ngram.max_n, 2, NgramSpec::kMaxN));
  MOE_RETURN_IF_ERROR(CheckRange("emb_split_num", ngram.heads_per_n, 1, limits::kMaxHeads));
  MOE_RETURN_IF_ERROR(CheckRange("hidden_size / n-gram tables", ngram.dim, 1, limits::kMaxWidth));
  if (static_cast<int64_t>(ngram.head_rows.size()) != ngram.heads()) {
    return InvalidError("n-gram embeddings: ", ngram.head_rows.size(), " tables for ", ngram.heads(), " hashes");
  }
  for (const int64_t rows : ngram.head_rows) {
    MOE_RETURN_IF_ERROR(
        CheckRange("ngram_vocab_size_ratio × vocab_size", rows, 1, std::numeric_limits<int32_t>::max()));
  }
  return CheckRange("the n-gram boundary token", ngram.boundary, 0, spec.vocab_size - 1);
}

Status CheckLayerInput(const LayerInputSpec& input, const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckRange("hidden_size_per_layer_input", input.dim, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckFinite("the scale of the layers' inputs", input.scale));
  MOE_RETURN_IF_ERROR(CheckFinite("the scale of the layers' embeddings", input.table_scale));
  MOE_RETURN_IF_ERROR(CheckNorm(input.projection_norm));
  MOE_RETURN_IF_ERROR(CheckNorm(input.norm));
  if (spec.hyper) return UnsupportedError("hyper-connections together with inputs of the layers' own");
  return absl::OkStatus();
}

Status CheckResidual(const ResidualSpec& residual) {
  MOE_RETURN_IF_ERROR(CheckFinite("residual_multiplier", residual.branch));
  return CheckFinite("residual_multiplier", residual.skip);
}

// Streams take the place of the residual row, so what else a layer could do with that row is left out.
Status CheckHyper(const HyperSpec& hyper, const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckRange("hc_mult", hyper.streams, 1, HyperSpec::kMaxStreams));
  MOE_RETURN_IF_ERROR(CheckRange("hc_mult × hidden_size", hyper.streams * spec.hidden_size, 1, limits::kMaxInner));
  MOE_RETURN_IF_ERROR(CheckRange("hc_sinkhorn_iters", hyper.sinkhorn, 0, 1000));
  MOE_RETURN_IF_ERROR(CheckNotNegative("hc_eps", hyper.eps));
  MOE_RETURN_IF_ERROR(CheckFinite("hc_magnitude", hyper.post_scale));
  MOE_RETURN_IF_ERROR(CheckNorm(hyper.norm));
  if (hyper.kind == HyperSpec::Kind::kGated)
    MOE_RETURN_IF_ERROR(CheckRange("hc_lowrank", hyper.rank, 1, limits::kMaxWidth));
  for (const LayerSpec& layer : spec.layers) {
    for (const ResidualSpec& residual : {layer.mixer_residual, layer.ffn_residual}) {
      if (residual.skip != 1 || residual.branch != 1 || residual.skip_normed) {
        return UnsupportedError("hyper-connections together with residual multipliers");
      }
    }
    if (layer.parallel || layer.defer_ffn || layer.layer_scale) {
      return UnsupportedError("hyper-connections together with parallel, deferred or scaled blocks");
    }
  }
  return absl::OkStatus();
}

// A layer that reads another layer's cache or selection needs an earlier one with one of the same shape.
Status CheckSharing(const ModelSpec& spec, size_t l) {
  if (const auto* attn = std::get_if<AttentionSpec>(&spec.layers[l].mixer); attn && attn->share_kv_with_layer >= 0) {
    const auto source = static_cast<size_t>(attn->share_kv_with_layer);
    const auto* own = source < l ? std::get_if<AttentionSpec>(&spec.layers[source].mixer) : nullptr;
    if (own == nullptr || own->share_kv_with_layer >= 0 || own->num_kv_heads != attn->num_kv_heads ||
        own->head_dim != attn->head_dim || own->v_head_dim != attn->v_head_dim) {
      return InvalidError("shares the keys and values of layer ", source, ", which has none of the same shape");
    }
  }
  if (const auto* mla = std::get_if<MlaSpec>(&spec.layers[l].mixer);
      mla && mla->indexer && mla->indexer->share_with_layer >= 0) {
    const auto source = static_cast<size_t>(mla->indexer->share_with_layer);
    const auto* own = source < l ? std::get_if<MlaSpec>(&spec.layers[source].mixer) : nullptr;
    if (own == nullptr || !own->indexer || own->indexer->share_with_layer >= 0) {
      return InvalidError("shares the indexer of layer ", source, ", which has none");
    }
  }
  return absl::OkStatus();
}

// Convolutions and learnt residuals of a layer's branches, and what its router takes over from an earlier one.
Status CheckBranches(const ModelSpec& spec, size_t l) {
  const LayerSpec& layer = spec.layers[l];
  for (const int64_t taps : {layer.mixer_conv, layer.ffn_conv}) {
    if (taps != 0) MOE_RETURN_IF_ERROR(CheckConvKernel("conv_kernel_size", taps));
  }
  if ((layer.mixer_conv > 0 || layer.ffn_conv > 0) && (spec.hyper || layer.defer_ffn)) {
    return UnsupportedError("convolutions of branches together with hyper-connections or a deferred ffn");
  }
  const bool learnt = layer.mixer_residual.learnt || layer.ffn_residual.learnt;
  if (learnt && (spec.hyper || layer.parallel || layer.defer_ffn)) {
    return UnsupportedError("learnt residuals together with hyper-connections, parallel or deferred blocks");
  }
  const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
  if (moe == nullptr || !moe->router.mlp || !moe->router.mlp->carries) return absl::OkStatus();
  for (size_t before = l; before-- > 0;) {
    const auto* source = std::get_if<MoeSpec>(&spec.layers[before].ffn);
    if (source == nullptr) continue;
    if (source->router.mlp && source->router.mlp->width == moe->router.mlp->width) return absl::OkStatus();
    break;
  }
  return InvalidError("the router takes over the state of one before that has none of its size");
}

// How many tensors the routed experts have at most; the rest is a few per layer.
int64_t ExpertTensors(const ModelSpec& spec) {
  int64_t total = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) total += moe->num_experts * (moe->expert.bias ? 6 : 3);
    const auto* attn = std::get_if<AttentionSpec>(&layer.mixer);
    if (attn != nullptr && attn->head_experts) total += 2 * attn->head_experts->num_experts;
  }
  return total;
}

}  // namespace

Status ValidateSpec(const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckRange("num_hidden_layers", static_cast<int64_t>(spec.layers.size()), 1, limits::kMaxLayers));
  MOE_RETURN_IF_ERROR(CheckRange("hidden_size", spec.hidden_size, 1, limits::kMaxWidth));
  MOE_RETURN_IF_ERROR(CheckRange("vocab_size", spec.vocab_size, 1, limits::kMaxVocab));
  MOE_RETURN_IF_ERROR(CheckRange("max_position_embeddings", spec.max_positions, 1, limits::kMaxPositions));
  MOE_RETURN_IF_ERROR(CheckNorm(spec.final_norm));
  if (spec.hyper) MOE_RETURN_IF_ERROR(CheckHyper(*spec.hyper, spec));
  if (spec.ngram_mean) MOE_RETURN_IF_ERROR(CheckNgramMean(*spec.ngram_mean, spec));
  if (spec.layer_input) MOE_RETURN_IF_ERROR(CheckLayerInput(*spec.layer_input, spec));
  if (!std::isfinite(spec.embedding_scale)) return InvalidError("the embedding multiplier is ", spec.embedding_scale);
  MOE_RETURN_IF_ERROR(CheckNorm(spec.embedding_norm));
  MOE_RETURN_IF_ERROR(CheckNotNegative("final_logit_softcapping", spec.logit_cap));
  MOE_RETURN_IF_ERROR(CheckRange("unpadded_vocab_size", spec.head_rows, 0, spec.vocab_size));
  if (spec.head_rows > 0 && (spec.tied_head || spec.head_bias)) {
    return UnsupportedError("unpadded_vocab_size with a tied head or a bias of the head");
  }
  if (spec.unit_head_columns && (spec.final_norm.kind != NormKind::kRms || !spec.final_norm.weight)) {
    return UnsupportedError("norm_head needs an RMS norm with a weight before the head");
  }
  if (!std::isfinite(spec.logit_scale)) return InvalidError("the logit scale is ", spec.logit_scale);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const std::string where = Cat("layer ", i);
    MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.mixer_norm), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckRange("gated_norm_rank", layer.mixer_norm_gate, 0, limits::kMaxWidth), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckRange("gated_norm_rank", layer.ffn_norm_gate, 0, limits::kMaxWidth), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.ffn_norm), where));
    for (const NormSpec& norm : {layer.mixer_post_norm, layer.ffn_own_post_norm, layer.ffn_post_norm}) {
      MOE_RETURN_IF_ERROR(Annotate(CheckNorm(norm), where));
    }
    MOE_RETURN_IF_ERROR(Annotate(CheckResidual(layer.mixer_residual), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckResidual(layer.ffn_residual), where));
    if (layer.beside) {
      MOE_RETURN_IF_ERROR(Annotate(CheckMlp("intermediate_size", layer.beside->mlp), where));
      MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.beside->norm), where));
      MOE_RETURN_IF_ERROR(Annotate(CheckNorm(layer.beside->post_norm), where));
      if (layer.beside->after_mixer && (!layer.parallel || spec.hyper)) {
        return UnsupportedError(where, ": an MLP that reads the row after the mixer in a layer that is not parallel");
      }
    }
    if (layer.ngram) {
      MOE_RETURN_IF_ERROR(Annotate(CheckNgram(*layer.ngram, spec.vocab_size), where));
      if (layer.ngram->streams != (spec.hyper ? spec.hyper->streams : 1) || layer.parallel) {
        return UnsupportedError(where,
                                ": n-gram embeddings on a parallel layer or on other streams than the residual's");
      }
    }
    MOE_RETURN_IF_ERROR(Annotate(CheckSharing(spec, i), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckBranches(spec, i), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckMixer(layer.mixer), where));
    MOE_RETURN_IF_ERROR(Annotate(CheckFfn(layer.ffn), where));
    const MixerRopes ropes = RopesOf(layer.mixer);
    for (const RopeSpec* rope : {ropes.own, ropes.indexer}) {
      if (rope == nullptr || rope->original_positions == 0 || rope->original_positions == spec.LongContextBorder()) {
        continue;
      }
      return UnsupportedError(where, ": original_max_position_embeddings is ", rope->original_positions,
                              " and that of a layer before ", spec.LongContextBorder());
    }
  }
  if (ExpertTensors(spec) > MaxRequiredTensors()) {
    return InvalidError("num_hidden_layers (", spec.layers.size(), ") × num_experts (", spec.MaxExperts(),
                        ") is more than any known model has");
  }
  for (const int32_t id : spec.eos_token_ids) {
    if (id < 0 || id >= spec.vocab_size) {
      return InvalidError("eos_token_id is ", id, ", expected 0 to vocab_size - 1 (", spec.vocab_size - 1, ")");
    }
  }
  if (spec.bos_token_id && (*spec.bos_token_id < 0 || *spec.bos_token_id >= spec.vocab_size)) {
    return InvalidError("bos_token_id is ", *spec.bos_token_id, ", expected 0 to vocab_size - 1 (", spec.vocab_size - 1,
                        ")");
  }
  return absl::OkStatus();
}

}  // namespace moe
