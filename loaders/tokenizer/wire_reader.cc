#include "loaders/tokenizer/wire_reader.h"

#include <bit>

namespace moe {
namespace {

constexpr uint32_t kVarint = 0;
constexpr uint32_t kFixed64 = 1;
constexpr uint32_t kLengthDelimited = 2;
constexpr uint32_t kFixed32 = 5;
constexpr int kMaxVarintBytes = 10;

}  // namespace

std::string WireReader::Place() const {
  return Cat(where_, ": field ", field_, " at byte ", offset_ + tag_pos_);
}

Status WireReader::Take(uint64_t size, std::string_view* out) {
  if (size > bytes_.size() - pos_) {
    return CorruptError(Place(), " needs ", size, " bytes, ", bytes_.size() - pos_, " are left");
  }
  *out = bytes_.substr(pos_, size);
  pos_ += size;
  return absl::OkStatus();
}

StatusOr<uint64_t> WireReader::RawVarint() {
  uint64_t value = 0;
  for (int i = 0; i < kMaxVarintBytes; ++i) {
    if (AtEnd()) return CorruptError(Place(), " ends in the middle of a number");
    const auto byte = static_cast<unsigned char>(bytes_[pos_++]);
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) return value;
  }
  return CorruptError(Place(), " has a number of more than ", kMaxVarintBytes, " bytes");
}

Status WireReader::Next() {
  tag_pos_ = pos_;
  field_ = 0;
  MOE_ASSIGN_OR_RETURN(const uint64_t tag, RawVarint());
  if (tag >> 3 == 0 || tag >> 32 != 0) return CorruptError(Place(), ": ", tag, " is not a tag");
  field_ = static_cast<uint32_t>(tag >> 3);
  wire_type_ = static_cast<uint32_t>(tag & 7);
  return absl::OkStatus();
}

Status WireReader::Expect(uint32_t wire_type) const {
  if (wire_type_ == wire_type) return absl::OkStatus();
  return CorruptError(Place(), " has wire type ", wire_type_, ", expected ", wire_type);
}

StatusOr<uint64_t> WireReader::Varint() {
  MOE_RETURN_IF_ERROR(Expect(kVarint));
  return RawVarint();
}

StatusOr<bool> WireReader::Bool() {
  MOE_ASSIGN_OR_RETURN(const uint64_t value, Varint());
  return value != 0;
}

StatusOr<float> WireReader::Float() {
  MOE_RETURN_IF_ERROR(Expect(kFixed32));
  std::string_view bytes;
  MOE_RETURN_IF_ERROR(Take(4, &bytes));
  uint32_t bits = 0;
  for (size_t i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return std::bit_cast<float>(bits);
}

StatusOr<std::string_view> WireReader::Bytes() {
  MOE_RETURN_IF_ERROR(Expect(kLengthDelimited));
  MOE_ASSIGN_OR_RETURN(const uint64_t size, RawVarint());
  bytes_offset_ = offset_ + pos_;
  std::string_view bytes;
  MOE_RETURN_IF_ERROR(Take(size, &bytes));
  return bytes;
}

Status WireReader::Skip() {
  std::string_view ignored;
  switch (wire_type_) {
    case kVarint:
      return RawVarint().status();
    case kFixed64:
      return Take(8, &ignored);
    case kLengthDelimited:
      return Bytes().status();
    case kFixed32:
      return Take(4, &ignored);
    default:
      return CorruptError(Place(), " has wire type ", wire_type_, ", expected 0, 1, 2 or 5");
  }
}

}  // namespace moe
