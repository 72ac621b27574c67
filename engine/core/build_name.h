// Which build of the program this is: ranks of different builds do not form a group.
#ifndef MOE_ENGINE_CORE_BUILD_NAME_H_
#define MOE_ENGINE_CORE_BUILD_NAME_H_

#include <string>

namespace moe {

// "0.1.0 (build 3f9c2a…)": the version, and the beginning of the id that the linker gave this executable (the GNU
// build-id note, a hash of its contents), if it has one.
std::string BuildName();

}  // namespace moe

#endif  // MOE_ENGINE_CORE_BUILD_NAME_H_
