// The lines that `moe serve` prints once the model is there: what is served, how, and in how much memory.
#ifndef MOE_SERVER_COMMANDS_BANNER_H_
#define MOE_SERVER_COMMANDS_BANNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/engine.h"

namespace moe {

std::vector<std::string> BannerLines(const std::string& served_name, const Engine& engine);

// "1.50 GiB", "12.0 MiB".
std::string BytesText(int64_t bytes);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_BANNER_H_
