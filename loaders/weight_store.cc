#include "loaders/weight_store.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loaders/checkpoint.h"
#include "loaders/json_text.h"
#include "loaders/name_matcher.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

bool IsWeightDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Dims of size 1 mean nothing in vectors and in convolution kernels ([C, 1, K]): equal without them is equal. For a
// matrix that really has a side of 1 both sides drop it.
std::vector<int64_t> WithoutOnes(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

bool SameShape(const std::vector<int64_t>& stored, const std::vector<int64_t>& wanted, bool squeeze) {
  return stored == wanted || (squeeze && WithoutOnes(stored) == WithoutOnes(wanted));
}

// Both dtypes are represented exactly in the result.
DType Wider(DType a, DType b) {
  return a == b ? a : DType::kF32;
}

struct Entry {
  int64_t tensor = 0;  // index into Checkpoint::tensors()
  WeightSource source;
  // Of a quantised tensor: the matrices of the stack that the view lies in, and where it begins in them, in elements.
  int64_t first_matrix = 0;
  int64_t matrices = 0;
  int64_t offset = 0;
};

class MappedWeightStore : public WeightStore {
 public:
  MappedWeightStore(std::unique_ptr<Checkpoint> checkpoint, std::unordered_map<std::string, Entry> entries,
                    DType expert_dtype, int64_t total_bytes, int64_t quantized, int64_t ignored)
      : checkpoint_(std::move(checkpoint)),
        entries_(std::move(entries)),
        expert_dtype_(expert_dtype),
        total_bytes_(total_bytes),
        quantized_(quantized),
        ignored_(ignored) {}

  WeightSource Get(const std::string& name) const override {
    const Entry& entry = At(name);
    if (entry.matrices == 0) return entry.source;
    const QuantizedWeight& weight = *TensorOf(entry).quantized;
    const int64_t size = weight.rows * weight.cols;
    const std::lock_guard lock(mutex_);
    std::vector<float>& values = widened_[name];
    if (values.empty()) {
      values.resize(static_cast<size_t>(entry.matrices * size));
      for (int64_t m = 0; m < entry.matrices; ++m) Dequantize(weight, entry.first_matrix + m, values.data() + m * size);
    }
    WeightSource source = entry.source;
    source.data = reinterpret_cast<const std::byte*>(values.data() + entry.offset);
    return source;
  }
  std::span<const std::byte> QuantizedBytes(const std::string& name) const override {
    const Checkpoint::Tensor& tensor = TensorOf(At(name));
    return tensor.quantized == nullptr ? std::span<const std::byte>() : tensor.bytes();
  }
  bool Has(const std::string& name) const override { return entries_.count(name) > 0; }
  std::string SourceName(const std::string& name) const override { return TensorOf(At(name)).info->name; }
  std::string FileName(const std::string& name) const override { return TensorOf(At(name)).file->name(); }
  void Release(const std::string& name) const override {
    const Entry& entry = At(name);
    const WeightSource& source = entry.source;
    if (entry.matrices > 0) {
      {
        const std::lock_guard lock(mutex_);
        widened_.erase(name);
      }
      const Checkpoint::Tensor& tensor = TensorOf(entry);
      const QuantizedWeight& weight = *tensor.quantized;
      const size_t each = tensor.bytes().size() / static_cast<size_t>(weight.count);
      tensor.file->view().Release(tensor.bytes().subspan(static_cast<size_t>(entry.first_matrix) * each,
                                                         static_cast<size_t>(entry.matrices) * each));
      return;
    }
    // From the first to the last element of the view; neighbours inside (interleaved rows) are read again from the file
    // if they are still needed.
    const int64_t last = source.RowOffset(source.rows - 1) + (source.cols - 1) * source.col_stride;
    TensorOf(At(name)).file->view().Release({source.data, static_cast<size_t>(last + 1) * DTypeSize(source.dtype)});
  }
  DType expert_dtype() const override { return expert_dtype_; }
  int64_t total_bytes() const override { return total_bytes_; }
  int64_t quantized_weights() const override { return quantized_; }
  int64_t ignored_tensors() const override { return ignored_; }

 private:
  const Entry& At(const std::string& name) const {
    const auto it = entries_.find(name);
    MOE_CHECK(it != entries_.end()) << "no weight " << name;
    return it->second;
  }
  const Checkpoint::Tensor& TensorOf(const Entry& entry) const {
    return checkpoint_->tensors()[static_cast<size_t>(entry.tensor)];
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unordered_map<std::string, Entry> entries_;
  DType expert_dtype_;
  int64_t total_bytes_;
  int64_t quantized_;
  int64_t ignored_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::vector<float>> widened_;  // guarded by mutex_
};

std::vector<std::string_view> NamesOf(const Checkpoint& checkpoint) {
  std::vector<std::string_view> names;
  names.reserve(checkpoint.tensors().size());
  for (const Checkpoint::Tensor& tensor : checkpoint.tensors()) names.emplace_back(tensor.info->name);
  return names;
}

// One pass over what the spec needs, one over what the files hold.
class Resolver {
 public:
  Resolver(ModelSpec& spec, const TensorRules& rules, std::unique_ptr<Checkpoint> checkpoint)
      : spec_(spec), rules_(rules), checkpoint_(std::move(checkpoint)), matcher_(rules, NamesOf(*checkpoint_)) {}

  StatusOr<std::unique_ptr<WeightStore>> Run() {
    rules_.ApplySettlement(
        [this](const std::string& name) {
          const int64_t index = checkpoint_->Find(name);
          return index < 0 ? nullptr : &tensor(index).info->shape;
        },
        &spec_);
    ForEachRequiredTensor(spec_, [this](const TensorNeed& need) { Resolve(need); });
    for (const int64_t layer : matcher_.without_select_bias()) {
      std::get<MoeSpec>(spec_.layers[static_cast<size_t>(layer)].ffn).router.select_bias = false;
    }
    TakeTiedHead();
    // The order of the reports matters: a quantised file lacks the plain tensors, but "missing" would mislead.
    MOE_RETURN_IF_ERROR(FindQuantized());
    MOE_RETURN_IF_ERROR(error_);
    MOE_RETURN_IF_ERROR(ReportMissing());
    MOE_RETURN_IF_ERROR(SortOutUnused());
    MOE_RETURN_IF_ERROR(CheckImplied());
    int64_t total = 0;
    for (size_t i = 0; i < checkpoint_->tensors().size(); ++i) {
      if (matcher_.used(static_cast<int64_t>(i)))
        total += static_cast<int64_t>(checkpoint_->tensors()[i].bytes().size());
    }
    if (quantized_ > 0) {
      MOE_LOG(kInfo) << listing() << ": " << quantized_ << " weights are quantised; they are widened while they load";
    }
    const DType expert_dtype = expert_dtype_.value_or(mlp_dtype_.value_or(any_dtype_.value_or(DType::kF32)));
    return std::unique_ptr<WeightStore>(
        new MappedWeightStore(std::move(checkpoint_), std::move(entries_), expert_dtype, total, quantized_, ignored_));
  }

 private:
  const std::string& listing() const { return checkpoint_->listing(); }
  const Checkpoint::Tensor& tensor(int64_t index) const { return checkpoint_->tensors()[static_cast<size_t>(index)]; }

  void Resolve(const TensorNeed& need) {
    if (!error_.ok()) return;
    const NameMatcher::Match match = matcher_.Find(need);
    if (match.rule == nullptr) return;
    const auto same = std::find_if(match.rules->begin(), match.rules->end(), [&](const TensorRule& other) {
      return other.checkpoint == match.rule->checkpoint && Fits(need, other, match.name, match.tensor);
    });
    error_ = Take(need, same == match.rules->end() ? *match.rule : *same, match.name, match.tensor);
  }

  bool Fits(const TensorNeed& need, const TensorRule& rule, const CanonicalName& name, int64_t index) const {
    return SameShape(tensor(index).info->shape, StoredShape(need, rule.layout),
                     need.vector || IsConvolution(name.pattern));
  }

  Status Take(const TensorNeed& need, const TensorRule& rule, const CanonicalName& name, int64_t index) {
    const StoredTensor& info = *tensor(index).info;
    if (!Fits(need, rule, name, index)) {
      return InvalidError(tensor(index).file->name(), ": tensor ", info.name, " has the shape ", ShapeText(info.shape),
                          ", expected ", ShapeText(StoredShape(need, rule.layout)));
    }
    if (need.below > 0) {
      MOE_RETURN_IF_ERROR(CheckWhole(need, index));
    } else if (!IsWeightDType(info.dtype)) {
      return UnsupportedError(tensor(index).file->name(), ": tensor ", info.name, " has the dtype ",
                              SafetensorsDTypeName(info.dtype), "; supported: F32, BF16, F16");
    }
    const StoredView view = ViewOf(need, rule.layout, name.expert);
    const QuantizedWeight* quantized = tensor(index).quantized;
    Entry entry;
    entry.tensor = index;
    entry.source.dtype = info.dtype;
    if (quantized == nullptr) {
      entry.source.data = tensor(index).bytes().data() + static_cast<size_t>(view.offset) * DTypeSize(info.dtype);
    }
    entry.source.rows = need.rows;
    entry.source.cols = need.cols;
    entry.source.row_stride = view.row_stride;
    entry.source.col_stride = view.col_stride;
    entry.source.group_rows = view.group_rows;
    entry.source.group_stride = view.group_stride;
    if (quantized != nullptr) {
      const int64_t size = quantized->rows * quantized->cols;
      const int64_t last = view.offset + entry.source.RowOffset(need.rows - 1) + (need.cols - 1) * view.col_stride;
      entry.first_matrix = view.offset / size;
      entry.matrices = last / size - entry.first_matrix + 1;
      entry.offset = view.offset - entry.first_matrix * size;
      ++quantized_;
    }
    entries_.emplace(need.name, entry);
    NoteDType(need, name, quantized != nullptr ? DType::kBF16 : info.dtype);
    return absl::OkStatus();
  }

  Status CheckWhole(const TensorNeed& need, int64_t index) const {
    const StoredTensor& info = *tensor(index).info;
    if (!IsWholeDType(info.dtype)) {
      return UnsupportedError(tensor(index).file->name(), ": tensor ", info.name, " has the dtype ",
                              SafetensorsDTypeName(info.dtype), "; supported: I64, I32");
    }
    const std::span<const std::byte> bytes = tensor(index).bytes();
    for (size_t at = 0; at < bytes.size(); at += DTypeSize(info.dtype)) {
      const int64_t value = LoadWhole(info.dtype, bytes.data() + at);
      if (value >= 0 && value < need.below) continue;
      return InvalidError(tensor(index).file->name(), ": tensor ", info.name, " holds ", value, ", expected 0 to ",
                          need.below - 1);
    }
    return absl::OkStatus();
  }

  static bool IsConvolution(const std::string& pattern) { return pattern.find(".conv") != std::string::npos; }

  void NoteDType(const TensorNeed& need, const CanonicalName& name, DType dtype) {
    if (need.vector) return;  // biases and norms may stay in float32 whatever the weights are
    const auto note = [dtype](std::optional<DType>* seen) { *seen = seen->has_value() ? Wider(**seen, dtype) : dtype; };
    if (name.expert >= 0) note(&expert_dtype_);
    if (name.pattern.find(".mlp.") != std::string::npos) note(&mlp_dtype_);
    if (need.name == "embed") note(&any_dtype_);
  }

  // A stored head beside tied embeddings. Equal: not needed. Different: config and file contradict each other, and the
  // file wins, as in transformers (the numbers the checkpoint was made with need its own head).
  void TakeTiedHead() {
    if (!spec_.tied_head || !error_.ok()) return;
    const auto embed = entries_.find("embed");
    const int64_t found = matcher_.SpareHead();
    if (embed == entries_.end() || found < 0) return;
    const Checkpoint::Tensor& stored = tensor(found);
    const std::span<const std::byte> head = stored.bytes();
    const std::span<const std::byte> embedding = tensor(embed->second.tensor).bytes();
    const bool equal = stored.quantized == nullptr && stored.info->dtype == tensor(embed->second.tensor).info->dtype &&
                       head.size() == embedding.size() &&
                       (head.empty() || std::memcmp(head.data(), embedding.data(), head.size()) == 0);
    stored.file->view().Release(head);
    tensor(embed->second.tensor).file->view().Release(embedding);
    if (equal) {
      matcher_.set_used(found, true);
      head_ignored_ = found;
      ++ignored_;
      MOE_LOG(kInfo) << listing() << ": " << stored.info->name
                     << " equals the embedding matrix and is not loaded twice";
      return;
    }
    MOE_LOG(kWarning) << listing() << ": " << stored.info->name << " differs from the embedding matrix although "
                      << "tie_word_embeddings is true; the stored head is used";
    spec_.tied_head = false;
    Resolve({"lm_head", spec_.vocab_size, spec_.hidden_size, false});
  }

  Status FindQuantized() const {
    const std::string first = matcher_.FirstQuantized();
    if (first.empty()) return absl::OkStatus();
    return UnsupportedError(listing(), ": the checkpoint is quantised in a format that is not supported: tensor ",
                            Quoted(first));
  }

  Status ReportMissing() const {
    const SomeNames& missing = matcher_.missing();
    if (missing.count == 0) return absl::OkStatus();
    const auto unnamed = missing.count - static_cast<int64_t>(missing.first.size());
    return InvalidError(listing(), ": missing tensor ", Joined(missing.first),
                        unnamed > 0 ? Cat(" and ", unnamed, " more") : "");
  }

  // Parts that a config makes zero wide (shared experts: 0) are saved too. They hold nothing to be missed; nor do the
  // zeros that quantisers write as biases of layers without one.
  void SetEmptyAside() {
    int64_t count = 0;
    for (size_t i = 0; i < checkpoint_->tensors().size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      const Checkpoint::Tensor& tensor = checkpoint_->tensors()[i];
      if (matcher_.used(index)) continue;
      const bool zeros = quantized_ > 0 && tensor.info->name.ends_with(".bias") &&
                         std::ranges::all_of(tensor.bytes(), [](std::byte b) { return b == std::byte{0}; });
      if (!tensor.bytes().empty() && !zeros) continue;
      matcher_.set_used(index, true);
      ++count;
    }
    if (count == 0) return;
    ignored_ += count;
    MOE_LOG(kInfo) << listing() << ": ignored " << count << " tensors (without elements, or biases of zeros)";
  }

  Status SortOutUnused() {
    SetEmptyAside();
    const NameMatcher::Unused unused = matcher_.SortUnused();
    if (const SomeNames& unknown = unused.unknown; unknown.count > 0) {
      return InvalidError(listing(), ": ", unknown.count, " tensor", unknown.count > 1 ? "s" : "",
                          " that this architecture does not use: ", Joined(unknown.first),
                          unknown.count > static_cast<int64_t>(unknown.first.size()) ? ", …" : "");
    }
    for (const auto& [reason, count] : unused.ignored) {
      ignored_ += count;
      MOE_LOG(kInfo) << listing() << ": ignored " << count << " tensors (" << reason << ")";
    }
    if (head_ignored_ >= 0) matcher_.set_used(head_ignored_, false);  // its bytes do not count
    return absl::OkStatus();
  }

  Status CheckImplied() const {
    for (const ImpliedTensor& implied : rules_.implied()) {
      const int64_t index = checkpoint_->Find(implied.checkpoint);
      if (index < 0) continue;
      const StoredTensor& info = *tensor(index).info;
      const std::string where = Cat(tensor(index).file->name(), ": tensor ", info.name);
      const std::span<const std::byte> bytes = tensor(index).bytes();
      const size_t size = DTypeSize(info.dtype);
      if (!IsWholeDType(info.dtype) || bytes.size() != implied.values.size() * size) {
        return InvalidError(where, " is ", SafetensorsDTypeName(info.dtype), " ", ShapeText(info.shape), ", expected ",
                            implied.values.size(), " numbers of I64 or I32");
      }
      for (size_t i = 0; i < implied.values.size(); ++i) {
        const int64_t value = LoadWhole(info.dtype, bytes.data() + i * size);
        if (value == implied.values[i]) continue;
        return InvalidError(where, " has ", value, " at ", i, ", expected ", implied.values[i], " (", implied.reason,
                            ")");
      }
    }
    return absl::OkStatus();
  }

  static std::string Joined(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  ModelSpec& spec_;
  const TensorRules& rules_;
  std::unique_ptr<Checkpoint> checkpoint_;
  NameMatcher matcher_;
  std::unordered_map<std::string, Entry> entries_;
  std::optional<DType> expert_dtype_;
  std::optional<DType> mlp_dtype_;
  std::optional<DType> any_dtype_;
  Status error_;
  int64_t ignored_ = 0;
  int64_t quantized_ = 0;
  int64_t head_ignored_ = -1;
};

}  // namespace

StatusOr<std::unique_ptr<WeightStore>> OpenWeightStore(const ModelFiles& files, ModelSpec* spec,
                                                       const TensorRules& rules,
                                                       const QuantizationConfig& quantization) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(files));
  MOE_RETURN_IF_ERROR(checkpoint->JoinQuantized(quantization));
  return Resolver(*spec, rules, std::move(checkpoint)).Run();
}

}  // namespace moe
