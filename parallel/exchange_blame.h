// Who is to blame when an exchange does not end in time: a stopped rank holds up its peers at different operations, and
// these hold up others. So the first whose time is up asks all for their report, the operation they are in and the rank
// they miss there; each decides for the earliest operation reported. A rank that is only slow reports no missing rank.
#ifndef MOE_PARALLEL_EXCHANGE_BLAME_H_
#define MOE_PARALLEL_EXCHANGE_BLAME_H_

#include <cstdint>
#include <span>
#include <string>

#include "parallel/communicator.h"

namespace moe {

struct ExchangeReport {
  uint64_t operation = 0;
  int missing = -1;  // -1: nobody, or no report
  std::string text;  // "rank 2 did not reach phase combine of layer 3 within 30000 ms"
};

// DEADLINE_EXCEEDED with the text of the report that decides, blaming its missing rank. reports[r]: of rank r.
Status DecideBlame(std::span<const ExchangeReport> reports);

// "phase combine of layer 3".
std::string PlaceName(const ExchangeLabel& label);

}  // namespace moe

#endif  // MOE_PARALLEL_EXCHANGE_BLAME_H_
