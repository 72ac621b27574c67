#include "tests/engine/core/thread_cluster.h"

#include <chrono>
#include <cmath>

#include "parallel/base/check.h"

namespace moe {

class ThreadCluster::Port : public RankPort {
 public:
  Port(ThreadCluster* cluster, LinkId link) : cluster_(cluster), link_(link) {}

  void Report(RankReport report) override { cluster_->Report(link_, std::move(report)); }

  Status Run(const std::function<void(RankOrder)>& take) override {
    for (;;) {
      RankOrder order;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closed_ || !orders_.empty(); });
        if (closed_) return absl::UnavailableError("the connection to the front is lost");
        order = std::move(orders_.front());
        orders_.pop_front();
      }
      take(std::move(order));
    }
  }

  void Close() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  void Push(RankOrder order) {
    {
      const std::lock_guard lock(mutex_);
      orders_.push_back(std::move(order));
    }
    changed_.notify_all();
  }

 private:
  ThreadCluster* const cluster_;
  const LinkId link_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RankOrder> orders_;
  bool closed_ = false;
};

struct ThreadCluster::Process {
  std::unique_ptr<Port> port;
  std::unique_ptr<RankNode> node;
  std::thread thread;
  Status outcome;
  bool open = true;  // the front hears it
};

ThreadCluster::ThreadCluster(ModelFactory model, bool sockets) : model_(std::move(model)), sockets_(sockets) {}

ThreadCluster::~ThreadCluster() {
  for (LinkId link : Alive()) Kill(link);
  for (auto& [link, process] : processes_) {
    process->port->Close();
    if (process->thread.joinable()) process->thread.join();
  }
}

ThreadCluster::LinkId ThreadCluster::Start(const RankNodeOptions& options) {
  std::unique_ptr<LoadedModel> model = model_();
  const std::lock_guard lock(mutex_);
  const LinkId link = next_link_++;
  auto process = std::make_unique<Process>();
  process->port = std::make_unique<Port>(this, link);
  process->node = std::make_unique<RankNode>(
      std::move(model), options, [this](const FormGroup& order, RendezvousStore& store) { return Meet(order, store); },
      process->port.get());
  Process* raw = process.get();
  processes_[link] = std::move(process);
  raw->thread = std::thread([this, raw, link] {
    raw->outcome = raw->node->Run();
    Ended(link, "the process has ended");
  });
  return link;
}

void ThreadCluster::Kill(LinkId link) {
  Ended(link, "killed");
  Port* port = nullptr;
  {
    const std::lock_guard lock(mutex_);
    port = processes_.at(link)->port.get();
  }
  port->Close();
}

std::vector<ThreadCluster::LinkId> ThreadCluster::Alive() const {
  const std::lock_guard lock(mutex_);
  std::vector<LinkId> links;
  for (const auto& [link, process] : processes_) {
    if (process->open) links.push_back(link);
  }
  return links;
}

Status ThreadCluster::Outcome(LinkId link) {
  Process* process = nullptr;
  {
    const std::lock_guard lock(mutex_);
    process = processes_.at(link).get();
  }
  process->thread.join();
  return process->outcome;
}

StatusOr<std::unique_ptr<Communicator>> ThreadCluster::Meet(const FormGroup& order, RendezvousStore& store) {
  if (sockets_) {
    return CreateCommunicator(order.transport,
                              {.rank = order.member,
                               .size = order.size,
                               .generation = order.generation,
                               .address = "127.0.0.1",
                               .rendezvous_timeout = std::chrono::seconds(5)},
                              store);
  }
  const std::lock_guard lock(mutex_);
  auto& group = groups_[order.generation];
  if (group.empty()) group = CreateInProcessGroup(order.size, std::chrono::seconds(30));
  MOE_CHECK(group[order.member] != nullptr)
      << "member " << order.member << " of generation " << order.generation << " came twice";
  return std::move(group[order.member]);
}

void ThreadCluster::Report(LinkId link, RankReport report) {
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    if (!processes_.at(link)->open) return;
    events_.push_back({link, std::move(report)});
    wake = wake_;
  }
  changed_.notify_all();
  if (wake) wake();
}

void ThreadCluster::Ended(LinkId link, const std::string& reason) {
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(processes_.at(link)->open, false)) return;
    events_.push_back({link, Closed{reason}});
    wake = wake_;
  }
  changed_.notify_all();
  if (wake) wake();
}

void ThreadCluster::SetWake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

double ThreadCluster::Now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::optional<RankTransport::Event> ThreadCluster::Wait(double until) {
  std::unique_lock lock(mutex_);
  const double seconds = std::min(until - Now(), 3600.0);
  if (seconds > 0) {
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !events_.empty(); });
  }
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void ThreadCluster::Send(LinkId link, RankOrder order) {
  const std::lock_guard lock(mutex_);
  Process& process = *processes_.at(link);
  if (process.open) process.port->Push(std::move(order));
}

void ThreadCluster::Close(LinkId link, const std::string&) {
  Port* port = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Process& process = *processes_.at(link);
    process.open = false;
    std::erase_if(events_, [&](const Event& event) { return event.link == link; });
    port = process.port.get();
  }
  port->Close();
}

}  // namespace moe
