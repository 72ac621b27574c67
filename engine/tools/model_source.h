// Which checkpoint a subcommand works on: a directory, or the demo model linked into the binary.
#ifndef MOE_ENGINE_TOOLS_MODEL_SOURCE_H_
#define MOE_ENGINE_TOOLS_MODEL_SOURCE_H_

#include <memory>
#include <string>

#include "loaders/model_files.h"

namespace moe {

// Empty: the embedded demo.
inline StatusOr<std::unique_ptr<ModelFiles>> OpenModelSource(const std::string& directory) {
  if (directory.empty()) return OpenEmbeddedDemo();
  return OpenModelDirectory(directory);
}

}  // namespace moe

#endif  // MOE_ENGINE_TOOLS_MODEL_SOURCE_H_
