#include "loaders/tokenizer/byte_trie.h"

#include <algorithm>

namespace moe {

void ByteTrie::Build(std::vector<std::pair<std::string_view, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.assign(1, Node());
  root_children_.assign(256, kNone);
  // Breadth first; a node's strings are a range of the sorted entries that share `depth` bytes.
  struct Open {
    int32_t node;
    size_t begin, end, depth;
  };
  std::vector<Open> open = {{kRoot, 0, entries.size(), 0}};
  for (size_t i = 0; i < open.size(); ++i) {
    Open current = open[i];
    while (current.begin < current.end && entries[current.begin].first.size() == current.depth) {
      if (current.depth > 0) nodes_[static_cast<size_t>(current.node)].value = entries[current.begin].second;
      ++current.begin;
    }
    const auto first_child = static_cast<int32_t>(nodes_.size());
    for (size_t begin = current.begin; begin < current.end;) {
      const char byte = entries[begin].first[current.depth];
      size_t end = begin + 1;
      while (end < current.end && entries[end].first[current.depth] == byte) ++end;
      const auto child = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back().byte = static_cast<uint8_t>(byte);
      if (current.node == kRoot) root_children_[static_cast<unsigned char>(byte)] = child;
      open.push_back({child, begin, end, current.depth + 1});
      begin = end;
    }
    Node& node = nodes_[static_cast<size_t>(current.node)];
    node.first_child = first_child;
    node.num_children = static_cast<int16_t>(nodes_.size() - static_cast<size_t>(first_child));
  }
}

}  // namespace moe
