// ExpertLists as sets, layer by layer. A list that ends early holds nothing in the layers that it lacks.
#ifndef MOE_ENGINE_CORE_EXPERT_LISTS_H_
#define MOE_ENGINE_CORE_EXPERT_LISTS_H_

#include <cstdint>

#include "parallel/placement.h"

namespace moe {

bool Covers(const ExpertLists& held, const ExpertLists& wanted);
int64_t Missing(const ExpertLists& held, const ExpertLists& wanted);
ExpertLists Union(const ExpertLists& a, const ExpertLists& b);
ExpertLists Intersection(const ExpertLists& a, const ExpertLists& b);

}  // namespace moe

#endif  // MOE_ENGINE_CORE_EXPERT_LISTS_H_
