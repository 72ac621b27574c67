// Selection of the largest values of a row without sorting it.
#ifndef MOE_ENGINE_SAMPLE_TOP_SELECT_H_
#define MOE_ENGINE_SAMPLE_TOP_SELECT_H_

#include <cstdint>
#include <span>
#include <vector>

namespace moe {

struct Candidate {
  float value = 0;
  int32_t id = 0;
};

// Larger first, equal ones by id. A strict order, because ids differ and SelectTop lets no NaN through.
inline bool Before(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

// The `count` first of `values` in the order of Before, sorted; all of them if there are fewer. NaN counts as -inf.
// One pass over the row; partial selections of a buffer of a few times `count` as it fills, O(values) together.
void SelectTop(std::span<const float> values, int64_t count, std::vector<Candidate>& out);

// 1 + how many tokens come before `id` in that order.
uint32_t RankOf(std::span<const float> values, int32_t id);

// The first of the row in that order; -1 when every value is -inf or NaN.
int32_t ArgMax(std::span<const float> values);

}  // namespace moe

#endif  // MOE_ENGINE_SAMPLE_TOP_SELECT_H_
