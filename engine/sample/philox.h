// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): random numbers as a function of a
// key and a counter, so that nothing has to be stored, saved or moved with a sequence.
#ifndef MOE_ENGINE_SAMPLE_PHILOX_H_
#define MOE_ENGINE_SAMPLE_PHILOX_H_

#include <array>
#include <cstdint>

namespace moe {

inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// The number in [0, 1) that token `index` of choice `choice` is drawn with (numerics contract, N8). 53 random bits.
inline double UniformFor(uint64_t seed, uint32_t choice, uint64_t index) {
  const auto r = Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), choice, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{r[0]} << 32 | r[1]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace moe

#endif  // MOE_ENGINE_SAMPLE_PHILOX_H_
