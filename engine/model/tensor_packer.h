// TensorPacker: single tensors of a WeightStore as vectors, packed matrices and packed experts. Which tensors a model
// has is packed_model.cc's business. Each is checked for weights that are not finite right before it is packed: the
// check reads on and on, and packing, which jumps from row to row, then finds them in the processor's caches.
#ifndef MOE_ENGINE_MODEL_TENSOR_PACKER_H_
#define MOE_ENGINE_MODEL_TENSOR_PACKER_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/packed_model.h"
#include "loaders/weight_values.h"

namespace moe {

class TensorPacker {
 public:
  TensorPacker(const WeightStore& store, DType format, Backend* backend, WorkerPool* pool)
      : store_(store), format_(format), backend_(backend), pool_(pool) {}

  // A copy of a matrix, row behind row, in its own dtype or kF32.
  static void AppendRows(const WeightSource& source, DType dtype, std::vector<std::byte>* to) {
    const auto element = static_cast<int64_t>(DTypeSize(source.dtype));
    const int64_t row_bytes = source.cols * static_cast<int64_t>(DTypeSize(dtype));
    const size_t begin = to->size();
    to->resize(begin + static_cast<size_t>(source.rows * row_bytes));
    for (int64_t r = 0; r < source.rows; ++r) {
      std::byte* out = to->data() + begin + r * row_bytes;
      const std::byte* in = source.data + source.RowOffset(r) * element;
      if (dtype != source.dtype) {
        for (int64_t c = 0; c < source.cols; ++c) {
          const float value = LoadFloat(source.dtype, in + c * source.col_stride * element);
          std::memcpy(out + c * static_cast<int64_t>(sizeof(float)), &value, sizeof(float));
        }
        continue;
      }
      if (source.row_contiguous()) {
        std::memcpy(out, in, row_bytes);
        continue;
      }
      for (int64_t c = 0; c < source.cols; ++c) {
        std::memcpy(out + c * element, in + c * source.col_stride * element, element);
      }
    }
  }

  std::vector<float> Vector(const std::string& name) {
    Check(prefix_ + name);
    const WeightSource source = store_.Get(prefix_ + name);
    const auto element = static_cast<int64_t>(DTypeSize(source.dtype));
    std::vector<float> out;
    out.reserve(source.rows * source.cols);
    for (int64_t r = 0; r < source.rows; ++r) {
      for (int64_t c = 0; c < source.cols; ++c) {
        out.push_back(LoadFloat(source.dtype, source.data + (source.RowOffset(r) + c * source.col_stride) * element));
      }
    }
    bytes_ += out.size() * sizeof(float);
    return out;
  }

  // A tensor of whole numbers (TensorNeed::below).
  std::vector<int32_t> Whole(const std::string& name) {
    const WeightSource source = store_.Get(prefix_ + name);
    const auto element = static_cast<int64_t>(DTypeSize(source.dtype));
    std::vector<int32_t> out;
    out.reserve(source.rows * source.cols);
    for (int64_t r = 0; r < source.rows; ++r) {
      for (int64_t c = 0; c < source.cols; ++c) {
        out.push_back(static_cast<int32_t>(
            LoadWhole(source.dtype, source.data + (source.RowOffset(r) + c * source.col_stride) * element)));
      }
    }
    bytes_ += out.size() * sizeof(int32_t);
    return out;
  }

  std::vector<float> VectorIf(bool wanted, const std::string& name) {
    return wanted ? Vector(name) : std::vector<float>();
  }

  void Append(const std::string& name, std::vector<float>* to) {
    const std::vector<float> part = Vector(name);
    to->insert(to->end(), part.begin(), part.end());
  }

  PackedNorm Norm(const std::string& name, const NormSpec& spec) {
    if (!spec.present()) return {};
    return {VectorIf(spec.weight, name), VectorIf(spec.bias, name + ".bias")};
  }

  std::unique_ptr<PackedMatrix> Matrix(const std::vector<std::string>& names, DType format) {
    std::vector<WeightSource> parts;
    for (const std::string& name : names) {
      if (name != "embed") Check(prefix_ + name);  // that is looked up too, and was checked for it
      parts.push_back(store_.Get(prefix_ + name));
      format = Unrounded(parts.back(), format);
    }
    std::unique_ptr<PackedMatrix> packed = backend_->Pack(parts, format);
    for (const std::string& name : names) {
      if (name != "embed") store_.Release(prefix_ + name);
    }
    bytes_ += packed->bytes();
    return packed;
  }

  // A matrix of a float16 model that is stored in another type is kept in float32: float16 could not hold it.
  static DType Unrounded(const WeightSource& source, DType format) {
    return format == DType::kF16 && source.data != nullptr && source.dtype != DType::kF16 ? DType::kF32 : format;
  }

