// Reads the Protocol Buffers wire format, as far as a SentencePiece model needs it: no schema, no dependency.
#ifndef MOE_LOADERS_TOKENIZER_WIRE_READER_H_
#define MOE_LOADERS_TOKENIZER_WIRE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "parallel/base/status.h"

namespace moe {

// One message. The bytes are untrusted: every read is checked against their end, and fails with CORRUPT that names the
// file, the message and the byte.
class WireReader {
 public:
  // `offset`: where `bytes` begins in the file. `where`: the file and the message, "tokenizer.model: pieces[3]".
  WireReader(std::string_view bytes, size_t offset, std::string where)
      : bytes_(bytes), offset_(offset), where_(std::move(where)) {}

  bool AtEnd() const { return pos_ == bytes_.size(); }

  // Reads the next tag. The value has to be read, or skipped, before the next one. REQUIRES: !AtEnd().
  Status Next();
  uint32_t field() const { return field_; }

  StatusOr<uint64_t> Varint();
  StatusOr<bool> Bool();
  StatusOr<float> Float();
  // A string, or the bytes of a message inside this one.
  StatusOr<std::string_view> Bytes();
  // Where the last Bytes() began, in the file.
  size_t bytes_offset() const { return bytes_offset_; }
  Status Skip();

 private:
  StatusOr<uint64_t> RawVarint();
  Status Expect(uint32_t wire_type) const;
  Status Take(uint64_t size, std::string_view* out);
  std::string Place() const;

  std::string_view bytes_;
  size_t offset_;
  std::string where_;
  size_t pos_ = 0;
  size_t tag_pos_ = 0;
  size_t bytes_offset_ = 0;
  uint32_t field_ = 0;
  uint32_t wire_type_ = 0;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_WIRE_READER_H_
