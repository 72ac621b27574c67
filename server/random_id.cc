#include "server/random_id.h"

#include <cstdio>
#include <random>

namespace moe {

uint64_t RandomUint64() {
  thread_local std::mt19937_64 engine = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return engine();
}

std::string RandomRequestId() {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(RandomUint64()),
                static_cast<unsigned long long>(RandomUint64()));
  return text;
}

}  // namespace moe
