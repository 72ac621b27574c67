// CpuPause: tells the processor that this thread looks at memory until it changes.
#ifndef MOE_PARALLEL_CPU_PAUSE_H_
#define MOE_PARALLEL_CPU_PAUSE_H_

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moe {

inline void CpuPause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace moe

#endif  // MOE_PARALLEL_CPU_PAUSE_H_
