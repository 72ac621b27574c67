// A model on N in-process ranks that a test drives step by step, without scheduler: slices of any size, any mix.
#ifndef MOE_TESTS_ENGINE_MODEL_TEST_MODEL_H_
#define MOE_TESTS_ENGINE_MODEL_TEST_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/local_ranks.h"
#include "engine/core/rank_worker.h"
#include "loaders/architectures.h"
#include "loaders/weight_store.h"

namespace moe {

struct TestModelOptions {
  std::string backend = "reference";  // or an instruction set of the cpu backend, or "auto"
  DType format = DType::kF32;
  int ranks = 1;
  int threads = 1;
  bool round_robin = false;  // placement; else linear
  int64_t kv_blocks = 512;   // per rank
  int64_t state_slots = 64;
  std::span<const Architecture> table = Architectures();
};

// What a sequence got so far.
struct TestSequence {
  SequenceInit init;
  int rank = 0;
  int64_t computed = 0;
  std::vector<int32_t> blocks;           // set before the first step, with `computed`: a prefix that is there already
  std::vector<TokenInfo> tokens;         // generated
  std::vector<TokenInfo> prompt_tokens;  // with prompt_logprobs
  std::vector<int32_t> expert_ids;
  bool not_finite = false;  // some slice's result says so
  bool admitted = false;
};

class TestModel {
 public:
  // Ends the process with a message when the checkpoint does not load: tests bring their own.
  TestModel(const std::string& directory, const TestModelOptions& options);
  TestModel(std::unique_ptr<ModelFiles> files, const TestModelOptions& options);

  const ModelSpec& spec() const { return spec_; }

  // A new sequence on `rank`; runs when Step names it.
  TestSequence* Add(std::vector<int32_t> prompt, int rank = 0);

  // One step that computes `count` more tokens of each sequence (fewer at the end of the prompt; after it, one, or what
  // a false guess has left to replay). A slice that reaches the last known token computes the guesses in `draft` too.
  struct Part {
    TestSequence* sequence = nullptr;
    int64_t count = 0;
    std::vector<int32_t> draft = {};
  };
  void Step(const std::vector<Part>& parts);

  // Prefill in chunks of `chunk`, then decode until `new_tokens` are there, all sequences together.
  void Run(const std::vector<TestSequence*>& sequences, int64_t new_tokens, int64_t chunk);

  // The rank forgets the sequence with the next step; its blocks and slot are free from then on.
  void Drop(TestSequence* sequence);

  // Summed over steps and ranks: [moe_layers * experts].
  const std::vector<int64_t>& expert_tokens() const { return expert_tokens_; }

 private:
  std::unique_ptr<ModelFiles> files_;
  ModelSpec spec_;
  std::unique_ptr<WeightStore> store_;
  std::unique_ptr<WorkerPool> pack_pool_;
  std::unique_ptr<Backend> packer_;
  std::unique_ptr<PackedModel> packed_;
  std::vector<ExpertPlacement> placements_;
  std::unique_ptr<RankLink> ranks_;
  std::vector<std::unique_ptr<TestSequence>> sequences_;
  std::vector<std::vector<SequenceId>> drops_;     // per rank, for the next step
  std::vector<std::vector<int32_t>> free_blocks_;  // per rank
  std::vector<std::vector<int32_t>> free_slots_;   // per rank
  std::vector<int64_t> expert_tokens_;
  uint64_t step_ = 0;
};

}  // namespace moe

#endif  // MOE_TESTS_ENGINE_MODEL_TEST_MODEL_H_
