// Long messages cross in pieces, so that heartbeats and aborts pass between them: a transfer that takes seconds must
// not look like a dead rank. The pieces also keep every gRPC message small, whoever sends it.
#ifndef MOE_SERVER_RANKS_RANK_FRAGMENTS_H_
#define MOE_SERVER_RANKS_RANK_FRAGMENTS_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "parallel/base/status.h"

namespace moe {

inline constexpr size_t kFragmentBytes = size_t{256} << 10;  // a few milliseconds at 1 Gbit/s
inline constexpr size_t kMaxRankMessage = size_t{1} << 30;   // serialized; protobuf's own limit is 2 GiB
inline constexpr int kMaxRankGrpcMessage = 1 << 20;          // a fragment with room

// Appends `message` to `out`, in pieces if it is long. Message: v1::RankReportMessage or v1::RankOrderMessage.
// RESOURCE_EXHAUSTED, and nothing appended, above kMaxRankMessage.
template <typename Message>
Status AppendCut(Message message, std::deque<Message>* out) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes <= kFragmentBytes) {
    out->push_back(std::move(message));
    return Status();
  }
  if (bytes > kMaxRankMessage) {
    return absl::ResourceExhaustedError(Cat("a rank message of ", bytes, " bytes, more than ", kMaxRankMessage));
  }
  const std::string whole = message.SerializeAsString();
  for (size_t begin = 0; begin < whole.size(); begin += kFragmentBytes) {
    const size_t count = std::min(kFragmentBytes, whole.size() - begin);
    Message piece;
    piece.mutable_fragment()->set_data(whole.data() + begin, count);
    piece.mutable_fragment()->set_last(begin + count == whole.size());
    out->push_back(std::move(piece));
  }
  return Status();
}

// Puts the pieces of one direction together again.
template <typename Message>
class FragmentJoiner {
 public:
  // The whole message with its last piece, nothing before. INVALID_ARGUMENT for what never becomes one; the stream is
  // of no use after that. REQUIRES: message.has_fragment().
  StatusOr<std::optional<Message>> Add(const Message& message) {
    const auto& fragment = message.fragment();
    if (fragment.data().empty()) return InvalidError("rank message: an empty fragment");
    if (data_.size() + fragment.data().size() > kMaxRankMessage) {
      return InvalidError("rank message: longer than ", kMaxRankMessage, " bytes");
    }
    data_ += fragment.data();
    std::optional<Message> whole;
    if (!fragment.last()) return whole;
    const std::string data = std::exchange(data_, {});
    if (!whole.emplace().ParseFromString(data)) return InvalidError("rank message: fragments of no message");
    return whole;
  }

 private:
  std::string data_;
};

}  // namespace moe

#endif  // MOE_SERVER_RANKS_RANK_FRAGMENTS_H_
