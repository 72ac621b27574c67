#include "server/ranks/rank_call.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <variant>

#include "parallel/base/log.h"
#include "server/ranks/rank_mapping.h"
#include "server/ranks/rank_security.h"
#include "server/status_mapping.h"

namespace moe {
namespace {

// A rank whose stream has ended leaves by itself; its exit code is worth waiting for.
constexpr double kLeaveSeconds = 5;
// For a goodbye to get out, and for gRPC to end a call in order.
constexpr double kGoodbyeSeconds = 1;

std::string SecondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f s", seconds);
  return text;
}

}  // namespace

RankCall::RankCall(RankTransport::LinkId id, RankCallHost* host, const Limits& limits)
    : id_(id), host_(host), limits_(limits) {}

void RankCall::Listen(v1::RankControl::AsyncService* service, grpc::ServerCompletionQueue* queue) {
  std::lock_guard lock(mutex_);
  ++pending_;
  service->RequestJoin(&context_, &stream_, queue, queue, &accept_tag_);
}

void RankCall::Run(void* tag, bool ok) {
  const Tag* done = static_cast<Tag*>(tag);
  const auto keep = done->call->shared_from_this();  // another thread's operation may be the last one
  (done->call->*done->done)(ok);
}

void RankCall::OnAccept(bool ok) {
  After after;
  {
    std::lock_guard lock(mutex_);
    --pending_;
    if (!ok) {  // the server shuts down
      state_ = State::kClosed;
      after.gone = true;
    } else {
      after.accepted = true;
      accepted_at_ = last_sign_ = host_->Now();
      const grpc::Status admitted = host_->Admit(context_, &process_);
      if (!admitted.ok()) {
        state_ = State::kClosed;
        closed_at_ = accepted_at_;
        finish_status_ = admitted;
        finish_wanted_ = true;
        Finish();
      } else {
        state_ = State::kNew;
        context_.AddInitialMetadata(kRankJoinedKey, "1");
        ++pending_;
        writing_ = greeting_ = true;
        stream_.SendInitialMetadata(&write_tag_);
        Read();
      }
    }
  }
  Do(std::move(after));
}

void RankCall::Read() {
  ++pending_;
  stream_.Read(&incoming_, &read_tag_);
}

void RankCall::OnRead(bool ok) {
  After after;
  {
    std::lock_guard lock(mutex_);
    --pending_;
    if (ok && state_ != State::kClosed) {
      last_sign_ = host_->Now();
      Take(incoming_, &after);
      if (state_ != State::kClosed) Read();
    } else if (state_ != State::kClosed) {
      after.end_process = kLeaveSeconds;
      End(absl::UnavailableError("its connection ended"), &after);
    }
    after.gone = pending_ == 0;
  }
  Do(std::move(after));
}

void RankCall::OnWrite(bool ok) {
  After after;
  {
    std::lock_guard lock(mutex_);
    --pending_;
    writing_ = greeting_ = false;
    if (!ok) outbox_.clear();  // the stream is broken: OnRead says so
    if (!outbox_.empty()) {
      Write();
    } else if (finish_wanted_) {
      Finish();
    }
    after.gone = pending_ == 0;
  }
  Do(std::move(after));
}

void RankCall::OnFinish(bool) {
  After after;
  {
    std::lock_guard lock(mutex_);
    --pending_;
    after.gone = pending_ == 0;
  }
  Do(std::move(after));
}

void RankCall::Write() {
  ++pending_;
  writing_ = true;
  stream_.Write(outbox_.front(), &write_tag_);  // serializes at once
  outbox_.pop_front();
}

void RankCall::Take(const v1::RankReportMessage& message, After* after) {
  if (message.has_heartbeat() && state_ == State::kJoined) {
    const uint64_t progress = message.heartbeat().progress();
    if (progress > progress_) host_->AddProgress(progress - progress_);
    progress_ = progress;
    return;
  }
  if (message.has_fragment() && state_ == State::kJoined) {
    auto whole = joiner_.Add(message);
    if (!whole.ok()) {
      Fail(whole.status(), after);
    } else if (whole->has_value()) {
      TakeWhole(**whole, after);
    }
    return;
  }
  TakeWhole(message, after);
}

void RankCall::TakeWhole(const v1::RankReportMessage& message, After* after) {
  auto report = FromProto(message);
  if (!report.ok()) return Fail(report.status(), after);
  if (state_ == State::kNew) return TakeFirst(*std::move(report), after);
  if (std::holds_alternative<RankHello>(*report)) return Fail(InvalidError("rank message: a second hello"), after);
  after->wake = host_->PushEvent({id_, *std::move(report)});
}

