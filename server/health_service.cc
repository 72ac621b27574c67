#include "server/health_service.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "grpc/health/v1/health.grpc.pb.h"

namespace moe {
namespace {

namespace health = ::grpc::health::v1;
using ServingStatus = health::HealthCheckResponse::ServingStatus;

bool IsKnown(const std::string& service) {
  static constexpr std::array<const char*, 3> kNames = {"", "moe.v1.Inference", "moe.v1.Operations"};
  return std::find(kNames.begin(), kNames.end(), service) != kNames.end();
}

class HealthServiceImpl;

// One Watch call. Sends the newest state whenever it differs from the last one sent; quick changes in between are not
// queued, so a watcher that does not read costs nothing.
class Watcher final : public grpc::ServerWriteReactor<health::HealthCheckResponse> {
 public:
  Watcher(HealthServiceImpl* owner, ServingStatus status);
  void Update(ServingStatus status);
  void End();

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(); }
  void OnDone() override;
  void SendLocked();

  HealthServiceImpl* const owner_;
  std::mutex mutex_;
  ServingStatus wanted_;
  ServingStatus sent_ = health::HealthCheckResponse::UNKNOWN;
  bool sending_ = false;
  bool ended_ = false;
  health::HealthCheckResponse message_;
};

class HealthServiceImpl final : public HealthService, private health::Health::CallbackService {
 public:
  grpc::Service* service() override { return this; }

  void SetServing(bool serving) override {
    std::lock_guard lock(mutex_);
    status_ = serving ? health::HealthCheckResponse::SERVING : health::HealthCheckResponse::NOT_SERVING;
    for (Watcher* watcher : watchers_) watcher->Update(status_);
  }

  void EndWatches() override {
    std::lock_guard lock(mutex_);
    ended_ = true;
    for (Watcher* watcher : watchers_) watcher->End();
    for (Watcher* watcher : unknown_) watcher->End();
  }

  void Add(Watcher* watcher, bool known) {
    std::lock_guard lock(mutex_);
    (known ? watchers_ : unknown_).insert(watcher);
    if (known) watcher->Update(status_);
    if (ended_) watcher->End();
  }

  void Remove(Watcher* watcher) {
    std::lock_guard lock(mutex_);
    watchers_.erase(watcher);
    unknown_.erase(watcher);
  }

 private:
  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const health::HealthCheckRequest* request,
                                  health::HealthCheckResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (!IsKnown(request->service())) {
      reactor->Finish({grpc::StatusCode::NOT_FOUND, "service: no service of this name is served here"});
      return reactor;
    }
    {
      std::lock_guard lock(mutex_);
      response->set_status(status_);
    }
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<health::HealthCheckResponse>* Watch(grpc::CallbackServerContext*,
                                                               const health::HealthCheckRequest* request) override {
    const bool known = IsKnown(request->service());
    auto* watcher =
        new Watcher(this, known ? health::HealthCheckResponse::UNKNOWN : health::HealthCheckResponse::SERVICE_UNKNOWN);
    Add(watcher, known);
    return watcher;
  }

  // Taken before a watcher's mutex.
  std::mutex mutex_;
  ServingStatus status_ = health::HealthCheckResponse::NOT_SERVING;
  bool ended_ = false;
  std::unordered_set<Watcher*> watchers_;
  std::unordered_set<Watcher*> unknown_;  // of names we do not serve: told so, then kept open
};

Watcher::Watcher(HealthServiceImpl* owner, ServingStatus status) : owner_(owner), wanted_(status) {
  std::lock_guard lock(mutex_);
  SendLocked();
}

void Watcher::Update(ServingStatus status) {
  std::lock_guard lock(mutex_);
  wanted_ = status;
  SendLocked();
}

void Watcher::End() {
  std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  Finish({grpc::StatusCode::UNAVAILABLE, "the watch has ended"});
}

void Watcher::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  sending_ = false;
  if (ok) SendLocked();
}

void Watcher::OnDone() {
  owner_->Remove(this);
  delete this;
}

void Watcher::SendLocked() {
  if (ended_ || sending_ || wanted_ == sent_) return;
  sent_ = wanted_;
  sending_ = true;
  message_.set_status(sent_);
  StartWrite(&message_);
}

}  // namespace

std::unique_ptr<HealthService> NewHealthService() {
  return std::make_unique<HealthServiceImpl>();
}

}  // namespace moe
