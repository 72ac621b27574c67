// The tiny checkpoints of all families: tests/data/families, or the directory in MOE_FIXTURES.
#ifndef MOE_TESTS_LOADERS_FAMILY_FIXTURES_H_
#define MOE_TESTS_LOADERS_FAMILY_FIXTURES_H_

#include <string>
#include <vector>

namespace moe::testing {

std::string FixtureRoot();
// The directories under a root, by name.
std::vector<std::string> Families(const std::string& root = FixtureRoot());
// Of a file; empty without one.
std::string Content(const std::string& path);

}  // namespace moe::testing

#endif  // MOE_TESTS_LOADERS_FAMILY_FIXTURES_H_
