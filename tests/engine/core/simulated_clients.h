// Clients of an EngineLoop in a simulation: random requests, cancellations and stops, and at the end the check that
// each got exactly what it gets alone (toy::RunAlone).
#ifndef MOE_TESTS_ENGINE_CORE_SIMULATED_CLIENTS_H_
#define MOE_TESTS_ENGINE_CORE_SIMULATED_CLIENTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/core/engine_loop.h"

namespace moe::toy {

// What a simulation draws from its seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}

  int64_t Between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  double Real(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  bool Coin(double p) { return std::uniform_real_distribution<double>(0, 1)(engine_) < p; }
  std::vector<int32_t> Tokens(int64_t n);
  uint64_t Bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

// For any kind of model, with and without guesses, prefix cache, recurrent state; blocks for some or for few.
SchedulerOptions DrawSchedulerOptions(Dice& dice, int num_ranks);

// Reference counts, gauges and limits, recomputed from the running sequences. Between two steps.
void CheckBooks(const Scheduler& scheduler);

class SimulatedClients {
 public:
  // Both outlive this.
  SimulatedClients(Dice* dice, EngineLoop* loop);
  ~SimulatedClients();

  int64_t size() const { return static_cast<int64_t>(clients_.size()); }
  // Submits a random request.
  void Arrive();
  // Perhaps cancels or aborts a request, flushes the prefix cache, or talks of requests that never were.
  void Disturb();

  // At the end. given_up: the engine may have ended requests with UNAVAILABLE.
  void Check(bool given_up) const;
  // Counters and gauges of an engine that has nothing left to do against what clients saw.
  void CheckStats(const EngineStats& stats) const;

 private:
  struct Client;
  void CheckClient(const Client& client, bool given_up) const;

  Dice* const dice_;
  EngineLoop* const loop_;
  const int64_t max_model_len_;
  std::vector<std::vector<int32_t>> prefixes_;
  std::vector<std::shared_ptr<Client>> clients_;
};

}  // namespace moe::toy

#endif  // MOE_TESTS_ENGINE_CORE_SIMULATED_CLIENTS_H_
