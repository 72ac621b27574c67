// The layers of Nemotron-H.
#ifndef MOE_LOADERS_ARCHITECTURES_NEMOTRON_H_PATTERN_H_
#define MOE_LOADERS_ARCHITECTURES_NEMOTRON_H_PATTERN_H_

#include <string>

#include "loaders/config_reader.h"

namespace moe {

// The layer kinds, in the letters of hybrid_override_pattern.
inline constexpr char kNemotronMamba = 'M';
inline constexpr char kNemotronAttention = '*';
inline constexpr char kNemotronMlp = '-';
inline constexpr char kNemotronMoe = 'E';

// The kind of each layer: hybrid_override_pattern, or layers_block_type in words; num_hidden_layers must agree.
std::string ReadNemotronPattern(ConfigReader* config);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_NEMOTRON_H_PATTERN_H_
