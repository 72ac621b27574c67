// Which tensors of a checkpoint make up a quantised weight.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "loaders/json_text.h"
#include "loaders/quant/quantized_weight.h"

namespace moe {
namespace {

using Shape = std::vector<int64_t>;

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

class Finder {
 public:
  Finder(const std::vector<QuantPart>& tensors, const QuantizationConfig& config, std::vector<size_t>* used)
      : tensors_(tensors), config_(config), used_(used) {
    for (size_t i = 0; i < tensors.size(); ++i) by_name_.emplace(tensors[i].info->name, i);
  }

  StatusOr<std::vector<QuantizedWeight>> Run() {
    for (const QuantPart& tensor : tensors_) MOE_RETURN_IF_ERROR(Look(tensor));
    return std::move(found_);
  }

 private:
  // Whether `tensor` holds the codes of a weight; then that is put together.
  Status Look(const QuantPart& tensor) {
    const std::string_view name = tensor.info->name;
    const std::string& method = config_.method;
    const DType dtype = tensor.info->dtype;
    const auto base = [&name](std::string_view suffix) {
      return std::string(name.substr(0, name.size() - suffix.size()));
    };
    if (method == "gptq" && name.ends_with(".qweight")) return Gptq(tensor, base(".qweight"));
    if (method == "awq" && name.ends_with(".qweight")) return Awq(tensor, base(".qweight"));
    if (method == "olive" && name.ends_with("_qweight")) return Olive(tensor, base("_qweight"));
    if (method == "mxfp4" && name.ends_with("_blocks")) return Mxfp4Stack(tensor, base("_blocks"));
    const bool compressed = method == "compressed-tensors";
    if (compressed && name.ends_with(".weight_packed")) {
      const std::string module = base(".weight_packed");
      return dtype == DType::kI32 ? PackedInt(tensor, module) : PackedFloat4(tensor, module);
    }
    if (compressed && dtype == DType::kI8) return Scaled(tensor, QuantFormat::kInt8);
    if (dtype == DType::kF8E4M3 && (compressed || method == "fp8" || method.starts_with("modelopt"))) {
      return Scaled(tensor, QuantFormat::kFloat8);
    }
    if (method.starts_with("modelopt") && dtype == DType::kU8 && name.ends_with(".weight")) {
      return ModelOptFloat4(tensor, base(".weight"));
    }
    return absl::OkStatus();
  }

  Status Gptq(const QuantPart& codes, const std::string& module) {
    QuantizedWeight w = Begin(QuantFormat::kGptq, module + ".weight", codes);
    MOE_RETURN_IF_ERROR(CheckType(codes, DType::kI32, 2));
    MOE_ASSIGN_OR_RETURN(w.scales, Need(w, module + ".scales"));
    w.zeros = Take(w, module + ".qzeros");
    w.order = Take(w, module + ".g_idx");
    const Shape& words = codes.info->shape;
    w.rows = words[1];
    w.bits = config_.bits;
    if (w.order.present()) {
      MOE_RETURN_IF_ERROR(CheckType(w.order, DType::kI32, 1));
      w.cols = w.order.info->shape[0];
      const int64_t bits = w.cols > 0 ? words[0] * 32 / w.cols : 0;
      if (bits * w.cols != words[0] * 32 || (bits != 2 && bits != 4 && bits != 8) || (w.bits != 0 && w.bits != bits)) {
        return Bad(codes, Cat("has the shape ", ShapeText(words), " for ", w.cols, " columns",
                              w.bits != 0 ? Cat(" of ", w.bits, " bits") : ""));
      }
      w.bits = static_cast<int>(bits);
    } else {
      if (w.bits == 0) return Bad(codes, "has no g_idx beside it, and quantization_config no bits");
      w.cols = words[0] * 32 / w.bits;
    }
    MOE_RETURN_IF_ERROR(CheckFloats(w.scales, 2));
    w.groups = w.scales.info->shape[0];
    MOE_RETURN_IF_ERROR(CheckShape(w.scales, {w.groups, w.rows}));
    if (w.zeros.present()) {
      MOE_RETURN_IF_ERROR(CheckType(w.zeros, DType::kI32, 2));
      MOE_RETURN_IF_ERROR(CheckShape(w.zeros, {w.groups, CeilDiv(w.rows * w.bits, 32)}));
    }
    w.zeros_less_one = config_.zeros_less_one;
    if (w.order.present()) return Finish(std::move(w));
    return FinishGrouped(std::move(w));
  }

