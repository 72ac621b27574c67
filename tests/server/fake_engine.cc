#include "tests/server/fake_engine.h"

#include <algorithm>
#include <array>
#include <utility>

namespace moe::testing {
namespace {

constexpr std::array<double, 4> kSecondBounds = {0.001, 0.01, 0.1, 1};
constexpr std::array<double, 3> kCountBounds = {1, 8, 64};

}  // namespace

FakeEngine::FakeEngine(std::unique_ptr<LoadedModel> model, FakeEngineOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  info_.backend = "fake";
  info_.weight_dtype = "bfloat16";
  info_.act_dtype = "float32";
  info_.max_model_len = options_.max_model_len;
  info_.kv_blocks = 100;
  info_.kv_block_tokens = 16;
  info_.load_seconds = 0.25;
  stats_.kv_blocks_total = 100;
  for (Histogram* h : {&stats_.queue_seconds, &stats_.time_to_first_token_seconds, &stats_.inter_token_seconds,
                       &stats_.request_seconds, &stats_.step_seconds}) {
    *h = Histogram(kSecondBounds);
  }
  for (Histogram* h :
       {&stats_.prompt_tokens, &stats_.generated_tokens_per_request, &stats_.step_tokens, &stats_.step_sequences}) {
    *h = Histogram(kCountBounds);
  }
  for (int64_t layer : model_->spec.MoeLayers()) {
    stats_.moe_layers.push_back({layer, std::vector<uint64_t>(static_cast<size_t>(model_->spec.MaxExperts())), {0.0}});
  }
  thread_ = std::thread([this] { Loop(); });
}

FakeEngine::~FakeEngine() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  for (auto& [handle, running] : requests_) running->sink->OnDone(absl::CancelledError("engine destroyed"), {});
}

StatusOr<uint64_t> FakeEngine::Submit(Request request, std::shared_ptr<ResponseSink> sink) {
  if (!accepting_) return absl::UnavailableError("the engine is draining");
  std::lock_guard lock(mutex_);
  if (static_cast<int64_t>(requests_.size()) >= options_.max_running + options_.max_queue) {
    ++stats_.requests_rejected_queue_full;
    return absl::ResourceExhaustedError("the queue is full");
  }
  auto running = std::make_shared<Running>();
  for (uint32_t c = 0; c < request.num_choices; ++c) running->choices.push_back({options_.script(request, c)});
  submitted_.push_back(request);
  const int64_t left = options_.max_model_len - static_cast<int64_t>(request.prompt.size());
  request.max_new_tokens = std::min(request.max_new_tokens, left);
  running->request = std::move(request);
  running->sink = std::move(sink);
  running->arrived = std::chrono::steady_clock::now();
  const uint64_t handle = next_handle_++;
  requests_.emplace(handle, std::move(running));
  wake_.notify_all();
  return handle;
}

void FakeEngine::Mark(uint64_t handle, Wish wish) {
  std::lock_guard lock(mutex_);
  const auto it = requests_.find(handle);
  if (it == requests_.end()) return;
  it->second->wish = wish;
  wake_.notify_all();
}

void FakeEngine::StopChoice(uint64_t handle, uint32_t choice) {
  std::lock_guard lock(mutex_);
  const auto it = requests_.find(handle);
  if (it == requests_.end()) return;
  it->second->choices.at(choice).stopped = true;
  wake_.notify_all();
}

int64_t FakeEngine::Unfinished() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(requests_.size());
}

void FakeEngine::AbortAll() {
  std::lock_guard lock(mutex_);
  for (auto& [handle, running] : requests_) running->wish = Wish::kAbort;
  wake_.notify_all();
}

EngineStats FakeEngine::Stats() const {
  std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.running = std::min<int64_t>(options_.max_running, static_cast<int64_t>(requests_.size()));
  stats.waiting = static_cast<int64_t>(requests_.size()) - stats.running;
  stats.kv_blocks_used = stats.running;
  return stats;
}

Status FakeEngine::Health(double) const {
  std::lock_guard lock(mutex_);
  return health_;
}

void FakeEngine::Pause(bool paused) {
  std::lock_guard lock(mutex_);
  paused_ = paused;
  wake_.notify_all();
}

void FakeEngine::SetHealth(const Status& status) {
  std::lock_guard lock(mutex_);
  health_ = status;
}

void FakeEngine::AddExpertTokens(int64_t layer, size_t expert, uint64_t tokens) {
  std::lock_guard lock(mutex_);
  for (MoeLayerStats& stats : stats_.moe_layers) {
    if (stats.layer != layer) continue;
    stats.tokens_per_expert.at(expert) += tokens;
    stats.tokens_per_rank.at(0) += static_cast<double>(tokens);
  }
}

