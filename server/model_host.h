// ModelHost: which model is served and whether it may take work. Everything on the server asks here: health, /readyz,
// metrics and every call. Thread-safe; the model, once set, stays until the host dies.
#ifndef MOE_SERVER_MODEL_HOST_H_
#define MOE_SERVER_MODEL_HOST_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/core/engine.h"
#include "parallel/base/status.h"
#include "server/prompt_encoder.h"

namespace moe {

// A model that is loaded and warmed up. Immutable; calls hold plain pointers, because the host outlives them (the last
// reference must never be dropped on the engine's own thread, which its destructor joins).
struct ServedModel {
  ServedModel(std::string served_name, std::unique_ptr<Engine> created)
      : name(std::move(served_name)), engine(std::move(created)), prompts(engine->model()) {}
  const std::string name;
  const std::unique_ptr<Engine> engine;
  const PromptEncoder prompts;
};

class ModelHost {
 public:
  enum class State { kLoading, kServing, kUnhealthy, kDraining, kLoadFailed };

  // `name`: the served name, known before the model is.
  explicit ModelHost(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  void SetProgress(const LoadProgress& progress);
  LoadProgress progress() const;
  void SetModel(std::unique_ptr<ServedModel> model);  // once
  void SetLoadFailed(const Status& status);
  // The watchdog's finding; `why` is shown by /healthz. Does not bring back a draining host. `waits`: not serving for
  // the moment, but new work may queue for better times.
  void SetHealth(const Status& why, bool waits = false);
  // No way back. The engine refuses new requests from now on.
  void BeginDrain();

  State state() const;
  bool Serving() const { return state() == State::kServing; }
  std::string StateText() const;  // "loading", "serving", … and the reason when there is one

  // The model, or null while loading.
  ServedModel* model() const;
  // For new work. UNAVAILABLE unless serving, or waiting to; NOT_FOUND for a name that is not ours (empty: whatever is
  // served).
  StatusOr<ServedModel*> ForWork(const std::string& name) const;
  // For questions about the model, which draining does not stop.
  StatusOr<ServedModel*> ForQuery(const std::string& name) const;

  // Called with Serving() after it changed, on the thread that caused it; calls never overlap, and the last one tells
  // the present state. Must not call back into the host.
  void OnServingChange(std::function<void(bool)> callback);

 private:
  void Change(const std::function<void()>& edit);
  StatusOr<ServedModel*> Named(const std::string& name) const;  // mutex_ held

  const std::string name_;
  std::mutex callback_mutex_;           // taken before mutex_
  std::function<void(bool)> callback_;  // guarded by callback_mutex_
  mutable std::mutex mutex_;
  State state_ = State::kLoading;  // guarded by mutex_, as all below
  Status problem_;                 // why unhealthy or failed
  bool waits_ = false;             // unhealthy, but not for good
  LoadProgress progress_{"starting", 0};
  std::unique_ptr<ServedModel> model_;
};

}  // namespace moe

#endif  // MOE_SERVER_MODEL_HOST_H_
