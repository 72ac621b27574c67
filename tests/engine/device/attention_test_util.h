// A paged cache and steps over it, for the tests of Qkv and Attention.
#ifndef MOE_TESTS_ENGINE_DEVICE_ATTENTION_TEST_UTIL_H_
#define MOE_TESTS_ENGINE_DEVICE_ATTENTION_TEST_UTIL_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {

// The paths that can attend here: the processor's own and, given AVX512-BF16, the kernel of the amx path over a model
// of its tiles (with bf16 activations; with others it is the path avx512bf16).
struct AttentionPath {
  std::string name;
  CpuIsa isa;
  bool amx_model = false;

  // Multiplies values by weights of bf16, not float32.
  bool RoundsWeights(DType act) const {
    return act == DType::kBF16 && (isa == CpuIsa::kAvx512Bf16 || isa == CpuIsa::kAmx);
  }
};
std::vector<AttentionPath> AttentionPaths();
std::unique_ptr<Backend> MakeCpu(const AttentionPath& path, DType act, WorkerPool* pool);

struct AttentionCase {
  int64_t heads, kv_heads, head_dim, v_head_dim, window;
};
AttentionSpec MakeSpec(const AttentionCase& c);

// A paged cache for sequences of up to `tokens`, its blocks in shuffled order, never-written parts full of NaN.
struct Cache {
  DType act;
  std::vector<std::byte> k, v;
  std::vector<std::vector<int32_t>> blocks;  // of each sequence
  KvLayer layer;

  Cache(const AttentionCase& c, DType act_dtype, int64_t sequences, int64_t tokens);
};

// All K elements by (block, head, token, d): the cpu backend keeps pairs of d of 32 tokens together in bf16, and turns
// a block over in float32.
std::vector<std::byte> KeysByToken(const Cache& cache, const AttentionCase& c, bool reference = false);

// The step: positions [first, first + count) of each sequence, rows in order of the slices.
struct SliceOf {
  int64_t sequence, first, count;
};
std::vector<MixerSlice> Slices(const Cache& cache, const std::vector<SliceOf>& parts);

// qkv of every position of every sequence, and the model's inputs around it.
struct Inputs {
  int64_t width, tokens;
  std::vector<float> qkv;  // [sequences, tokens, width]
  std::vector<float> cos, sin, q_norm, k_norm, v_norm, sinks;
  // q_only: of a layer that reads another's keys and values.
  Inputs(const AttentionCase& c, int64_t sequences, int64_t num_tokens, uint32_t seed, bool q_only = false);
};

struct StepOutput {
  std::vector<float> q, out;
};

// Writes K and V of the parts and attends, as the spec says.
StepOutput RunStep(Backend& backend, const AttentionSpec& spec, const Inputs& in, Cache& cache,
                   const std::vector<SliceOf>& parts, const KeySelection* selection = nullptr);

}  // namespace moe::device_test

#endif  // MOE_TESTS_ENGINE_DEVICE_ATTENTION_TEST_UTIL_H_