  Status Awq(const QuantPart& codes, const std::string& module) {
    QuantizedWeight w = Begin(QuantFormat::kAwq, module + ".weight", codes);
    MOE_RETURN_IF_ERROR(CheckType(codes, DType::kI32, 2));
    MOE_ASSIGN_OR_RETURN(w.scales, Need(w, module + ".scales"));
    MOE_ASSIGN_OR_RETURN(w.zeros, Need(w, module + ".qzeros"));
    w.cols = codes.info->shape[0];
    w.rows = codes.info->shape[1] * 8;
    MOE_RETURN_IF_ERROR(CheckFloats(w.scales, 2));
    w.groups = w.scales.info->shape[0];
    MOE_RETURN_IF_ERROR(CheckShape(w.scales, {w.groups, w.rows}));
    MOE_RETURN_IF_ERROR(CheckType(w.zeros, DType::kI32, 2));
    MOE_RETURN_IF_ERROR(CheckShape(w.zeros, {w.groups, w.rows / 8}));
    return FinishGrouped(std::move(w));
  }

  Status PackedInt(const QuantPart& codes, const std::string& module) {
    QuantizedWeight w = Begin(QuantFormat::kPackedInt, module + ".weight", codes);
    MOE_RETURN_IF_ERROR(CheckType(codes, DType::kI32, 2));
    MOE_ASSIGN_OR_RETURN(w.scales, Need(w, module + ".weight_scale"));
    MOE_ASSIGN_OR_RETURN(const QuantPart shape, Need(w, module + ".weight_shape"));
    w.zeros = Take(w, module + ".weight_zero_point");
    w.order = Take(w, module + ".weight_g_idx");
    if (!IsWholeDType(shape.info->dtype) || shape.info->shape != Shape{2}) {
      return Bad(shape, Cat("is ", SafetensorsDTypeName(shape.info->dtype), " ", ShapeText(shape.info->shape),
                            ", expected two numbers of I64"));
    }
    w.rows = LoadWhole(shape.info->dtype, shape.data());
    w.cols = LoadWhole(shape.info->dtype, shape.data() + DTypeSize(shape.info->dtype));
    const Shape& words = codes.info->shape;
    // Which width it is shows in the words of a row; the config decides where two would fit.
    int fitting = 0;
    for (const int bits : {8, 4, 2}) {
      if (w.rows == words[0] && w.cols > 0 && w.cols <= words[1] * 32 && CeilDiv(w.cols * bits, 32) == words[1] &&
          (fitting == 0 || bits == config_.bits)) {
        fitting = bits;
      }
    }
    if (fitting == 0 || (config_.bits != 0 && config_.bits != fitting)) {
      return Bad(codes, Cat("has the shape ", ShapeText(words), " for a weight of ", w.rows, " × ", w.cols,
                            config_.bits != 0 ? Cat(" at ", config_.bits, " bits") : ""));
    }
    w.bits = fitting;
    MOE_RETURN_IF_ERROR(CheckFloats(w.scales, 2));
    w.groups = w.scales.info->shape[1];
    MOE_RETURN_IF_ERROR(CheckShape(w.scales, {w.rows, w.groups}));
    if (w.zeros.present()) {
      MOE_RETURN_IF_ERROR(CheckType(w.zeros, DType::kI32, 2));
      MOE_RETURN_IF_ERROR(CheckShape(w.zeros, {CeilDiv(w.rows * w.bits, 32), w.groups}));
    }
    if (w.order.present()) {
      MOE_RETURN_IF_ERROR(CheckType(w.order, DType::kI32, 1));
      MOE_RETURN_IF_ERROR(CheckShape(w.order, {w.cols}));
      return Finish(std::move(w));
    }
    return FinishGrouped(std::move(w));
  }

