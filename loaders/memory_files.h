// ModelFiles over memory that outlives it (the embedded demo). InMemoryModelFiles (model_files.h) is the owning form.
#ifndef MOE_LOADERS_MEMORY_FILES_H_
#define MOE_LOADERS_MEMORY_FILES_H_

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loaders/model_files.h"

namespace moe {

// REQUIRES: the bytes have static lifetime.
std::unique_ptr<ModelFiles> StaticModelFiles(
    std::string description, const std::vector<std::pair<std::string, std::span<const std::byte>>>& files);

}  // namespace moe

#endif  // MOE_LOADERS_MEMORY_FILES_H_
