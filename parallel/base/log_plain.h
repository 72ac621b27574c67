// A log line for when there is no memory to make one with.
#ifndef MOE_PARALLEL_BASE_LOG_PLAIN_H_
#define MOE_PARALLEL_BASE_LOG_PLAIN_H_

#include "parallel/base/log.h"

namespace moe {

// As MOE_LOG, in the same format, but allocates nothing and takes no lock. `text`: our own words, nothing to escape.
void LogPlain(LogLevel level, const char* text);

}  // namespace moe

#endif  // MOE_PARALLEL_BASE_LOG_PLAIN_H_