void RankCall::TakeFirst(RankReport report, After* after) {
  if (std::holds_alternative<RankHello>(report)) {
    state_ = State::kJoined;
    after->wake = host_->PushEvent({id_, std::move(report)});
    return;
  }
  if (const auto* failed = std::get_if<RankFailed>(&report); failed != nullptr) {
    after->failed = failed->status;
    after->end_process = kLeaveSeconds;
    return End(absl::UnavailableError("it failed"), after);
  }
  Fail(InvalidError("rank message: the first one is no hello"), after);
}

void RankCall::Fail(const Status& why, After* after) {
  after->end_process = 0;
  End(why, after);
}

void RankCall::End(const Status& why, After* after) {
  if (state_ == State::kJoined) {
    after->wake = host_->PushEvent({id_, RankTransport::Closed{std::string(why.message())}});
  }
  state_ = State::kClosed;
  closed_at_ = host_->Now();
  outbox_.clear();
  finish_status_ = ToGrpc(why);
  finish_wanted_ = true;
  Finish();
}

void RankCall::Finish() {
  if (finishing_) return;
  if (writing_) {
    // One thing at a time goes out. A write that does not end by itself ends so.
    if (!said_goodbye_ && !greeting_) context_.TryCancel();
    return;
  }
  finishing_ = true;
  ++pending_;
  stream_.Finish(finish_status_, &finish_tag_);
}

void RankCall::Send(const RankOrder& order) {
  const bool first = std::holds_alternative<AbortStep>(order);
  const bool goodbye = std::holds_alternative<RefuseRank>(order) || std::holds_alternative<StopRank>(order);
  std::deque<v1::RankOrderMessage> pieces;
  Status cut = AppendCut(ToProto(order), &pieces);
  After after;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::kNew && state_ != State::kJoined) return;
    if (!cut.ok()) {
      Fail(cut, &after);
    } else {
      said_goodbye_ = goodbye || (first && said_goodbye_);
      outbox_.insert(first ? outbox_.begin() : outbox_.end(), std::make_move_iterator(pieces.begin()),
                     std::make_move_iterator(pieces.end()));
      if (!writing_) Write();
    }
  }
  Do(std::move(after));
}

void RankCall::Close(const Status& why) {
  After after;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::kNew && state_ != State::kJoined) return;
    state_ = State::kClosed;
    closed_at_ = host_->Now();
    if (!said_goodbye_) outbox_.clear();
    after.end_process = said_goodbye_ ? kLeaveSeconds : 0;
    finish_status_ = ToGrpc(why);
    finish_wanted_ = true;
    Finish();
  }
  Do(std::move(after));
}

void RankCall::Check(double shift) {
  After after;
  {
    std::lock_guard lock(mutex_);
    const double now = host_->Now();
    if (state_ == State::kNew) {
      accepted_at_ += shift;
      if (now - accepted_at_ > limits_.hello_timeout) {
        MOE_LOG(kWarning) << "dropped a rank that did not say hello: " << context_.peer();
        Fail(absl::DeadlineExceededError(Cat("no hello within ", SecondsText(limits_.hello_timeout))), &after);
      }
    } else if (state_ == State::kJoined) {
      last_sign_ = std::min(now, last_sign_ + shift);
      const double silence = now - last_sign_;
      if (silence > limits_.heartbeat_timeout) {
        Fail(absl::DeadlineExceededError(Cat("no sign of life for ", SecondsText(silence))), &after);
      }
    } else if (state_ == State::kClosed && pending_ > 0 && now - closed_at_ > kGoodbyeSeconds) {
      context_.TryCancel();
    }
  }
  Do(std::move(after));
}

void RankCall::Cancel() {
  std::lock_guard lock(mutex_);
  if (state_ != State::kWaiting) context_.TryCancel();
}

void RankCall::Do(After after) {
  const std::string process = process_;  // written before the first event only
  if (after.wake) host_->Wake();
  if (after.failed.has_value()) host_->FailedBeforeHello(process, *after.failed);
  if (after.end_process.has_value() && !process.empty()) host_->EndProcess(process, *after.end_process);
  if (after.accepted) host_->Accepted();
  if (after.gone) host_->Gone(id_);
}

}  // namespace moe
