// A prefix tree over bytes: which of many strings begin here?
#ifndef MOE_LOADERS_TOKENIZER_BYTE_TRIE_H_
#define MOE_LOADERS_TOKENIZER_BYTE_TRIE_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace moe {

class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kRoot = 0;

  // Values are not negative. Of equal strings the last one's value counts. Empty strings are left out.
  void Build(std::vector<std::pair<std::string_view, int32_t>> entries);

  bool empty() const { return nodes_.size() <= 1; }

  // The node behind `node` along `byte`, or kNone.
  int32_t Child(int32_t node, char byte) const {
    if (node == kRoot) return root_children_[static_cast<unsigned char>(byte)];
    const Node& parent = nodes_[static_cast<size_t>(node)];
    for (int32_t i = parent.first_child; i < parent.first_child + parent.num_children; ++i) {
      if (nodes_[static_cast<size_t>(i)].byte == static_cast<unsigned char>(byte)) return i;
    }
    return kNone;
  }

  // The value of the string that ends at `node`, or kNone.
  int32_t Value(int32_t node) const { return nodes_[static_cast<size_t>(node)].value; }

 private:
  struct Node {
    int32_t first_child = 0;  // The children of a node stand side by side.
    int32_t value = kNone;
    int16_t num_children = 0;
    uint8_t byte = 0;
  };

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<int32_t> root_children_ = std::vector<int32_t>(256, kNone);
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_BYTE_TRIE_H_
