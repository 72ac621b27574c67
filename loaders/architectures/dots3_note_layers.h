// Which layer of Dots-3 Note is of which kind.
#ifndef MOE_LOADERS_ARCHITECTURES_DOTS3_NOTE_LAYERS_H_
#define MOE_LOADERS_ARCHITECTURES_DOTS3_NOTE_LAYERS_H_

#include <string>
#include <vector>

#include "loaders/config_reader.h"

namespace moe {

inline constexpr char kDots3Full[] = "full_attention";
inline constexpr char kDots3Indexed[] = "indexed_attention";
inline constexpr char kDots3Sliding[] = "sliding_attention";

// The kind of each layer's attention. Old files say use_dsa, and call layers with an indexer full_attention.
std::vector<std::string> ReadDots3Kinds(ConfigReader* config, int64_t num_layers);

// Layers with experts; old files may have a list or an interval behind the first dense ones.
std::vector<bool> ReadDots3Sparse(ConfigReader* config, int64_t num_layers);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_DOTS3_NOTE_LAYERS_H_
