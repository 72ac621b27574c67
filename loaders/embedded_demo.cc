// The demo model, put into this object file by the assembler. CMake passes the directory as MOE_DEMO_DIR and rebuilds
// this file when one of the five changes.
#include "loaders/memory_files.h"
#include "loaders/model_files.h"

// Symbols SYMBOL_begin and SYMBOL_end around the bytes of FILE; 64: the alignment that tensors in the file assume.
#define MOE_EMBED(SYMBOL, FILE)                                                      \
  asm(".pushsection .rodata.moe_demo,\"a\",@progbits\n"                              \
      ".balign 64\n" #SYMBOL                                                         \
      "_begin:\n"                                                                    \
      ".incbin \"" MOE_DEMO_DIR "/" FILE "\"\n" #SYMBOL                              \
      "_end:\n.byte 0\n"                                                             \
      ".popsection\n");                                                              \
  extern "C" __attribute__((visibility("hidden"))) const std::byte SYMBOL##_begin[]; \
  extern "C" __attribute__((visibility("hidden"))) const std::byte SYMBOL##_end[];

MOE_EMBED(moe_demo_config, "config.json")
MOE_EMBED(moe_demo_generation_config, "generation_config.json")
MOE_EMBED(moe_demo_tokenizer, "tokenizer.json")
MOE_EMBED(moe_demo_tokenizer_config, "tokenizer_config.json")
MOE_EMBED(moe_demo_weights, "model.safetensors")

namespace moe {

std::unique_ptr<ModelFiles> OpenEmbeddedDemo() {
  const auto bytes = [](const std::byte* begin, const std::byte* end) {
    return std::span<const std::byte>(begin, static_cast<size_t>(end - begin));
  };
  return StaticModelFiles(
      std::string("embedded:") + kEmbeddedDemoName,
      {{"config.json", bytes(moe_demo_config_begin, moe_demo_config_end)},
       {"generation_config.json", bytes(moe_demo_generation_config_begin, moe_demo_generation_config_end)},
       {"tokenizer.json", bytes(moe_demo_tokenizer_begin, moe_demo_tokenizer_end)},
       {"tokenizer_config.json", bytes(moe_demo_tokenizer_config_begin, moe_demo_tokenizer_config_end)},
       {"model.safetensors", bytes(moe_demo_weights_begin, moe_demo_weights_end)}});
}

}  // namespace moe
