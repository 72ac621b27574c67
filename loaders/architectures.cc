#include "loaders/architectures.h"

#include <algorithm>

#include "loaders/architectures/families.h"
#include "loaders/foreign_fields.h"
#include "loaders/json_text.h"

namespace moe {
namespace {

constexpr Architecture kArchitectures[] = {
    {"AXK1ForCausalLM", "axk1", "axk1", ReadAxK1},
    {"AXK2ForCausalLM", "axk2", "axk2", ReadAxK2},
    {"AfmoeForCausalLM", "afmoe", "afmoe", ReadAfmoe},
    {"ArcticForCausalLM", "arctic", "arctic", ReadArctic},
    {"AriaForConditionalGeneration", "aria", "aria", ReadAria},
    {"AriaTextForCausalLM", "aria_text", "aria", ReadAria},
    {"BailingHybridForCausalLM", "bailing_hybrid", "bailing_hybrid", ReadBailingHybrid},
    {"BailingMoeForCausalLM", "bailing_moe", "bailing_moe", ReadBailingMoe},
    {"BailingMoeV2ForCausalLM", "bailing_moe_v2", "bailing_moe_v2", ReadBailingMoeV2},
    {"BailingMoeV2_5ForCausalLM", nullptr, "bailing_moe_v2_5", ReadBailingMoeV25},
    {"BailingMoeV3ForCausalLM", nullptr, "bailing_hybrid", ReadBailingHybrid},
    {"BeamForCausalLM", "beam", "beam", ReadBeam},
    {"Cohere2MoeForCausalLM", "cohere2_moe", "cohere2_moe", ReadCohere2Moe},
    {"Cohere2VisionForConditionalGeneration", "cohere2_vision", "wrapped", ReadWrapped},
    {"DbrxForCausalLM", "dbrx", "dbrx", ReadDbrx},
    {"DeepseekOcr2ForConditionalGeneration", "deepseek_ocr2", "deepseek_ocr2", ReadDeepseekOcr2},
    {"DeepseekV2ForCausalLM", "deepseek_v2", "deepseek_v2", ReadDeepseekV2},
    {"DeepseekV32ForCausalLM", "deepseek_v32", "deepseek_v32", ReadDeepseekV32},
    {"DeepseekV3ForCausalLM", "deepseek_v3", "deepseek_v3", ReadDeepseekV3},
    {"DeepseekV4ForCausalLM", "deepseek_v4", "deepseek_v4", ReadDeepseekV4},
    {"Dots1ForCausalLM", "dots1", "dots1", ReadDots1},
    {"Dots3NoteForCausalLM", "dots3_note_text", "dots3_note", ReadDots3Note},
    {"Dots3NoteForConditionalGeneration", "dots3_note", "dots3_note", ReadDots3Note},
    {"Ernie4_5_MoeForCausalLM", "ernie4_5_moe", "ernie4_5_moe", ReadErnie45Moe},
    {"Ernie4_5_VLMoeForConditionalGeneration", "ernie4_5_vl_moe", "ernie4_5_vl_moe", ReadErnie45VlMoe},
    {"Ernie4_5_VL_MoeForConditionalGeneration", nullptr, "ernie4_5_vl_moe", ReadErnie45VlMoe},
    {"ExaoneMoEForCausalLM", nullptr, "exaone_moe", ReadExaoneMoe},
    {"ExaoneMoeForCausalLM", "exaone_moe", "exaone_moe", ReadExaoneMoe},
    {"FlexOlmoForCausalLM", "flex_olmo", "flex_olmo", ReadFlexOlmo},
    {"FlintForCausalLM", "flint", "flint", ReadFlint},
    {"Gemma4ForCausalLM", "gemma4_text", "gemma4", ReadGemma4},
    {"Gemma4ForConditionalGeneration", "gemma4", "gemma4", ReadGemma4},
    {"Glm4MoeForCausalLM", "glm4_moe", "glm4_moe", ReadGlm4Moe},
    {"Glm4MoeLiteForCausalLM", "glm4_moe_lite", "glm4_moe_lite", ReadGlm4MoeLite},
    {"Glm4vMoeForConditionalGeneration", "glm4v_moe", "glm4v_moe", ReadGlm4vMoe},
    {"GlmMoeDsaForCausalLM", "glm_moe_dsa", "glm_moe_dsa", ReadGlmMoeDsa},
    {"GptOssForCausalLM", "gpt_oss", "gpt_oss", ReadGptOss},
    {"GraniteMoeForCausalLM", "granitemoe", "granite_moe", ReadGraniteMoe},
    {"GraniteMoeHybridForCausalLM", "granitemoehybrid", "granite_moe", ReadGraniteMoeHybrid},
    {"GraniteMoeSWAForCausalLM", "granitemoe_swa", "granite_moe", ReadGraniteMoeSwa},
    {"GraniteMoeSharedForCausalLM", "granitemoeshared", "granite_moe", ReadGraniteMoeShared},
    {"Grok1ForCausalLM", nullptr, "grok2", ReadGrok2},
    {"Grok1ModelForCausalLM", "grok-1", "grok1", ReadGrok1},
    {"HYV3ForCausalLM", "hy_v3", "hy_v3", ReadHyV3},
    {"HYV4ForCausalLM", "hy_v4", "hy_v4", ReadHyV4},
    {"HYV4VLForConditionalGeneration", "hy_v4_vl", "hy_v4", ReadHyV4Vl},
    {"HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", "hunyuan_v1_moe", ReadHunYuanV1Moe},
    {"InklingForCausalLM", "inkling_text", "inkling", ReadInkling},
    {"InklingForConditionalGeneration", "inkling_mm_model", "inkling", ReadInkling},
    {"InternVLForConditionalGeneration", "internvl", "wrapped", ReadWrapped},
    {"JambaForCausalLM", "jamba", "jamba", ReadJamba},
    {"JetMoeForCausalLM", "jetmoe", "jetmoe", ReadJetMoe},
    {"KimiK25ForConditionalGeneration", nullptr, "kimi_k25", ReadKimiK25},
    {"KimiLinearForCausalLM", "kimi_linear", "kimi_linear", ReadKimiLinear},
    {"Kimi_K25ForConditionalGeneration", "kimi_k25", "kimi_k25", ReadKimiK25},
    {"Kolibri1ForCausalLM", "kolibri1", "kolibri1", ReadKolibri1},
    {"LagunaForCausalLM", "laguna", "laguna", ReadLaguna},
    {"LaraMiniForCausalLM", "lara_mini", "lara_mini", ReadLaraMini},
    {"Lfm2MoeForCausalLM", "lfm2_moe", "lfm2_moe", ReadLfm2Moe},
    {"Llama4ForCausalLM", "llama4_text", "llama4", ReadLlama4},
    {"Llama4ForConditionalGeneration", "llama4", "llama4", ReadLlama4},
    {"LlavaForConditionalGeneration", "llava", "wrapped", ReadWrapped},
    {"LongcatFlashForCausalLM", "longcat_flash", "longcat_flash", ReadLongcatFlash},
    {"LongcatFlashNgramForCausalLM", "longcat_flash_ngram", "longcat_flash", ReadLongcatFlashNgram},
    {"MellumForCausalLM", "mellum", "mellum", ReadMellum},
    {"MiMoV2FlashForCausalLM", "mimo_v2_flash", "mimo_v2", ReadMimoV2},
    {"MiMoV2ForCausalLM", "mimo_v2", "mimo_v2", ReadMimoV2},
    {"MiniMaxForCausalLM", "minimax", "minimax", ReadMiniMax},
    {"MiniMaxM2ForCausalLM", "minimax_m2", "minimax_m2", ReadMiniMaxM2},
    {"MiniMaxM3SparseForConditionalGeneration", "minimax_m3_vl", "minimax_m3", ReadMiniMaxM3},
    {"MiniMaxM3VLForCausalLM", "minimax_m3_vl_text", "minimax_m3", ReadMiniMaxM3},
    {"MiniMaxText01ForCausalLM", "minimax_text_01", "minimax_text_01", ReadMiniMaxText01},
    {"Mistral3ForConditionalGeneration", "mistral3", "wrapped", ReadWrapped},
    {"Mistral4ForCausalLM", "mistral4", "mistral4", ReadMistral4},
    {"MixtralForCausalLM", "mixtral", "mixtral", ReadMixtral},
    {"NemotronHForCausalLM", "nemotron_h", "nemotron_h", ReadNemotronH},
    {"NemotronH_Omni_Reasoning_V3", "nemotron_h_omni", "nemotron_h", ReadNemotronOmni},
    {"OlmoeForCausalLM", "olmoe", "olmoe", ReadOlmoe},
    {"Param2MoEForCausalLM", "param2moe", "param2moe", ReadParam2Moe},
    {"PhiMoEForCausalLM", nullptr, "phimoe", ReadPhimoe},
    {"PhimoeForCausalLM", "phimoe", "phimoe", ReadPhimoe},
    {"Qwen2MoeForCausalLM", "qwen2_moe", "qwen2_moe", ReadQwen2Moe},
    {"Qwen3MoeForCausalLM", "qwen3_moe", "qwen3_moe", ReadQwen3Moe},
    {"Qwen3NextForCausalLM", "qwen3_next", "qwen3_next", ReadQwen3Next},
    {"Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe", "qwen3_omni_moe", ReadQwen3OmniMoe},
    {"Qwen3OmniMoeThinkerForConditionalGeneration", "qwen3_omni_moe_thinker", "qwen3_omni_moe", ReadQwen3OmniMoe},
    {"Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "qwen3_vl_moe", ReadQwen3VlMoe},
    {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", "qwen3_5_moe", ReadQwen35Moe},
    {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "qwen3_5_moe", ReadQwen35Moe},
    {"Qwen4ExpForCausalLM", "qwen4_exp_text", "qwen4_exp", ReadQwen4Exp},
    {"Qwen4ExpForConditionalGeneration", "qwen4_exp", "qwen4_exp", ReadQwen4Exp},
    {"SarvamMLAForCausalLM", "sarvam_mla", "sarvam_mla", ReadSarvamMla},
    {"SarvamMoEForCausalLM", "sarvam_moe", "sarvam_moe", ReadSarvamMoe},
    {"SolarOpenForCausalLM", "solar_open", "solar_open", ReadSolarOpen},
    {"Step3TextForCausalLM", "step3_text", "step3", ReadStep3},
    {"Step3VLForConditionalGeneration", "step3_vl", "step3", ReadStep3},
    {"Step3p5ForCausalLM", "step3p5", "step3p5", ReadStep3p5},
    {"Step3p7ForConditionalGeneration", "step3p7", "step3p5", ReadStep3p5},
    {"ZayaForCausalLM", "zaya", "zaya", ReadZaya},
};

// Levenshtein's. Names in a config are cut to what a name could be, so that a hostile one costs nothing.
int64_t EditDistance(std::string_view a, std::string_view b) {
  a = a.substr(0, 100);
  std::vector<int64_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

const Architecture* FindArchitecture(ConfigReader* config, std::span<const Architecture> table) {
  const std::vector<std::string> names = config->StringList("architectures");
  const std::string model_type = config->StringOr("model_type", "");
  if (!config->ok()) return nullptr;
  for (const Architecture& entry : table) {
    if (names.empty() ? entry.model_type != nullptr && model_type == entry.model_type : names[0] == entry.name) {
      return &entry;
    }
  }
  const std::string& wanted = names.empty() ? model_type : names[0];
  const Architecture* nearest = nullptr;
  int64_t distance = 0;
  for (const Architecture& entry : table) {
    const char* name = names.empty() ? entry.model_type : entry.name;
    if (name == nullptr) continue;
    const int64_t own = EditDistance(wanted, name);
    if (nearest == nullptr || own < distance) {
      nearest = &entry;
      distance = own;
    }
  }
  config->Unsupported("architectures",
                      Cat("the architecture ", names.empty() ? "of model_type " : "", Quoted(wanted),
                          " is not supported; `moe inspect --architectures` lists the ", table.size(), " that are",
                          nearest == nullptr ? "" : Cat(", the nearest name is ", nearest->name)));
  return nullptr;
}

// The dtype that the config says, in the text part or beside it. Told to users only: anything odd is not worth refusing
// a checkpoint for, its tensors are checked themselves.
void ReadDType(const nlohmann::json& document, ModelDescription* model) {
  for (const nlohmann::json& part : {document.value("text_config", nlohmann::json()), document}) {
    if (!part.is_object()) continue;
    for (const char* field : {"dtype", "torch_dtype"}) {
      const auto found = part.find(field);
      if (model->dtype.empty() && found != part.end() && found->is_string()) model->dtype = *found;
    }
  }
  if (model->dtype.starts_with("torch.")) model->dtype.erase(0, 6);
}

}  // namespace

std::span<const Architecture> Architectures() {
  return kArchitectures;
}

StatusOr<ModelDescription> ReadModelConfig(std::string_view text, const std::string& file,
                                           std::span<const Architecture> table) {
  constexpr size_t kMaxConfigBytes = size_t{4} << 20;
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document,
                       ParseJson(text, file, {.max_bytes = kMaxConfigBytes, .non_finite = true}));
  ConfigReader root(&document, file);
  MOE_RETURN_IF_ERROR(root.status());
  const Architecture* architecture = FindArchitecture(&root, table);
  if (architecture == nullptr) return root.status();
  ConfigReader config = root.Nested("text_config");
  ModelDescription model;
  model.spec.architecture = architecture->name;
  model.spec.family = architecture->family;
  architecture->read(&config, &model.spec, &model.rules);
  MOE_RETURN_IF_ERROR(config.status());
  CheckForeignFields(&config, model.spec);
  MOE_RETURN_IF_ERROR(config.status());
  model.warnings = config.warnings();
  ReadDType(document, &model);
  MOE_ASSIGN_OR_RETURN(model.quantization, ReadQuantizationConfig(document, file));
  MOE_RETURN_IF_ERROR(Annotate(ValidateSpec(model.spec), file));
  return model;
}

}  // namespace moe
