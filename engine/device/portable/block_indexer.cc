#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/portable/slice_rows.h"
#include "engine/device/reference/reference_math.h"

namespace moe {
namespace {

using reference::NormRow;
using reference::RotateHead;
using reference::RotationAt;

constexpr int64_t kKeysOfTask = 256;
constexpr int64_t kScoresAtOnce = int64_t{1} << 22;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// The rows of one BlockIndexer call and where their parts are.
class Scorer {
 public:
  explicit Scorer(const BlockIndexerOp& op)
      : op_(op),
        spec_(*op.spec),
        mean_(op.spec->pooling == BlockIndexerSpec::Pooling::kMeanKey),
        half_(op.rope != nullptr ? op.rope->rotary_dim / 2 : 0),
        q_dim_(op.spec->num_heads * op.spec->head_dim) {}

  // What the row leaves for itself and later ones: its key, normed and rotated unless it is for a mean.
  void StoreKey(const SliceRow& at) const {
    const float* key = op_.qk + at.row * (q_dim_ + spec_.head_dim) + q_dim_;
    float* to = Plane(at, at.position);
    if (mean_) {
      std::copy_n(key, spec_.head_dim, to);
      return;
    }
    NormRow(spec_.norm, key, spec_.head_dim, op_.k_norm, nullptr, to);
    if (half_ > 0) RotateHead(op_.rope->layout, op_.cos + at.row * half_, op_.sin + at.row * half_, half_, to);
  }

  // The key of the block that ends with this row. Its other tokens may have come with earlier calls.
  void StoreMean(const SliceRow& at) const {
    const int64_t dim = spec_.head_dim;
    const int64_t first = at.position + 1 - spec_.block_size;
    float* mean = Plane(at, at.position) + dim;
    std::fill_n(mean, dim, 0.0f);
    for (int64_t s = first; s <= at.position; ++s) {
      const float* key = Plane(at, s);
      for (int64_t d = 0; d < dim; ++d) mean[d] += key[d];
    }
    for (int64_t d = 0; d < dim; ++d) mean[d] /= static_cast<float>(spec_.block_size);
    NormRow(spec_.norm, mean, dim, op_.k_norm, nullptr, mean);
    if (half_ == 0) return;
    std::vector<float> rotation(static_cast<size_t>(2 * half_));
    RotationAt(*op_.rope, first, rotation.data(), rotation.data() + half_);
    RotateHead(op_.rope->layout, rotation.data(), rotation.data() + half_, half_, mean);
  }

  // Blocks that compete for the row: with means the whole ones, else all that begin at or before it.
  int64_t Blocks(const SliceRow& at) const {
    return mean_ ? (at.position + 1) / spec_.block_size : at.position / spec_.block_size + 1;
  }

  // q of the row as [head_dim][heads], so that one pass over a key serves all heads.
  void TurnQuery(const SliceRow& at, float* turned) const {
    std::vector<float> head(static_cast<size_t>(spec_.head_dim));
    for (int64_t h = 0; h < spec_.num_heads; ++h) {
      const float* q = op_.qk + at.row * (q_dim_ + spec_.head_dim) + h * spec_.head_dim;
      NormRow(spec_.norm, q, spec_.head_dim, op_.q_norm, nullptr, head.data());
      if (half_ > 0) {
        RotateHead(op_.rope->layout, op_.cos + at.row * half_, op_.sin + at.row * half_, half_, head.data());
      }
      for (int64_t d = 0; d < spec_.head_dim; ++d) turned[d * spec_.num_heads + h] = head[static_cast<size_t>(d)];
    }
  }

  // score [blocks, groups] of the blocks [begin, end) of the row.
  void Score(const SliceRow& at, const float* turned, int64_t begin, int64_t end, float* score) const {
    std::vector<float> dots(static_cast<size_t>(spec_.num_heads));
    for (int64_t b = begin; b < end; ++b) {
      const int64_t last = (b + 1) * spec_.block_size - 1;
      if (mean_) {
        Dots(Plane(at, last) + spec_.head_dim, turned, dots.data());
        float sum = 0;
        for (const float dot : dots) sum += std::max(dot, 0.0f);
        score[b] = std::isnan(sum) ? kNever : sum;
        continue;
      }
      float* best = score + b * spec_.num_heads;
      std::fill_n(best, spec_.num_heads, kNever);
      for (int64_t s = b * spec_.block_size; s <= std::min(last, at.position); ++s) {
        Dots(Plane(at, s), turned, dots.data());
        for (int64_t h = 0; h < spec_.num_heads; ++h) {
          if (dots[static_cast<size_t>(h)] > best[h]) best[h] = dots[static_cast<size_t>(h)];
        }
      }
    }
  }

