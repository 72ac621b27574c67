// The tile instructions of AMX-BF16, each over a memory clobber: GCC 12's intrinsics declare only part of what
// LDTILECFG and TILELOADD read, so that at -O3 earlier stores to the rest may vanish. After vec16_avx512-inl.h.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Tiles 0 … 7. A kernel over tiles takes this interface as a template parameter, so that a test can run it on a model
// of them (tests/engine/device/amx_attention_model.cc).
struct AmxTiles {
  // Rows of each tile, of 64 bytes; the contents become zeros.
  static void Configure(const uint8_t (&rows)[8]) {
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof(config) == 64);
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = 64;
      config.rows[i] = rows[i];
    }
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  // Tiles left in use would make every context switch of this thread save 8 KB.
  static void Release() { asm volatile("tilerelease" ::: "memory"); }

  // Rows `stride` bytes apart.
  template <int kTile>
  static void Load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void Store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile) : "memory");
  }
  // Sums [rows of A][16] += A [rows][16 pairs] · B [16 pairs][16][2]; the order: gemm_amx.cc.
  template <int kSums, int kA, int kB>
  static void Product() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB) : "memory");
  }
};

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
