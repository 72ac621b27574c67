// The header parser: SAX, so that a hostile header costs neither stack nor a document in memory.
#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "loaders/json_text.h"
#include "loaders/safetensors.h"

namespace moe {
namespace {

using nlohmann::json;

constexpr size_t kMaxRank = 16;

struct DTypeNameRow {
  const char* name;
  DType dtype;
};
constexpr std::array<DTypeNameRow, 16> kDTypes = {{{"F32", DType::kF32},
                                                   {"BF16", DType::kBF16},
                                                   {"F16", DType::kF16},
                                                   {"F8_E4M3", DType::kF8E4M3},
                                                   {"F8_E5M2", DType::kF8E5M2},
                                                   {"F8_E8M0", DType::kF8E8M0},
                                                   {"F64", DType::kF64},
                                                   {"I8", DType::kI8},
                                                   {"U8", DType::kU8},
                                                   {"I16", DType::kI16},
                                                   {"U16", DType::kU16},
                                                   {"I32", DType::kI32},
                                                   {"U32", DType::kU32},
                                                   {"I64", DType::kI64},
                                                   {"U64", DType::kU64},
                                                   {"BOOL", DType::kBool}}};

class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  explicit HeaderHandler(std::string file) : file_(std::move(file)) {}

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool number_integer(number_integer_t) override { return BadNumber("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return BadNumber("a number that is not a 64-bit integer");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) return Dimension(value);
    if (place_ == Place::kOffsets) return Offset(value);
    return Unexpected("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != kDType) return Unexpected("a string");
    if (!DTypeFromSafetensors(value, &tensor_.dtype)) {
      return Fail(UnsupportedError(file_, ": tensor ", Quoted(tensor_.name), " has the unknown dtype ", Quoted(value)));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kOutside:
        place_ = Place::kTop;
        return true;
      case Place::kTop:
        place_ = in_metadata_ ? Place::kMetadata : Place::kTensor;
        return true;
      default:
        return Unexpected("an object");
    }
  }
  bool end_object() override {
    switch (place_) {
      case Place::kMetadata:
        place_ = Place::kTop;
        return true;
      case Place::kTensor:
        place_ = Place::kTop;
        return FinishTensor();
      default:
        place_ = Place::kDone;
        return true;
    }
  }
  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && field_ == kShape) {
      place_ = Place::kShape;
      return true;
    }
    if (place_ == Place::kTensor && field_ == kOffsets) {
      place_ = Place::kOffsets;
      return true;
    }
    return Unexpected("a list");
  }
  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::kTop) {
      if (!seen_.insert(name).second) return Fail(InvalidError(file_, ": duplicate tensor name ", Quoted(name)));
      in_metadata_ = name == "__metadata__";
      tensor_ = StoredTensor();
      tensor_.name = std::move(name);
      fields_ = 0;
      num_offsets_ = 0;
      return true;
    }
    if (place_ != Place::kTensor) return true;  // __metadata__: any names
    field_ = name == "dtype" ? kDType : name == "shape" ? kShape : name == "data_offsets" ? kOffsets : 0;
    if (field_ == 0)
      return Fail(InvalidError(file_, ": header of ", Quoted(tensor_.name), ": unknown field ", Quoted(name)));
    if (fields_ & field_) {
      return Fail(InvalidError(file_, ": header of ", Quoted(tensor_.name), ": duplicate field ", name));
    }
    fields_ |= field_;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return Fail(CorruptError(file_, ": the header is not JSON: ", ShortParseError(error)));
  }

  const Status& error() const { return error_; }
  std::vector<StoredTensor>& tensors() { return tensors_; }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor, kShape, kOffsets, kDone };
  enum Field { kDType = 1, kShape = 2, kOffsets = 4 };

  bool Fail(Status error) {
    error_ = std::move(error);
    return false;
  }
  bool Unexpected(const char* what) {
    if (place_ == Place::kOutside) return Fail(InvalidError(file_, ": the header is ", what, ", expected an object"));
    const char* field = field_ == kDType     ? " dtype"
                        : field_ == kShape   ? " shape"
                        : field_ == kOffsets ? " data_offsets"
                                             : "";
    return Fail(InvalidError(file_, ": header of ", Quoted(tensor_.name), ": ", what, " is not allowed in",
                             place_ == Place::kTop || place_ == Place::kMetadata ? " this place" : field));
  }
  bool BadNumber(const char* what) {
    if (place_ == Place::kShape) {
      return Fail(InvalidError(file_, ": tensor ", Quoted(tensor_.name), " has ", what, " in its shape"));
    }
    if (place_ == Place::kOffsets) {
      return Fail(InvalidError(file_, ": tensor ", Quoted(tensor_.name), " has ", what, " as a data offset"));
    }
    return Unexpected(what);
  }
  bool Dimension(uint64_t value) {
    if (tensor_.shape.size() == kMaxRank) {
      return Fail(InvalidError(file_, ": tensor ", Quoted(tensor_.name), " has a shape of more than ", kMaxRank,
                               " dimensions"));
    }
    if (value > static_cast<uint64_t>(INT64_MAX)) return BadNumber("a too large number");
    tensor_.shape.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool Offset(uint64_t value) {
    if (num_offsets_ == 2) return BadNumber("a third number");
    (num_offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    return true;
  }
  bool FinishTensor() {
    if (fields_ != (kDType | kShape | kOffsets)) {
      return Fail(
          InvalidError(file_, ": header of ", Quoted(tensor_.name), ": dtype, shape or data_offsets is absent"));
    }
    if (num_offsets_ != 2 || tensor_.begin > tensor_.end) {
      return Fail(InvalidError(file_, ": tensor ", Quoted(tensor_.name), " has the data offsets [", tensor_.begin, ", ",
                               tensor_.end, "], expected a begin and an end that is not before it"));
    }
    uint64_t size = DTypeSize(tensor_.dtype);
    bool overflow = false;
    for (const int64_t dim : tensor_.shape) overflow |= __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size);
    if (overflow || size != tensor_.end - tensor_.begin) {
      return Fail(InvalidError(file_, ": tensor ", Quoted(tensor_.name), " has ", tensor_.end - tensor_.begin,
                               " bytes of data, but its shape ", ShapeText(tensor_.shape), " of ",
                               SafetensorsDTypeName(tensor_.dtype), " needs ",
                               overflow ? std::string("more than 64 bits can count") : std::to_string(size)));
    }
    tensors_.push_back(std::move(tensor_));
    return true;
  }

  std::string file_;
  Place place_ = Place::kOutside;
  bool in_metadata_ = false;
  int field_ = 0;
  int fields_ = 0;
  int num_offsets_ = 0;
  StoredTensor tensor_;
  std::unordered_set<std::string> seen_;
  std::vector<StoredTensor> tensors_;
  Status error_;
};

