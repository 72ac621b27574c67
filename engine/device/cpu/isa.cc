// Which instruction sets this processor and system offer. By feature bits, never by model: virtual machines hide some.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/device/backend.h"

namespace moe {
namespace {

struct Features {
  bool avx2 = false;
  bool avx512 = false;  // F, BW, DQ, VL
  bool avx512_bf16 = false;
  bool amx_bf16 = false;
};

bool Bit(unsigned value, int bit) {
  return (value >> bit & 1u) != 0;
}

// The register states that the system saves on a context switch.
uint64_t EnabledStates() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux gives the 8 KB of tile registers to a process only after it asks (once, for all its threads).
bool RequestTilePermission() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

Features Detect() {
  Features f;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return f;
  const bool fma = Bit(c, 12);
  const bool f16c = Bit(c, 29);
  if (!Bit(c, 27)) return f;  // OSXSAVE
  const uint64_t states = EnabledStates();
  const bool ymm = (states & 0x6) == 0x6;
  const bool zmm = (states & 0xe6) == 0xe6;
  const bool tiles = (states & 0x60000) == 0x60000;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return f;
  const unsigned sub_leaves = a;
  f.avx2 = ymm && fma && f16c && Bit(b, 5);
  f.avx512 = f.avx2 && zmm && Bit(b, 16) && Bit(b, 17) && Bit(b, 30) && Bit(b, 31);
  const bool amx = tiles && Bit(d, 22) && Bit(d, 24);
  if (sub_leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) f.avx512_bf16 = f.avx512 && Bit(a, 5);
  // The kernels around the tiles use AVX512-BF16, which every processor with AMX has.
  f.amx_bf16 = f.avx512_bf16 && amx && RequestTilePermission();
  return f;
}

}  // namespace

const char* CpuIsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAmx:
      return "amx";
    case CpuIsa::kAvx512Bf16:
      return "avx512bf16";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx2:
      return "avx2";
  }
  return "?";
}

bool CpuIsaAvailable(CpuIsa isa) {
  static const Features features = Detect();
  switch (isa) {
    case CpuIsa::kAmx:
      return features.amx_bf16;
    case CpuIsa::kAvx512Bf16:
      return features.avx512_bf16;
    case CpuIsa::kAvx512:
      return features.avx512;
    case CpuIsa::kAvx2:
      return features.avx2;
  }
  return false;
}

}  // namespace moe
