// Where a checkpoint's files come from: a directory, or the copy linked into the binary. Everything above reads through
// this, so the embedded demo takes the same path as any checkpoint.
#ifndef MOE_LOADERS_MODEL_FILES_H_
#define MOE_LOADERS_MODEL_FILES_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

// The bytes of one file. Mapped files stay mapped while any holder lives.
class FileView {
 public:
  virtual ~FileView() = default;
  virtual std::span<const std::byte> bytes() const = 0;
  // Tells the system that the pages of `range` (inside bytes()) are not needed again; reading them later still works.
  virtual void Release(std::span<const std::byte> range) const = 0;
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes().data()), bytes().size()}; }
};

// A name that cannot leave the directory it is looked up in: not empty, not "." or "..", no separator (of any system),
// no control character or NUL.
bool IsPlainFileName(std::string_view name);

class ModelFiles {
 public:
  virtual ~ModelFiles() = default;
  virtual bool Has(const std::string& name) const = 0;
  // `name` is a plain file name (no separators, no "..", no NUL): anything else is INVALID before a path is touched.
  // Absent: CORRUPT naming it. Not a regular file: INVALID.
  virtual StatusOr<std::shared_ptr<const FileView>> Open(const std::string& name) const = 0;
  virtual std::string description() const = 0;  // the directory's path, or "embedded:NAME"
};

StatusOr<std::unique_ptr<ModelFiles>> OpenModelDirectory(const std::string& path);

// The demo model linked into the binary (loaders/demo/shakespeare-nemotronh).
std::unique_ptr<ModelFiles> OpenEmbeddedDemo();
inline constexpr const char* kEmbeddedDemoName = "shakespeare-nemotronh";

// Files in memory, for tests. name → content.
std::unique_ptr<ModelFiles> InMemoryModelFiles(std::string description,
                                               std::vector<std::pair<std::string, std::string>> files);

}  // namespace moe

#endif  // MOE_LOADERS_MODEL_FILES_H_