std::vector<Request> FakeEngine::submitted() const {
  std::lock_guard lock(mutex_);
  return submitted_;
}

void FakeEngine::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::vector<std::pair<uint64_t, std::shared_ptr<Running>>> step;
    int64_t slots = options_.max_running;
    for (auto& [handle, running] : requests_) {  // in the order of arrival
      const bool may_run = slots-- > 0 && !paused_;
      if (may_run || running->wish != Wish::kNone) step.emplace_back(handle, running);
    }
    if (step.empty()) {
      wake_.wait(lock);
      continue;
    }
    ++stats_.steps;
    std::vector<std::pair<Wish, std::vector<bool>>> asked;
    for (auto& [handle, running] : step) {
      std::vector<bool> stopped;
      for (const Choice& choice : running->choices) stopped.push_back(choice.stopped);
      asked.emplace_back(running->wish, std::move(stopped));
    }
    lock.unlock();
    std::vector<uint64_t> over;
    for (size_t i = 0; i < step.size(); ++i) {
      if (Step(step[i].second.get(), asked[i].first, asked[i].second)) over.push_back(step[i].first);
    }
    if (options_.step.count() > 0) std::this_thread::sleep_for(options_.step);
    lock.lock();
    for (uint64_t handle : over) requests_.erase(handle);
  }
}

OutputChunk FakeEngine::NextToken(Running* running, uint32_t index) {
  const Request& request = running->request;
  Choice& choice = running->choices[index];
  OutputChunk chunk;
  chunk.choice = index;
  TokenInfo token;
  token.id = choice.script[static_cast<size_t>(choice.made) % choice.script.size()];
  if (request.logprobs.has_value()) {
    token.logprob = -0.5f;
    token.rank = 1;
    const int count = *request.logprobs < 0 ? static_cast<int>(model_->spec.vocab_size) : *request.logprobs;
    for (int i = 0; i < count; ++i) token.top.push_back({i, -static_cast<float>(i)});
  }
  if (request.routed_experts) {
    const auto row = static_cast<size_t>(model_->spec.MaxTopK()) * model_->spec.MoeLayers().size();
    chunk.expert_rows = choice.made == 0 ? static_cast<uint32_t>(request.prompt.size()) : 1;
    chunk.expert_ids.assign(chunk.expert_rows * row, static_cast<int32_t>(choice.made));
  }
  if (request.prompt_logprobs.has_value() && index == 0 && choice.made == 0) {
    for (size_t i = 0; i < request.prompt.size(); ++i) {
      TokenInfo info;
      if (i > 0) info = {request.prompt[i], -1.5f, 2, {{3, -0.25f}}};
      chunk.prompt_tokens.push_back(info);
    }
  }
  ++choice.made;
  const auto is = [&](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token.id) != ids.end();
  };
  if (choice.made > request.min_new_tokens && is(request.eos_token_ids)) {
    chunk.finish = FinishReason::kEos;
  } else if (is(request.stop_token_ids)) {
    chunk.finish = FinishReason::kStop;
  } else if (choice.made >= request.max_new_tokens) {
    chunk.finish = FinishReason::kLength;
  }
  chunk.tokens.push_back(std::move(token));
  return chunk;
}

bool FakeEngine::Step(Running* running, Wish wish, const std::vector<bool>& stopped) {
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - running->arrived;
  RequestTimes times;
  times.queue_seconds = 0.001;
  times.time_to_first_token_seconds = 0.002;
  times.total_seconds = age.count();
  if (wish == Wish::kCancel) {
    ++cancelled_;
    running->sink->OnDone(absl::CancelledError("cancelled"), times);
    return true;
  }
  bool all_finished = true;
  for (uint32_t c = 0; c < running->choices.size(); ++c) {
    Choice& choice = running->choices[c];
    if (choice.finished) continue;
    OutputChunk chunk;
    chunk.choice = c;
    if (wish == Wish::kAbort) {
      chunk.finish = FinishReason::kCancelled;
    } else if (stopped[c]) {
      chunk.finish = FinishReason::kStop;
    } else {
      chunk = NextToken(running, c);
      std::lock_guard lock(mutex_);
      ++stats_.generated_tokens;
    }
    choice.finished = chunk.finish != FinishReason::kNone;
    all_finished = all_finished && choice.finished;
    running->sink->OnOutput(std::move(chunk));
  }
  if (all_finished) running->sink->OnDone(Status(), times);
  return all_finished;
}

}  // namespace moe::testing
