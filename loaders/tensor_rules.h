// How a family's checkpoint names and lays out its tensors, as declarations: canonical pattern ↔ checkpoint pattern and
// layout. {l} stands for the layer and {e} for the expert; {l/2}
// and {l%2} for half its number and the rest, where two layers of ours are one of the checkpoint's. What is stored how
// is said here and never concluded from a shape: a square matrix looks the same both ways.
#ifndef MOE_LOADERS_TENSOR_RULES_H_
#define MOE_LOADERS_TENSOR_RULES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loaders/model_spec.h"

namespace moe {

// Where a canonical [rows, cols] matrix lies in a stored tensor. Default: stored as [rows, cols], or [rows] (with any
// dims of size 1) for a vector.
struct StoredLayout {
  int64_t experts = 0;        // > 0: stored with a leading dimension of this many experts, {e} selects one
  bool flat_experts = false;  // … merged with the next dimension: [experts * x, y]
  int64_t index = -1;         // ≥ 0: this one of the leading dimension, whatever {e} is
  bool transposed = false;    // stored as [cols, rows], that is [in, out]
  int parts = 1;              // the stored out dimension holds this many equally large matrices,
  int part = 0;               // of which this is one:
  bool interleaved = false;   // false: one after another; true: rows p0, p1, p0, p1, …
  int64_t row_begin = 0;      // rows [row_begin, row_begin + rows) of row_total, for parts of unequal size
  int64_t row_total = 0;      // 0: no such slice
  int64_t group_rows = 0;   // > 0: rows come in groups of so many (one a head), each followed and preceded by others':
  int64_t group_begin = 0;  // the group's rows are [group_begin, group_begin + group_rows)
  int64_t group_total = 0;  // of each group_total stored rows

  int64_t taps = 0;  // > 0: the columns are stored as two dimensions, [cols / taps, taps]

  StoredLayout Taps(int64_t taps) const;
  StoredLayout Transposed() const;
  StoredLayout Part(int index, int count) const;
  StoredLayout Interleaved() const;
  StoredLayout Flat() const;
  StoredLayout At(int64_t index) const;
};
StoredLayout Plain();
StoredLayout Stacked(int64_t experts);
StoredLayout RowSlice(int64_t begin, int64_t total);
// Of every `total` stored rows, `rows` from `begin` on: what one head's rows are among several matrices stored head by
// head, as in DeepSeek's kv_b_proj (nope rows of head 0, value rows of head 0, nope rows of head 1, …).
StoredLayout HeadSlice(int64_t begin, int64_t rows, int64_t total);

// The stored shape that `need` calls for under `layout`.
std::vector<int64_t> StoredShape(const TensorNeed& need, const StoredLayout& layout);

// The view of `need` in a tensor of that shape, in elements from the tensor's start. `expert` is {e}.
struct StoredView {
  int64_t offset = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  int64_t group_rows = 0;  // as in WeightSource
  int64_t group_stride = 0;
};
StoredView ViewOf(const TensorNeed& need, const StoredLayout& layout, int64_t expert);

struct TensorRule {
  std::string canonical;
  std::string checkpoint;
  StoredLayout layout;
};

// Checkpoint tensors that a text server does not use, by name; '*' matches any text.
struct IgnoreRule {
  std::string pattern;
  std::string reason;  // "multi-token prediction", for the log line
};

// A tensor of whole numbers that follow from the config, which a checkpoint may store all the same.
struct ImpliedTensor {
  std::string checkpoint;
  std::vector<int64_t> values;
  std::string reason;  // why they follow, for messages
};

// "layers.3.moe.experts.7.up" → "layers.{l}.moe.experts.{e}.up", 3, 7. Absent numbers are -1.
struct CanonicalName {
  std::string pattern;
  int64_t layer = -1;
  int64_t expert = -1;
};
CanonicalName ParseCanonicalName(const std::string& name);

// `pattern` with {l} and {e} replaced.
std::string FillPattern(const std::string& pattern, int64_t layer, int64_t expert);

bool MatchesGlob(const std::string& pattern, const std::string& text);

class TensorRules {
 public:
  // Several rules for one canonical pattern are alternatives: the first whose checkpoint tensor exists is used. If the
  // checkpoint holds the tensors of two of them, the rest counts as unused, which is an error. Alternatives with the
  // same checkpoint name say that this family stores the tensor in one layout or another: the first that fits its
  // shape. A canonical name with numbers ("layers.3.attn.v") replaces the rules for its pattern in that one place.
  void Add(std::string canonical, std::string checkpoint, StoredLayout layout = Plain());
  void Ignore(std::string pattern, std::string reason);
  // Where the checkpoint holds `checkpoint`, its numbers must be these; it is ignored otherwise.
  void Imply(std::string checkpoint, std::vector<int64_t> values, std::string reason);
  // All rules so far hold under other names too: where a checkpoint name, or one to ignore, begins with the first of a
  // pair, the second stands in its place.
  void AddAliases(const std::vector<std::pair<std::string, std::string>>& prefixes);
  // The checkpoint need not hold the routers' selection biases: without one it is 0.
  void AllowNoSelectBias() { allow_no_select_bias_ = true; }
  bool allow_no_select_bias() const { return allow_no_select_bias_; }