  // MXFP4 and NVFP4 of compressed-tensors.
  Status PackedFloat4(const QuantPart& codes, const std::string& module) {
    QuantizedWeight w = Begin(QuantFormat::kMxfp4, module + ".weight", codes);
    MOE_RETURN_IF_ERROR(CheckType(codes, DType::kU8, 2));
    MOE_ASSIGN_OR_RETURN(w.scales, Need(w, module + ".weight_scale"));
    if (w.scales.info->dtype == DType::kF8E4M3) {
      w.format = QuantFormat::kNvfp4;
      MOE_ASSIGN_OR_RETURN(w.global, Need(w, module + ".weight_global_scale"));
    }
    Skip(&w, module + ".input_global_scale");
    return FinishFloat4(std::move(w));
  }

  Status ModelOptFloat4(const QuantPart& codes, const std::string& module) {
    QuantizedWeight w = Begin(QuantFormat::kNvfp4Multiplied, module + ".weight", codes);
    MOE_RETURN_IF_ERROR(CheckType(codes, DType::kU8, 2));
    MOE_ASSIGN_OR_RETURN(w.scales, Need(w, module + ".weight_scale"));
    MOE_ASSIGN_OR_RETURN(w.global, Need(w, module + ".weight_scale_2"));
    Skip(&w, module + ".input_scale");
    return FinishFloat4(std::move(w));
  }

  Status FinishFloat4(QuantizedWeight w) {
    const bool mx = w.format == QuantFormat::kMxfp4;
    w.rows = w.codes.info->shape[0];
    w.cols = 2 * w.codes.info->shape[1];
    w.block_cols = mx ? 32 : 16;
    w.groups = CeilDiv(w.cols, w.block_cols);
    const bool e8m0 = mx && w.scales.info->dtype == DType::kF8E8M0;
    if (!e8m0) MOE_RETURN_IF_ERROR(CheckType(w.scales, mx ? DType::kU8 : DType::kF8E4M3, 2));
    MOE_RETURN_IF_ERROR(CheckShape(w.scales, {w.rows, w.groups}));
    if (w.global.present()) MOE_RETURN_IF_ERROR(CheckSingle(w.global));
    return Finish(std::move(w));
  }

  // gpt-oss: a stack of experts, whose float form has the inputs first.
  Status Mxfp4Stack(const QuantPart& codes, const std::string& name) {
    QuantizedWeight w = Begin(QuantFormat::kMxfp4, name, codes);
    MOE_RETURN_IF_ERROR(CheckType(codes, DType::kU8, 4));
    MOE_ASSIGN_OR_RETURN(w.scales, Need(w, name + "_scales"));
    const Shape& shape = codes.info->shape;
    if (shape[3] != 16)
      return Bad(codes, Cat("has the shape ", ShapeText(shape), ", expected [experts, rows, blocks, 16]"));
    MOE_RETURN_IF_ERROR(CheckType(w.scales, DType::kU8, 3));
    MOE_RETURN_IF_ERROR(CheckShape(w.scales, {shape[0], shape[1], shape[2]}));
    w.count = shape[0];
    w.rows = shape[1];
    w.groups = shape[2];
    w.block_cols = 32;
    w.cols = w.groups * w.block_cols;
    w.transposed = true;
    return Finish(std::move(w));
  }

  // A weight whose elements are its codes, int8 or E4M3, with scales beside it.
  Status Scaled(const QuantPart& codes, QuantFormat format) {
    const std::string& name = codes.info->name;
    const QuantPart inverse = Of(name + "_scale_inv");
    if (!inverse.present() && !Of(name + "_scale").present()) return absl::OkStatus();
    QuantizedWeight w = Begin(format, name, codes);
    w.scales = Take(w, inverse.present() ? name + "_scale_inv" : name + "_scale");
    w.zeros = format == QuantFormat::kInt8 ? Take(w, name + "_zero_point") : QuantPart();
    if (name.ends_with(".weight")) Skip(&w, name.substr(0, name.size() - 6) + "input_scale");
    const Shape& shape = codes.info->shape;
    if (shape.size() != 2 && shape.size() != 3)
      return Bad(codes, Cat("has the shape ", ShapeText(shape), ", expected a matrix"));
    w.count = shape.size() == 3 ? shape[0] : 1;
    w.rows = shape[shape.size() - 2];
    w.cols = shape[shape.size() - 1];
    w.bits = 8;
    const bool exponents = w.scales.info->dtype == DType::kF8E8M0;
    if (!exponents) MOE_RETURN_IF_ERROR(CheckFloats(w.scales, w.scales.info->shape.size()));
    MOE_RETURN_IF_ERROR(FindBlocks(&w));
    if (w.zeros.present()) {
      MOE_RETURN_IF_ERROR(CheckType(w.zeros, DType::kI8, w.scales.info->shape.size()));
      MOE_RETURN_IF_ERROR(CheckShape(w.zeros, w.scales.info->shape));
    }
    return Finish(std::move(w));
  }

