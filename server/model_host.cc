#include "server/model_host.h"

#include <cmath>
#include <utility>

#include "loaders/json_text.h"

namespace moe {

void ModelHost::Change(const std::function<void()>& edit) {
  bool before = false;
  bool after = false;
  {
    std::lock_guard lock(mutex_);
    before = state_ == State::kServing;
    edit();
    after = state_ == State::kServing;
  }
  if (before == after) return;
  std::lock_guard lock(callback_mutex_);
  if (callback_) callback_(Serving());
}

void ModelHost::OnServingChange(std::function<void(bool)> callback) {
  std::lock_guard lock(callback_mutex_);
  callback_ = std::move(callback);
}

void ModelHost::SetProgress(const LoadProgress& progress) {
  std::lock_guard lock(mutex_);
  progress_ = progress;
}

LoadProgress ModelHost::progress() const {
  std::lock_guard lock(mutex_);
  return progress_;
}

void ModelHost::SetModel(std::unique_ptr<ServedModel> model) {
  Change([&] {
    model_ = std::move(model);
    progress_ = {"ready", 1};
    if (state_ == State::kLoading) state_ = State::kServing;
  });
}

void ModelHost::SetLoadFailed(const Status& status) {
  Change([&] {
    state_ = State::kLoadFailed;
    problem_ = status;
  });
}

void ModelHost::SetHealth(const Status& why, bool waits) {
  Change([&] {
    waits_ = waits;
    if ((state_ == State::kServing || state_ == State::kUnhealthy) && !why.ok()) {
      state_ = State::kUnhealthy;
      problem_ = why;
    } else if (state_ == State::kUnhealthy && why.ok()) {
      state_ = State::kServing;
      problem_ = Status();
    }
  });
}

void ModelHost::BeginDrain() {
  ServedModel* served = nullptr;
  Change([&] {
    if (state_ != State::kLoadFailed) state_ = State::kDraining;
    served = model_.get();
  });
  if (served != nullptr) served->engine->StopAccepting();
}

ModelHost::State ModelHost::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

std::string ModelHost::StateText() const {
  std::lock_guard lock(mutex_);
  switch (state_) {
    case State::kLoading:
      return "loading";
    case State::kServing:
      return "serving";
    case State::kDraining:
      return "draining";
    case State::kUnhealthy:
      return Cat("unhealthy: ", problem_.message());
    case State::kLoadFailed:
      return "the model could not be loaded";
  }
  return "unknown";
}

ServedModel* ModelHost::model() const {
  std::lock_guard lock(mutex_);
  return model_.get();
}

StatusOr<ServedModel*> ModelHost::Named(const std::string& name) const {
  if (!name.empty() && name != name_) {
    return absl::NotFoundError(Cat("model: ", Quoted(name), " is not served here; this server has ", Quoted(name_)));
  }
  if (model_ == nullptr) {
    return absl::UnavailableError(Cat("the model is loading (", progress_.stage, ", ",
                                      std::lround(progress_.fraction * 100), " %); try again later"));
  }
  return model_.get();
}

StatusOr<ServedModel*> ModelHost::ForQuery(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return Named(name);
}

StatusOr<ServedModel*> ModelHost::ForWork(const std::string& name) const {
  std::lock_guard lock(mutex_);
  MOE_ASSIGN_OR_RETURN(ServedModel * served, Named(name));
  if (state_ == State::kDraining) return absl::UnavailableError("the server is draining; send the request elsewhere");
  if (state_ == State::kUnhealthy && !waits_) {
    return absl::UnavailableError(Cat("the engine is not healthy: ", problem_.message()));
  }
  return served;
}

}  // namespace moe
