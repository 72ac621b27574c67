#include "loaders/architectures/hashed_ngrams.h"

#include <algorithm>
#include <limits>

namespace moe {
namespace {

// Bounds of what a config can make us compute and list.
constexpr int64_t kMaxHeads = int64_t{1} << 13;  // of all layers
constexpr int64_t kMaxParts = int64_t{1} << 16;  // of all layers

// SplitMix64 (Steele, Lea, Flood 2014): the state's step and the output function.
constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;
uint64_t SplitMix64(uint64_t value) {
  value += kGamma;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// One odd multiplier for each token of the n-gram, so small that no product with a token id overflows.
std::vector<int64_t> Multipliers(int64_t vocab_size, int64_t count, int64_t ordinal, int64_t seed) {
  constexpr uint64_t kSeedStep = 10007;
  const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / std::max<int64_t>(vocab_size, 1));
  const uint64_t half = std::max<uint64_t>(1, most / 2);
  const uint64_t base = static_cast<uint64_t>(seed) + kSeedStep * static_cast<uint64_t>(ordinal);
  std::vector<int64_t> multipliers;
  for (int64_t i = 1; i <= count; ++i) {
    multipliers.push_back(static_cast<int64_t>(2 * (SplitMix64(base + kGamma * static_cast<uint64_t>(i)) % half) + 1));
  }
  return multipliers;
}

bool IsPrime(int64_t value) {
  if (value < 2) return false;
  if (value % 2 == 0) return value == 2;
  for (int64_t divisor = 3; divisor * divisor <= value; divisor += 2) {
    if (value % divisor == 0) return false;
  }
  return true;
}

// The first `count` primes from `start` on.
std::vector<int64_t> PrimesFrom(int64_t start, int64_t count) {
  std::vector<int64_t> primes;
  for (int64_t value = start; static_cast<int64_t>(primes.size()) < count; ++value) {
    if (IsPrime(value)) primes.push_back(value);
  }
  return primes;
}

// `rows`, rounded up to a multiple of `divisor`, in parts of equal size; the last may be smaller, and there may be
// fewer.
std::vector<int64_t> SplitRows(int64_t rows, int64_t divisor, int64_t parts) {
  rows = (rows + divisor - 1) / divisor * divisor;
  const int64_t size = (rows + parts - 1) / parts;
  std::vector<int64_t> split;
  for (; rows > 0; rows -= size) split.push_back(std::min(size, rows));
  return split;
}

// The buffers that checkpoints hold beside the tables. transformers takes what is stored, so a file that differs from
// its own config was hashed otherwise than we would.
void ImplyHash(TensorRules* rules, const std::string& prefix, const NgramSpec& ngram) {
  const std::string seed = "what vocab_size, ngram_size and seed say";
  const std::string sizes = "what ngram_vocab_size_base and heads_per_ngram say";
  std::vector<int64_t> offsets;
  int64_t offset = 0;
  for (const int64_t rows : ngram.head_rows) {
    offsets.push_back(offset);
    offset += rows;
  }
  rules->Imply(prefix + "layer_multipliers", ngram.multipliers, seed);
  rules->Imply(prefix + "ngram_heads_vocab_sizes", ngram.head_rows, sizes);
  rules->Imply(prefix + "ngram_heads_offsets", std::move(offsets), sizes);
}

}  // namespace

void ReadHashedNgrams(ConfigReader* config, const std::vector<int64_t>& layers, ModelSpec* spec, const NormSpec& norm) {
  if (layers.empty()) return;
  NgramSpec ngram;
  ngram.max_n = config->IntOr("ngram_size", 3, 2, NgramSpec::kMaxN);
  ngram.heads_per_n = config->IntOr("heads_per_ngram", 8, 1, kMaxHeads);
  ngram.embed_dim = config->IntOr("ple_embed_dim", spec->hidden_size, 1, limits::kMaxWidth);
  ngram.conv_kernel = config->IntOr("ple_conv_kernel_size", 4, 1, Mamba2Spec::kMaxConvKernel);
  ngram.norm = norm;
  ngram.streams = norm.groups;
  const int64_t base = config->IntOr("ngram_vocab_size_base", 20'000'000, 1, std::numeric_limits<int32_t>::max());
  const int64_t divisor = config->IntOr("make_ngram_vocab_size_divisible_by", 128, 1, int64_t{1} << 20);
  const int64_t parts = config->IntOr("split_ngram_parts", 512, 1, kMaxParts);
  const int64_t seed = config->IntOr("seed", 1234, std::numeric_limits<int32_t>::min(), int64_t{1} << 53);
  const auto count = static_cast<int64_t>(layers.size());
  if (config->ok() && count * ngram.heads() > kMaxHeads) {
    config->Unsupported("heads_per_ngram", Cat("is ", ngram.heads_per_n, ", with ngram_size and ple_layer_ids ",
                                               count * ngram.heads(), " tables; at most ", kMaxHeads));
  }
  if (config->ok() && count * parts > kMaxParts) {
    config->Unsupported("split_ngram_parts",
                        Cat("is ", parts, " for ", count, " layers; at most ", kMaxParts, " parts"));
  }
  if (config->ok() && spec->eos_token_ids.empty()) {
    config->Invalid("eos_token_id", "is absent; n-gram embeddings need it");
  }
  if (!config->ok()) return;
  ngram.boundary = spec->eos_token_ids[0];
  // No two tables of the model have the same size.
  const std::vector<int64_t> primes = PrimesFrom(base, count * ngram.heads());
  for (int64_t ordinal = 0; ordinal < count; ++ordinal) {
    const auto first = primes.begin() + ordinal * ngram.heads();
    ngram.head_rows.assign(first, first + ngram.heads());
    int64_t rows = 0;
    for (const int64_t head : ngram.head_rows) rows += head;
    ngram.part_rows = SplitRows(rows, divisor, parts);
    ngram.multipliers = Multipliers(spec->vocab_size, ngram.max_n, ordinal, seed);
    spec->layers[static_cast<size_t>(layers[static_cast<size_t>(ordinal)])].ngram = ngram;
  }
}

void AddHashedNgramNames(TensorRules* rules, const std::string& prefix, const ModelSpec& spec,
                         const std::vector<int64_t>& layers) {
  const std::string in = prefix + "layers.{l}.ple.";
  const std::string out = "layers.{l}.ngram.";
  rules->Add(out + "key", in + "key_proj.weight");
  rules->Add(out + "value", in + "value_proj.weight");
  rules->Add(out + "key_norm", in + "norm_key.weight");
  rules->Add(out + "query_norm", in + "norm_query.weight");
  rules->Add(out + "conv_norm", in + "norm_conv.weight");
  rules->Add(out + "conv", in + "conv1d.weight");
  for (const int64_t l : layers) {
    if (static_cast<size_t>(l) >= spec.layers.size() || !spec.layers[static_cast<size_t>(l)].ngram) continue;
    const std::string table = Cat(prefix, "layers.", l, ".ple.ple_embedding.ngram_embedding.");
    ImplyHash(rules, Cat(prefix, "layers.", l, ".ple.ple_embedding."), *spec.layers[static_cast<size_t>(l)].ngram);
    int64_t total = 0;
    for (const int64_t rows : spec.layers[static_cast<size_t>(l)].ngram->part_rows) total += rows;
    int64_t begin = 0;
    int64_t part = 0;
    for (const int64_t rows : spec.layers[static_cast<size_t>(l)].ngram->part_rows) {
      const std::string name = Cat("layers.", l, ".ngram.table.", part);
      rules->Add(name, Cat(table, "shard_", part, ".weight"));
      rules->Add(name, table + "weight", RowSlice(begin, total));
      begin += rows;
      ++part;
    }
  }
}

}  // namespace moe
