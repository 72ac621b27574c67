// What the tests of the engine loop share: a model description for ToyRanks, requests, and a sink that remembers.
#ifndef MOE_TESTS_ENGINE_CORE_LOOP_TESTING_H_
#define MOE_TESTS_ENGINE_CORE_LOOP_TESTING_H_

#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <vector>

#include "engine/schedule/request.h"
#include "loaders/model_spec.h"
#include "tests/engine/core/toy_ranks.h"

namespace moe::toy {

// Two MoE layers of ToyRanks' shape.
inline ModelSpec ToySpec() {
  ModelSpec spec;
  spec.vocab_size = kVocab;
  spec.layers.resize(kLayers);
  for (LayerSpec& layer : spec.layers) {
    MoeSpec moe;
    moe.num_experts = kExperts;
    moe.top_k = kTopK;
    layer.ffn = moe;
  }
  return spec;
}

// Thread-safe, so that the tests of the real thread can use it too.
struct Recorder : ResponseSink {
  std::mutex mutex;
  std::vector<int32_t> tokens;
  std::vector<double> times;
  FinishReason finish = FinishReason::kNone;
  int done = 0;
  Status status;
  RequestTimes request_times;
  std::promise<void> finished;
  std::function<void()> on_output;
  const double* now = nullptr;

  void OnOutput(OutputChunk chunk) override {
    {
      std::lock_guard lock(mutex);
      for (const TokenInfo& t : chunk.tokens) {
        tokens.push_back(t.id);
        if (now != nullptr) times.push_back(*now);
      }
      finish = chunk.finish;
    }
    if (on_output) on_output();
  }
  void OnDone(const Status& s, const RequestTimes& t) override {
    std::lock_guard lock(mutex);
    ++done;
    status = s;
    request_times = t;
    if (done == 1) finished.set_value();
  }
};

inline Request MakeRequest(int64_t prompt, int64_t max_new, uint64_t seed = 1) {
  Request r;
  for (int64_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<int32_t>((seed * 31 + i) % kVocab));
  r.max_new_tokens = max_new;
  r.sampling.seed = seed;
  return r;
}

}  // namespace moe::toy

#endif  // MOE_TESTS_ENGINE_CORE_LOOP_TESTING_H_
