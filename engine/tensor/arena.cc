#include "engine/tensor/arena.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace moe {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kFirstBlock = size_t{1} << 20;

size_t RoundUp(size_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Arena::Block Arena::NewBlock(size_t bytes) {
  Block block;
  block.size = RoundUp(bytes);
  block.data.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, block.size)));
  MOE_CHECK(block.data != nullptr) << "out of memory for " << bytes << " bytes of scratch";
  return block;
}

void Arena::Reset() {
  if (blocks_.size() > 1) {
    size_t total = 0;
    for (const Block& block : blocks_) total += block.size;
    blocks_.clear();
    blocks_.push_back(NewBlock(total));
  }
  current_ = 0;
  used_ = 0;
}

std::byte* Arena::AllocateBytes(size_t bytes) {
  bytes = RoundUp(std::max<size_t>(bytes, 1));
  while (current_ < blocks_.size() && used_ + bytes > blocks_[current_].size) {
    ++current_;
    used_ = 0;
  }
  if (current_ == blocks_.size()) {
    blocks_.push_back(NewBlock(std::max({bytes, kFirstBlock, blocks_.empty() ? 0 : blocks_.back().size})));
    used_ = 0;
  }
  std::byte* p = blocks_[current_].data.get() + used_;
  used_ += bytes;
  return p;
}

}  // namespace moe
