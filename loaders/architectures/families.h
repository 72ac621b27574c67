// The entry of each family's file; the table is in loaders/architectures.cc.
#ifndef MOE_LOADERS_ARCHITECTURES_FAMILIES_H_
#define MOE_LOADERS_ARCHITECTURES_FAMILIES_H_

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

void ReadAfmoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadArctic(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadAria(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadAxK1(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadAxK2(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadBailingHybrid(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadBailingMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadBailingMoeV2(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadBailingMoeV25(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadBeam(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadCohere2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadDbrx(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadDeepseekOcr2(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadDeepseekV2(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadDeepseekV3(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadDeepseekV32(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadDeepseekV4(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadDots1(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadDots3Note(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadErnie45Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadErnie45VlMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadExaoneMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadFlexOlmo(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadFlint(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGemma4(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGlm4Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGlm4MoeLite(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGlm4vMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGlmMoeDsa(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGptOss(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGraniteMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGraniteMoeHybrid(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGraniteMoeShared(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGraniteMoeSwa(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGrok1(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadGrok2(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadHunYuanV1Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadHyV3(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadHyV4(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadHyV4Vl(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadInkling(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadJamba(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadJetMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadKimiK25(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadKimiLinear(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadKolibri1(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadLaguna(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadLaraMini(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadLfm2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadLlama4(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadLongcatFlash(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadLongcatFlashNgram(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadMellum(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadMimoV2(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadMiniMax(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadMiniMaxM2(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadMiniMaxM3(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadMiniMaxText01(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadMistral4(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadMixtral(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadNemotronH(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadNemotronOmni(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadOlmoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadParam2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadPhimoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadQwen2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadQwen35Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadQwen3Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadQwen3Next(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadQwen3OmniMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadQwen3VlMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadQwen4Exp(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadSarvamMla(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadSarvamMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadSolarOpen(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadStep3(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadStep3p5(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadWrapped(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadZaya(ConfigReader* config, ModelSpec* spec, TensorRules* rules);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_FAMILIES_H_
