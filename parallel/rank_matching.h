// MatchRanks: which rank takes which new contents, so that as much as possible is there already.
#ifndef MOE_PARALLEL_RANK_MATCHING_H_
#define MOE_PARALLEL_RANK_MATCHING_H_

#include <cstdint>
#include <span>
#include <vector>

namespace moe {

// held: [contents, rank] how much of contents c rank r holds; kind: [ranks], contents c may go to rank r only if
// kind[c] == kind[r]. Returns source[r]: the contents for rank r. Greedy by what is held, then pairs exchanged while
// that gains: exact assignment is cubic and gains little here. Ties stay where they are, then go to the lowest.
std::vector<int32_t> MatchRanks(std::span<const int64_t> held, std::span<const int32_t> kind);

}  // namespace moe

#endif  // MOE_PARALLEL_RANK_MATCHING_H_
