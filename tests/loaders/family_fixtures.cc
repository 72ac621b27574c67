#include "tests/loaders/family_fixtures.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace moe::testing {

std::string FixtureRoot() {
  const char* own = std::getenv("MOE_FIXTURES");
  return own != nullptr ? own : std::string(MOE_TEST_DATA_DIR) + "/families";
}

std::vector<std::string> Families(const std::string& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    if (std::filesystem::exists(entry.path() / "golden.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace moe::testing