  // The keys of the best blocks of one group, ascending, to positions [width].
  void Choose(const SliceRow& at, const float* score, int64_t group, int32_t* positions) const {
    const int64_t groups = spec_.groups();
    const int64_t blocks = Blocks(at);
    const int64_t local = mean_ ? blocks : blocks - spec_.local_blocks;  // blocks from here on win in any case
    const auto better = [&](int64_t a, int64_t b) {
      if ((a >= local) != (b >= local)) return a >= local;
      const float x = score[a * groups + group];
      const float y = score[b * groups + group];
      return x != y ? x > y : a < b;
    };
    std::vector<int64_t> order(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    if (blocks > spec_.top_blocks) {
      std::nth_element(order.begin(), order.begin() + spec_.top_blocks, order.end(), better);
      order.resize(static_cast<size_t>(spec_.top_blocks));
      std::sort(order.begin(), order.end());
    }
    int32_t* next = positions;
    const auto add = [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) *next++ = static_cast<int32_t>(s);
    };
    for (const int64_t b : order) add(b * spec_.block_size, std::min((b + 1) * spec_.block_size, at.position + 1));
    if (mean_) add(blocks * spec_.block_size, at.position + 1);
    std::fill(next, positions + spec_.width(), -1);
  }

 private:
  float* Plane(const SliceRow& at, int64_t position) const {
    return op_.kv.plane + (at.block(position) * kKvBlockTokens + position % kKvBlockTokens) * op_.kv.plane_width;
  }

  void Dots(const float* key, const float* turned, float* dots) const {
    const int64_t heads = spec_.num_heads;
    std::fill_n(dots, heads, 0.0f);
    for (int64_t d = 0; d < spec_.head_dim; ++d) {
      const float* q = turned + d * heads;
      for (int64_t h = 0; h < heads; ++h) dots[h] += q[h] * key[d];
    }
  }

  const BlockIndexerOp& op_;
  const BlockIndexerSpec& spec_;
  bool mean_;
  int64_t half_;
  int64_t q_dim_;
};

// A run of blocks that one row scores.
struct ScoreTask {
  size_t row = 0;  // of the part
  int64_t begin = 0;
  int64_t end = 0;
};

}  // namespace

void PortableBackend::BlockIndexer(const BlockIndexerOp& op) {
  const BlockIndexerSpec& spec = *op.spec;
  const Scorer scorer(op);
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const auto count = static_cast<int64_t>(rows.size());
  const auto dim = static_cast<double>(spec.head_dim);
  // All keys first: a row scores those of the rows before it in its slice.
  ForTasks(count, static_cast<double>(count) * dim * 4,
           [&](int64_t i) { scorer.StoreKey(rows[static_cast<size_t>(i)]); });
  if (spec.pooling == BlockIndexerSpec::Pooling::kMeanKey) {
    std::vector<SliceRow> last;
    for (const SliceRow& at : rows) {
      if ((at.position + 1) % spec.block_size == 0) last.push_back(at);
    }
    const auto ends = static_cast<int64_t>(last.size());
    ForTasks(ends, static_cast<double>(ends * spec.block_size) * dim,
             [&](int64_t i) { scorer.StoreMean(last[static_cast<size_t>(i)]); });
  }
  if (op.positions == nullptr) return;

  std::vector<SliceRow> choosing;
  for (const SliceRow& at : rows) {
    if (at.position >= spec.first_choice()) choosing.push_back(at);
  }
  const int64_t q_dim = spec.num_heads * spec.head_dim;
  const int64_t groups = spec.groups();
  const int64_t keys_of_block = spec.pooling == BlockIndexerSpec::Pooling::kMeanKey ? 1 : spec.block_size;
  const int64_t blocks_of_task = std::max<int64_t>(1, kKeysOfTask / keys_of_block);
  std::vector<float> turned;
  std::vector<float> scores;
  for (size_t first = 0; first < choosing.size();) {
    // As many rows as the scores' memory allows.
    std::vector<ScoreTask> tasks;
    std::vector<int64_t> score_begin;
    int64_t total = 0;
    size_t end = first;
    for (; end < choosing.size() && (end == first || total < kScoresAtOnce); ++end) {
      const int64_t blocks = scorer.Blocks(choosing[end]);
      for (int64_t b = 0; b < blocks; b += blocks_of_task) {
        tasks.push_back({score_begin.size(), b, std::min(b + blocks_of_task, blocks)});
      }
      score_begin.push_back(total);
      total += blocks * groups;
    }
    const auto part = static_cast<int64_t>(end - first);
    const auto row_at = [&](size_t i) -> const SliceRow& { return choosing[first + i]; };
    scores.resize(static_cast<size_t>(total));
    turned.resize(static_cast<size_t>(part * q_dim));
    ForTasks(part, static_cast<double>(part * q_dim) * 4,
             [&](int64_t i) { scorer.TurnQuery(row_at(static_cast<size_t>(i)), turned.data() + i * q_dim); });
    const int64_t scored_keys = total / groups * keys_of_block;
    ForTasks(static_cast<int64_t>(tasks.size()), static_cast<double>(scored_keys) * static_cast<double>(q_dim),
             [&](int64_t i) {
               const ScoreTask& task = tasks[static_cast<size_t>(i)];
               scorer.Score(row_at(task.row), turned.data() + static_cast<int64_t>(task.row) * q_dim, task.begin,
                            task.end, scores.data() + score_begin[task.row]);
             });
    ForTasks(part * groups, static_cast<double>(total) * 8 + static_cast<double>(part * groups * spec.width()),
             [&](int64_t i) {
               const auto row = static_cast<size_t>(i / groups);
               const int64_t group = i % groups;
               scorer.Choose(row_at(row), scores.data() + score_begin[row], group,
                             op.positions + (row_at(row).row * groups + group) * spec.width());
             });
    first = end;
  }
}

}  // namespace moe