  // Which elements share a scale, from the number of scales: one a tensor, one a row, groups in a row, or blocks.
  Status FindBlocks(QuantizedWeight* w) const {
    Shape grid = w->scales.info->shape;
    if (w->count > 1 || w->codes.info->shape.size() == 3) {
      if (grid.empty() || grid[0] != w->count) return BadScales(*w);
      grid.erase(grid.begin());
    }
    while (grid.size() < 2) grid.push_back(1);
    if (grid.size() > 2) return BadScales(*w);
    const auto size = [](int64_t elements, int64_t parts, int64_t said) -> int64_t {
      if (parts == 1 && said == 0) return std::max<int64_t>(elements, 1);
      if (parts == elements) return 1;
      if (said > 0 && CeilDiv(elements, said) == parts) return said;
      if (parts == 1) return std::max<int64_t>(elements, 1);
      return parts > 0 && elements % parts == 0 ? elements / parts : 0;
    };
    w->block_rows = size(w->rows, grid[0], config_.block_rows);
    w->block_cols = size(w->cols, grid[1], config_.block_cols);
    w->groups = grid[1];
    return w->block_rows > 0 && w->block_cols > 0 ? absl::OkStatus() : BadScales(*w);
  }

  Status BadScales(const QuantizedWeight& w) const {
    return Bad(w.scales, Cat("has the shape ", ShapeText(w.scales.info->shape),
                             ", which does not divide the weight of ", ShapeText(w.codes.info->shape)));
  }

  Status Olive(const QuantPart& codes, const std::string& name) {
    QuantizedWeight w = Begin(QuantFormat::kOlive, name, codes);
    const Shape& shape = codes.info->shape;
    const size_t dims = shape.size();
    if (dims != 2 && dims != 3) return Bad(codes, Cat("has the shape ", ShapeText(shape), ", expected a matrix"));
    MOE_RETURN_IF_ERROR(CheckType(codes, DType::kU8, dims));
    MOE_ASSIGN_OR_RETURN(w.scales, Need(w, name + "_scales"));
    w.zeros = Take(w, name + "_qzeros");
    w.count = dims == 3 ? shape[0] : 1;
    w.rows = shape[dims - 2];
    MOE_RETURN_IF_ERROR(CheckFloats(w.scales, dims));
    w.groups = w.scales.info->shape[dims - 1];
    Shape grid = shape;
    grid[dims - 1] = w.groups;
    MOE_RETURN_IF_ERROR(CheckShape(w.scales, grid));
    // Single modules may have other bits than the config says: the size of a group tells, where that is the same.
    w.bits = config_.bits != 0 ? config_.bits : 4;
    if (config_.group_size > 0) {
      for (const int bits : {2, 4, 8}) {
        if (shape[dims - 1] * 8 / bits == w.groups * config_.group_size) w.bits = bits;
      }
    }
    w.cols = shape[dims - 1] * 8 / w.bits;
    if (w.zeros.present()) {
      MOE_RETURN_IF_ERROR(CheckType(w.zeros, DType::kU8, dims));
      grid[dims - 1] = CeilDiv(w.groups * w.bits, 8);
      MOE_RETURN_IF_ERROR(CheckShape(w.zeros, grid));
    }
    return FinishGrouped(std::move(w));
  }

  // --- Parts ---

  QuantPart Of(const std::string& name) const {
    const auto it = by_name_.find(std::string_view(name));
    return it == by_name_.end() ? QuantPart() : tensors_[it->second];
  }

  QuantizedWeight Begin(QuantFormat format, std::string name, const QuantPart& codes) {
    QuantizedWeight w;
    w.format = format;
    w.name = std::move(name);
    w.codes = codes;
    Use(&w, codes.info->name);
    return w;
  }