  // What a spec leaves to the checkpoint: where a config says that a part is not there, but the code that wrote the
  // checkpoint has it all the same, the tensors tell. `stored` gives the shape of the tensor that a canonical name
  // stands for: null where there is none, empty where only the names are known. Called before tensors are matched.
  using StoredShapes = std::function<const std::vector<int64_t>*(const std::string& canonical)>;
  using Settlement = std::function<void(const StoredShapes& stored, ModelSpec* spec)>;
  void Settle(Settlement settlement) { settlement_ = std::move(settlement); }
  // `shape_of`: by the checkpoint's own names.
  void ApplySettlement(const StoredShapes& shape_of, ModelSpec* spec) const;

  // The forms that routed experts come in. `in` and `out` are prefixes with {l}, e.g.
  // ("layers.{l}.moe.experts.", "model.layers.{l}.mlp.experts.").
  // One tensor per expert: PREFIX{e}.NAME.weight with the given names (an empty gate: not gated).
  void AddExperts(const std::string& out, const std::string& in, const std::string& gate, const std::string& up,
                  const std::string& down);
  // [E, 2I, H] gate rows first, [E, H, I]: what transformers ≥ 5 saves, K last.
  void AddFusedExperts(const std::string& out, const std::string& gate_up, const std::string& down, int64_t experts);
  // [E, I, H], [E, H, I] for experts without a gate.
  void AddStackedExperts(const std::string& out, const std::string& up, const std::string& down, int64_t experts);

  // gate, up and down of an MLP: IN + name + ".weight", and ".bias" where the spec asks for it.
  void AddMlp(const std::string& out, const std::string& in, const std::string& gate, const std::string& up,
              const std::string& down);
  // OUT ↔ IN.weight and OUT.bias ↔ IN.bias.
  void AddLinear(const std::string& out, const std::string& in);

  // Layers after the last one that the config declares for multi-token prediction: PREFIX<n>.* for n in
  // [num_layers, num_layers + declared).
  void IgnoreDraftLayers(const std::string& prefix, int64_t num_layers, int64_t declared);

  // Null without a rule for that pattern, or that name.
  const std::vector<TensorRule>* Find(const std::string& canonical_pattern) const;
  const std::vector<IgnoreRule>& ignored() const { return ignored_; }
  const std::vector<ImpliedTensor>& implied() const { return implied_; }

 private:
  std::unordered_map<std::string, std::vector<TensorRule>> rules_;
  std::vector<IgnoreRule> ignored_;
  std::vector<ImpliedTensor> implied_;
  bool allow_no_select_bias_ = false;
  Settlement settlement_;
};

}  // namespace moe

#endif  // MOE_LOADERS_TENSOR_RULES_H_
