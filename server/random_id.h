// Random numbers for what must merely differ: request ids and the seeds of requests that bring none. Thread-safe.
#ifndef MOE_SERVER_RANDOM_ID_H_
#define MOE_SERVER_RANDOM_ID_H_

#include <cstdint>
#include <string>

namespace moe {

uint64_t RandomUint64();
std::string RandomRequestId();  // 32 hexadecimal digits

}  // namespace moe

#endif  // MOE_SERVER_RANDOM_ID_H_