// The tensors, in the order of their data, must tile [0, data_bytes).
Status CheckTiling(const std::vector<StoredTensor>& tensors, uint64_t data_bytes, const std::string& file) {
  uint64_t expected = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin < expected) {
      return InvalidError(file, ": the data of tensor ", Quoted(tensor.name), " overlaps another (offset ",
                          tensor.begin, ", free from ", expected, ")");
    }
    if (tensor.begin > expected) {
      return InvalidError(file, ": a hole of ", tensor.begin - expected, " bytes before tensor ", Quoted(tensor.name),
                          " at data offset ", tensor.begin);
    }
    expected = tensor.end;
  }
  if (expected > data_bytes) {
    return CorruptError(file, ": the file is cut: the data size is ", data_bytes, " bytes, the header describes ",
                        expected);
  }
  if (expected < data_bytes) {
    return InvalidError(file, ": the data size is ", data_bytes, " bytes, ", data_bytes - expected,
                        " more than the header describes");
  }
  return absl::OkStatus();
}

}  // namespace

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += Cat(i ? ", " : "", shape[i]);
  return text + "]";
}

bool DTypeFromSafetensors(const std::string& name, DType* out) {
  for (const DTypeNameRow& row : kDTypes) {
    if (name != row.name) continue;
    *out = row.dtype;
    return true;
  }
  return false;
}

const char* SafetensorsDTypeName(DType dtype) {
  for (const DTypeNameRow& row : kDTypes) {
    if (row.dtype == dtype) return row.name;
  }
  return "?";
}

StatusOr<std::vector<StoredTensor>> ParseSafetensorsHeader(std::string_view header, uint64_t data_bytes,
                                                           const std::string& file) {
  HeaderHandler handler(file);
  if (!json::sax_parse(header.begin(), header.end(), &handler)) {
    return handler.error().ok() ? CorruptError(file, ": the header is not JSON") : handler.error();
  }
  std::vector<StoredTensor> tensors = std::move(handler.tensors());
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  MOE_RETURN_IF_ERROR(CheckTiling(tensors, data_bytes, file));
  return tensors;
}

}  // namespace moe
