#include "loaders/quant/quantization_config.h"

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "loaders/json_text.h"

namespace moe {
namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(const json& object, std::string place) : object_(object), place_(std::move(place)) {}

  const json* Find(const char* field) const {
    const auto it = object_.find(field);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  StatusOr<std::string> Text(const char* field, const std::string& otherwise) const {
    const json* value = Find(field);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) return InvalidError(place_, field, ": is a ", value->type_name(), ", expected a string");
    return value->get<std::string>();
  }

  StatusOr<int64_t> Whole(const char* field, int64_t least, int64_t most, int64_t otherwise) const {
    const json* value = Find(field);
    if (value == nullptr) return otherwise;
    if (!value->is_number_integer()) {
      return InvalidError(place_, field, ": is ", value->dump().substr(0, 40), ", expected a whole number");
    }
    if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(most)) {
      return InvalidError(place_, field, ": is ", value->get<uint64_t>(), ", expected ", least, " to ", most);
    }
    const auto number = value->get<int64_t>();
    if (number < least || number > most) {
      return InvalidError(place_, field, ": is ", number, ", expected ", least, " to ", most);
    }
    return number;
  }

  Status OneOf(const char* field, const std::string& value, std::initializer_list<const char*> known) const {
    std::string names;
    for (const char* name : known) {
      if (value == name) return absl::OkStatus();
      names += Cat(names.empty() ? "" : ", ", name);
    }
    return UnsupportedError(place_, field, ": is ", Quoted(value), "; supported: ", names);
  }

 private:
  const json& object_;
  const std::string place_;
};

Status CheckBits(int bits, std::initializer_list<int> known, const std::string& place) {
  if (bits == 0) return absl::OkStatus();
  std::string names;
  for (const int b : known) {
    if (b == bits) return absl::OkStatus();
    names += Cat(names.empty() ? "" : ", ", b);
  }
  return UnsupportedError(place, ": is ", bits, "; supported: ", names);
}

constexpr int64_t kLargestGroup = 1 << 24;

// gptq, awq and olive say it at the top.
Status ReadPlain(const Reader& reader, const std::string& place, QuantizationConfig* out) {
  MOE_ASSIGN_OR_RETURN(const int64_t bits, reader.Whole("bits", 1, 16, 0));
  out->bits = static_cast<int>(bits);
  MOE_ASSIGN_OR_RETURN(out->group_size, reader.Whole("group_size", -1, kLargestGroup, 0));
  if (out->method == "awq") {
    MOE_RETURN_IF_ERROR(CheckBits(out->bits, {4}, place + "bits"));
    MOE_ASSIGN_OR_RETURN(const std::string version, reader.Text("version", "gemm"));
    return reader.OneOf("version", version, {"gemm", "GEMM"});
  }
  MOE_RETURN_IF_ERROR(CheckBits(out->bits, {2, 4, 8}, place + "bits"));
  if (out->method == "gptq") {
    MOE_ASSIGN_OR_RETURN(const std::string format, reader.Text("checkpoint_format", "gptq"));
    MOE_RETURN_IF_ERROR(reader.OneOf("checkpoint_format", format, {"gptq", "gptq_v2"}));
    out->zeros_less_one = format == "gptq";
    MOE_ASSIGN_OR_RETURN(const std::string words, reader.Text("pack_dtype", "int32"));
    MOE_RETURN_IF_ERROR(reader.OneOf("pack_dtype", words, {"int32"}));
  }
  return absl::OkStatus();
}

Status ReadBlocks(const json* blocks, const std::string& place, QuantizationConfig* out) {
  if (blocks == nullptr) return absl::OkStatus();
  const auto is_size = [](const json& v) {
    return v.is_number_integer() && v.get<double>() >= 1 && v.get<double>() <= kLargestGroup;
  };
  if (!blocks->is_array() || blocks->size() != 2 || !is_size((*blocks)[0]) || !is_size((*blocks)[1])) {
    return InvalidError(place, ": is ", blocks->dump().substr(0, 40), ", expected two positive numbers");
  }
  out->block_rows = (*blocks)[0].get<int64_t>();
  out->block_cols = (*blocks)[1].get<int64_t>();
  return absl::OkStatus();
}

// compressed-tensors and ModelOpt say it by group of modules; the tensors' own shapes tell the groups apart.
Status ReadGroups(const Reader& reader, const std::string& place, QuantizationConfig* out) {
  const json* groups = reader.Find("config_groups");
  if (groups == nullptr) return absl::OkStatus();
  if (!groups->is_object())
    return InvalidError(place, "config_groups: is a ", groups->type_name(), ", expected an object");
  for (const auto& [name, group] : groups->items()) {
    const std::string where = Cat(place, "config_groups.", name, ".weights.");
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) continue;
    const Reader weights(group["weights"], where);
    MOE_ASSIGN_OR_RETURN(const int64_t bits, weights.Whole("num_bits", 1, 16, 0));
    MOE_RETURN_IF_ERROR(CheckBits(static_cast<int>(bits), {2, 4, 8}, where + "num_bits"));
    out->bits = groups->size() == 1 ? static_cast<int>(bits) : 0;
    MOE_RETURN_IF_ERROR(ReadBlocks(weights.Find("block_structure"), where + "block_structure", out));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<QuantizationConfig> ReadQuantizationConfig(const json& document, const std::string& file) {
  const json* found = nullptr;
  std::string place = Cat(file, ": quantization_config.");
  const auto look = [&found](const json& part) {
    for (const char* field : {"quantization_config", "compression_config"}) {
      const auto it = part.find(field);
      if (found == nullptr && it != part.end() && it->is_object()) found = &*it;
    }
  };
  const auto text = document.find("text_config");
  if (text != document.end() && text->is_object()) look(*text);
  look(document);
  QuantizationConfig out;
  if (found == nullptr) return out;
  const Reader reader(*found, place);
  MOE_ASSIGN_OR_RETURN(out.method, reader.Text("quant_method", ""));
  if (out.method == "gptq" || out.method == "awq" || out.method == "olive") {
    MOE_RETURN_IF_ERROR(ReadPlain(reader, place, &out));
  } else if (out.method == "compressed-tensors") {
    MOE_ASSIGN_OR_RETURN(const std::string format, reader.Text("format", "pack-quantized"));
    MOE_RETURN_IF_ERROR(reader.OneOf("format", format,
                                     {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                                      "mxfp4-pack-quantized", "nvfp4-pack-quantized", "mixed-precision", "dense"}));
    MOE_RETURN_IF_ERROR(ReadGroups(reader, place, &out));
  } else if (out.method == "modelopt" || out.method == "modelopt_fp4") {
    MOE_ASSIGN_OR_RETURN(const std::string algorithm, reader.Text("quant_algo", "NVFP4"));
    MOE_RETURN_IF_ERROR(reader.OneOf("quant_algo", algorithm, {"NVFP4", "FP8"}));
    MOE_RETURN_IF_ERROR(ReadGroups(reader, place, &out));
  } else if (out.method == "fp8") {
    MOE_ASSIGN_OR_RETURN(const std::string format, reader.Text("fmt", "e4m3"));
    MOE_RETURN_IF_ERROR(reader.OneOf("fmt", format, {"e4m3"}));
    MOE_RETURN_IF_ERROR(ReadBlocks(reader.Find("weight_block_size"), place + "weight_block_size", &out));
  }
  return out;
}

}  // namespace moe
