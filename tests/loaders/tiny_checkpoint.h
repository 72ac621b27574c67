// A sound Qwen3-MoE checkpoint of a few kilobytes in memory, in pieces that a test may spoil before it is put together.
#ifndef MOE_TESTS_LOADERS_TINY_CHECKPOINT_H_
#define MOE_TESTS_LOADERS_TINY_CHECKPOINT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "loaders/model_files.h"

namespace moe::testing {

struct TinyTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
  std::string data;  // empty: float32 values made from the name
};

// name → content
using FileMap = std::map<std::string, std::string>;

nlohmann::json TinyConfig();
std::vector<TinyTensor> TinyTensors();
nlohmann::json TinyTokenizer();

// The header as JSON and the data of a sound file with these tensors.
struct TinyFile {
  nlohmann::ordered_json header;
  std::string data;
};
TinyFile LayOut(const std::vector<TinyTensor>& tensors);
std::string Pack(const std::string& header, const std::string& data);
std::string Pack(const TinyFile& file);

FileMap SoundFiles();
// Replaces model.safetensors by two shards and returns the index that belongs to them (not yet in `files`).
nlohmann::json Shard(FileMap* files);
void EditConfig(FileMap* files, const std::function<void(nlohmann::json*)>& edit);
void EditHeader(FileMap* files, const std::function<void(TinyFile*)>& edit);
void EditTensors(FileMap* files, const std::function<void(std::vector<TinyTensor>*)>& edit);

std::unique_ptr<ModelFiles> InMemory(const FileMap& files);

// Float32 bytes.
std::string Floats(const std::vector<float>& values);

}  // namespace moe::testing

#endif  // MOE_TESTS_LOADERS_TINY_CHECKPOINT_H_
