#include "loaders/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace moe {
namespace {

constexpr size_t kSampled = 256;       // tensors of which the beginning counts
constexpr int64_t kSampledBytes = 64;  // of each

class Fnv1a {
 public:
  void Add(std::string_view bytes) {
    for (const char c : bytes) {
      hash_ ^= static_cast<uint8_t>(c);
      hash_ *= 0x100000001b3ull;
    }
  }
  void Add(uint64_t value) { Add({reinterpret_cast<const char*>(&value), sizeof(value)}); }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325ull;
};

}  // namespace

std::string CheckpointFingerprint(std::string_view config, const ModelSpec& spec, const WeightStore& weights) {
  Fnv1a hash;
  hash.Add(config);
  const std::vector<TensorNeed> needs = RequiredTensors(spec);
  const size_t step = needs.size() / kSampled + 1;
  for (size_t i = 0; i < needs.size(); ++i) {
    hash.Add(weights.SourceName(needs[i].name));
    if (const auto codes = weights.QuantizedBytes(needs[i].name); !codes.empty()) {
      hash.Add(static_cast<uint64_t>(codes.size()));
      if (i % step == 0) {
        hash.Add({reinterpret_cast<const char*>(codes.data()), std::min<size_t>(codes.size(), kSampledBytes)});
      }
      continue;
    }
    const WeightSource source = weights.Get(needs[i].name);
    hash.Add(static_cast<uint64_t>(source.dtype));
    hash.Add(static_cast<uint64_t>(source.rows));
    hash.Add(static_cast<uint64_t>(source.cols));
    if (i % step != 0 || source.rows == 0 || source.data == nullptr) continue;
    // The elements of a row's beginning: rows of a view need not follow each other in the file.
    const auto element = static_cast<int64_t>(DTypeSize(source.dtype));
    const std::byte* row = source.data + source.RowOffset(0) * element;
    for (int64_t c = 0; c < source.cols && c * element < kSampledBytes; ++c) {
      hash.Add({reinterpret_cast<const char*>(row + c * source.col_stride * element), static_cast<size_t>(element)});
    }
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash.hash()));
  return text;
}

}  // namespace moe
