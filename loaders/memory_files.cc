// ModelFiles over memory: contents that a test built, or that are linked into the binary.
#include "loaders/memory_files.h"

#include <map>

namespace moe {
namespace {

class MemoryFile : public FileView {
 public:
  MemoryFile(std::span<const std::byte> bytes, std::shared_ptr<const std::string> owner)
      : bytes_(bytes), owner_(std::move(owner)) {}
  std::span<const std::byte> bytes() const override { return bytes_; }
  void Release(std::span<const std::byte>) const override {}

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const std::string> owner_;  // null: static memory
};

class MemoryFiles : public ModelFiles {
 public:
  MemoryFiles(std::string description, std::map<std::string, std::shared_ptr<const FileView>> files)
      : description_(std::move(description)), files_(std::move(files)) {}

  bool Has(const std::string& name) const override { return files_.count(name) > 0; }
  StatusOr<std::shared_ptr<const FileView>> Open(const std::string& name) const override {
    if (!IsPlainFileName(name)) return InvalidError("not a plain file name");
    const auto it = files_.find(name);
    if (it == files_.end()) return CorruptError(name, ": no such file in ", description_);
    return it->second;
  }
  std::string description() const override { return description_; }

 private:
  std::string description_;
  std::map<std::string, std::shared_ptr<const FileView>> files_;
};

}  // namespace

std::unique_ptr<ModelFiles> InMemoryModelFiles(
    std::string description,
    std::vector<std::pair<std::string, std::string>> files) {  // NOLINT: its contents are moved from
  std::map<std::string, std::shared_ptr<const FileView>> views;
  for (auto& [name, content] : files) {
    auto owner = std::make_shared<const std::string>(std::move(content));
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(owner->data()), owner->size());
    views[name] = std::make_shared<MemoryFile>(bytes, owner);
  }
  return std::make_unique<MemoryFiles>(std::move(description), std::move(views));
}

std::unique_ptr<ModelFiles> StaticModelFiles(
    std::string description, const std::vector<std::pair<std::string, std::span<const std::byte>>>& files) {
  std::map<std::string, std::shared_ptr<const FileView>> views;
  for (const auto& [name, bytes] : files) views[name] = std::make_shared<MemoryFile>(bytes, nullptr);
  return std::make_unique<MemoryFiles>(std::move(description), std::move(views));
}

}  // namespace moe