  PackedLinear Linear(const std::vector<std::string>& names, bool bias) {
    PackedLinear linear;
    linear.matrix = Matrix(names, format_);
    for (const std::string& name : names) {
      if (!bias) continue;
      const std::vector<float> part = Vector(name + ".bias");
      linear.bias.insert(linear.bias.end(), part.begin(), part.end());
    }
    return linear;
  }

  // The matrices <parent>.{gate,up,down}.
  ExpertSource Source(const std::string& parent, const MlpSpec& spec) const {
    ExpertSource source;
    if (spec.gated) source.gate = store_.Get(prefix_ + parent + ".gate");
    source.up = store_.Get(prefix_ + parent + ".up");
    source.down = store_.Get(prefix_ + parent + ".down");
    return source;
  }
  void CheckExpert(const std::string& parent, const MlpSpec& spec) {
    if (spec.gated) Check(prefix_ + parent + ".gate");
    Check(prefix_ + parent + ".up");
    Check(prefix_ + parent + ".down");
  }
  void ReleaseExpert(const std::string& parent, const MlpSpec& spec) const {
    if (spec.gated) store_.Release(prefix_ + parent + ".gate");
    store_.Release(prefix_ + parent + ".up");
    store_.Release(prefix_ + parent + ".down");
  }

  // The MLPs whose matrices are called <parent>[e].{gate,up,down}; of them, with `held` not null, the weights of those
  // listed there, ascending.
  PackedMlp Experts(const std::vector<std::string>& parents, const MlpSpec& spec,
                    const std::vector<int32_t>* held = nullptr) {
    PackedMlp mlp;
    for (const std::string& parent : parents) {
      if (!spec.bias) break;
      if (spec.gated) Append(parent + ".gate.bias", &mlp.gate_bias);
      Append(parent + ".up.bias", &mlp.up_bias);
      Append(parent + ".down.bias", &mlp.down_bias);
    }
    std::vector<ExpertSource> sources;
    DType format = format_;
    for (const std::string& parent : parents) {
      ExpertSource source = Source(parent, spec);
      for (const WeightSource& matrix : {source.gate, source.up, source.down}) format = Unrounded(matrix, format);
      const auto e = static_cast<int32_t>(sources.size());
      source.held = held == nullptr || std::binary_search(held->begin(), held->end(), e);
      sources.push_back(source);
    }
    // Each right before it is packed.
    const auto check_from = [&](size_t e) {
      while (e < parents.size() && !sources[e].held) ++e;
      if (e < parents.size()) CheckExpert(parents[e], spec);
    };
    const auto next = [&](int64_t e) {
      ReleaseExpert(parents[e], spec);
      check_from(static_cast<size_t>(e) + 1);
    };
    check_from(0);
    mlp.experts = backend_->PackExperts(sources, spec.gated, format, next);
    bytes_ += mlp.experts->bytes();
    return mlp;
  }

  // The rows of each head of a [heads * rows, cols] source as a matrix of its own, or with `turned` its transpose.
  std::vector<std::unique_ptr<PackedMatrix>> PerHead(const std::string& name, int64_t heads, int64_t rows,
                                                     bool turned) {
    return PerHead(name, heads, rows, turned, Unrounded(store_.Get(prefix_ + name), format_));
  }

  std::vector<std::unique_ptr<PackedMatrix>> PerHead(const std::string& name, int64_t heads, int64_t rows, bool turned,
                                                     DType format) {
    Check(prefix_ + name);
    const WeightSource source = store_.Get(prefix_ + name);
    const auto element = static_cast<int64_t>(DTypeSize(source.dtype));
    std::vector<std::unique_ptr<PackedMatrix>> packed;
    for (int64_t h = 0; h < heads; ++h) {
      WeightSource head{.dtype = source.dtype,
                        .data = source.data + source.RowOffset(h * rows) * element,
                        .rows = rows,
                        .cols = source.cols,
                        .row_stride = source.row_stride,
                        .col_stride = source.col_stride};
      if (turned) {
        std::swap(head.rows, head.cols);
        std::swap(head.row_stride, head.col_stride);
      }
      packed.push_back(backend_->Pack({&head, 1}, format));
      bytes_ += packed.back()->bytes();
    }
    store_.Release(prefix_ + name);
    return packed;
  }

  // `name` with its prefix. Keeps the first error.
  void Check(const std::string& name) {
    if (status_.ok()) status_ = CheckWeight(store_, name, pool_);
  }

 protected:
  const WeightStore& store_;
  DType format_;
  Backend* backend_;
  WorkerPool* pool_;
  Status status_;
  std::string prefix_;  // of the names given, "layers.3."
  size_t bytes_ = 0;    // of everything packed so far
};

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_TENSOR_PACKER_H_