  void Use(QuantizedWeight* w, const std::string& name) {
    used_->push_back(by_name_.at(std::string_view(name)));
    ++w->parts;
  }

  QuantPart Take(QuantizedWeight& w, const std::string& name) {
    const QuantPart part = Of(name);
    if (part.present()) Use(&w, name);
    return part;
  }

  void Skip(QuantizedWeight* w, const std::string& name) { (void)Take(*w, name); }

  StatusOr<QuantPart> Need(QuantizedWeight& w, const std::string& name) {
    const QuantPart part = Take(w, name);
    if (!part.present()) return Bad(w.codes, Cat("lacks ", name, " beside it"));
    return part;
  }

  Status FinishGrouped(QuantizedWeight w) {
    if (w.groups < 1 || w.cols % w.groups != 0) {
      return Bad(w.scales, Cat("has ", w.groups, " groups for ", w.cols, " columns"));
    }
    w.block_cols = w.cols / w.groups;
    if (config_.group_size > 0 && config_.method != "olive" && w.block_cols != config_.group_size) {
      return Bad(w.scales, Cat("has groups of ", w.block_cols, " columns, but group_size in quantization_config is ",
                               config_.group_size));
    }
    return Finish(std::move(w));
  }

  Status Finish(QuantizedWeight w) {
    if (w.rows < 1 || w.cols < 1 || w.count < 1 || w.groups < 1) return Bad(w.codes, "is empty");
    const bool stack = w.codes.info->shape.size() > 2;
    if (stack) w.shape.push_back(w.count);
    w.shape.push_back(w.transposed ? w.cols : w.rows);
    w.shape.push_back(w.transposed ? w.rows : w.cols);
    if (Of(w.name).present() && w.name != w.codes.info->name) {
      return Bad(w.codes, Cat("is there beside ", w.name, ", the same weight unquantised"));
    }
    found_.push_back(std::move(w));
    return absl::OkStatus();
  }

  // --- Checks ---

  static Status Bad(const QuantPart& part, const std::string& what) {
    return InvalidError(part.file->name(), ": tensor ", part.info->name, " ", what);
  }

  static Status CheckType(const QuantPart& part, DType dtype, size_t dims) {
    if (part.info->dtype == dtype && part.info->shape.size() == dims) return absl::OkStatus();
    return Bad(part, Cat("is ", SafetensorsDTypeName(part.info->dtype), " ", ShapeText(part.info->shape), ", expected ",
                         SafetensorsDTypeName(dtype), " with ", dims, " dimensions"));
  }

  static Status CheckFloats(const QuantPart& part, size_t dims) {
    const DType t = part.info->dtype;
    const bool floats = t == DType::kF32 || t == DType::kF16 || t == DType::kBF16;
    if (floats && part.info->shape.size() == dims) return absl::OkStatus();
    return Bad(part, Cat("is ", SafetensorsDTypeName(t), " ", ShapeText(part.info->shape),
                         ", expected F16, BF16 or F32 with ", dims, " dimensions"));
  }

  static Status CheckSingle(const QuantPart& part) {
    MOE_RETURN_IF_ERROR(CheckFloats(part, part.info->shape.size()));
    for (const int64_t side : part.info->shape) {
      if (side != 1) return Bad(part, Cat("has the shape ", ShapeText(part.info->shape), ", expected one number"));
    }
    return absl::OkStatus();
  }

  static Status CheckShape(const QuantPart& part, const Shape& expected) {
    if (part.info->shape == expected) return absl::OkStatus();
    return Bad(part, Cat("has the shape ", ShapeText(part.info->shape), ", expected ", ShapeText(expected)));
  }

  const std::vector<QuantPart>& tensors_;
  const QuantizationConfig& config_;
  std::vector<size_t>* const used_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::vector<QuantizedWeight> found_;
};

}  // namespace

StatusOr<std::vector<QuantizedWeight>> FindQuantizedWeights(const std::vector<QuantPart>& tensors,
                                                            const QuantizationConfig& config,
                                                            std::vector<size_t>* used) {
  if (config.method.empty()) return std::vector<QuantizedWeight>();
  return Finder(tensors, config, used).Run();
}

}  // namespace moe
