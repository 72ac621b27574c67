// Multimodal models around a language model that has a reader of its own: its fields are in an object of theirs, its
// tensors under a prefix.
#include <algorithm>
#include <utility>

#include "loaders/architectures.h"
#include "loaders/architectures/families.h"
#include "loaders/json_text.h"

namespace moe {
namespace {

void IgnoreVision(TensorRules* rules) {
  for (const std::string prefix : {"", "model."}) {
    for (const char* part : {"vision_tower.*", "vision_model.*", "multi_modal_projector.*", "mm_projector.*"}) {
      rules->Ignore(prefix + part, "vision");
    }
  }
}

// The names of the language model as it is called in released files, and as transformers 5 does inside the whole one.
void AddWrappedNames(TensorRules* rules) {
  rules->AddAliases({{"model.", "language_model.model."}, {"lm_head.", "language_model.lm_head."}});
  rules->AddAliases({{"model.", "model.language_model."}});
  IgnoreVision(rules);
}

}  // namespace

void ReadKimiK25(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadDeepseekV3(config, spec, rules);
  // The whole model's setting counts, and says so where it is absent.
  spec->tied_head = config->Outer().BoolOr("tie_word_embeddings", true);
  AddWrappedNames(rules);
  // What transformers 5.24 makes of the layers' names when it saves.
  rules->AddAliases({{"model.layers.", "language_model.model.blocks."}});
}

void ReadHyV4Vl(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  // With text alone its three position axes are one. They rotate pairs, unlike Hy-V4's.
  ReadHyV4(config, spec, rules);
  for (LayerSpec& layer : spec->layers) {
    auto& mla = std::get<MlaSpec>(layer.mixer);
    if (mla.rope) mla.rope->layout = RopeSpec::Layout::kInterleaved;
    if (mla.indexer && mla.indexer->rope) mla.indexer->rope->layout = RopeSpec::Layout::kInterleaved;
  }
  // What transformers 5.24 makes of this name when it saves.
  rules->AddAliases({{"model.hc_pre.hc_head.", "model.hc_head.hc_pre."}});
  rules->AddAliases({{"model.", "model.language_model."}});
  for (const char* part : {"vit.*", "model.vit.*", "model.vision_tower.*"}) rules->Ignore(part, "vision");
}

void ReadNemotronOmni(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ConfigReader text = config->Nested("llm_config");
  ReadNemotronH(&text, spec, rules);
  rules->AddAliases({{"backbone.", "language_model.backbone."},
                     {"model.", "language_model.model."},
                     {"lm_head.", "language_model.lm_head."}});
  IgnoreVision(rules);
  for (const char* part : {"mlp1.*", "vision_final_layernorm.*"}) rules->Ignore(part, "vision");
  for (const char* part : {"sound_encoder.*", "sound_projection.*", "audio_model.*", "audio_projector.*"}) {
    rules->Ignore(part, "audio");
  }
}

void ReadQwen3OmniMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ConfigReader thinker = config->Nested("thinker_config");
  ConfigReader text = thinker.Nested("text_config");
  text.Assume({{"vocab_size", 3584},
               {"hidden_size", 2048},
               {"num_hidden_layers", 28},
               {"num_attention_heads", 28},
               {"num_key_value_heads", 4},
               {"max_position_embeddings", 32768},
               {"moe_intermediate_size", 768},
               {"num_experts_per_tok", 8},
               {"num_experts", 128},
               {"norm_topk_prob", true}});
  if (!text.Has("rope_parameters")) text.Assume({{"rope_theta", 1000000.0}});
  ReadQwen3Moe(&text, spec, rules);
  rules->AddAliases({{"model.", "thinker.model."}, {"lm_head.", "thinker.lm_head."}});
  for (const std::string prefix : {"", "thinker."}) {
    rules->Ignore(prefix + "visual.*", "vision");
    rules->Ignore(prefix + "audio_tower.*", "audio");
  }
  for (const char* part : {"talker.*", "code2wav.*"}) rules->Ignore(part, "speech");
}

void ReadWrapped(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  const std::string type = config->String("model_type");
  const std::span<const Architecture> table = Architectures();
  const auto inner = std::find_if(table.begin(), table.end(), [&type](const Architecture& entry) {
    return entry.model_type != nullptr && type == entry.model_type && entry.read != ReadWrapped;
  });
  if (!config->ok()) return;
  if (inner == table.end()) {
    config->Unsupported("model_type", Cat("is ", Quoted(type),
                                          ", none of the language models with experts that are "
                                          "supported"));
    return;
  }
  spec->family = inner->family;
  inner->read(config, spec, rules);
  AddWrappedNames(rules);
}

}  // namespace moe
