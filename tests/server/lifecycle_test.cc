// The server's states: loading, serving, unhealthy, draining; health, watches, operations.
#include <thread>

#include "tests/server/server_fixture.h"

namespace moe::testing {
namespace {

const std::string kText = "To be, or not to be, that is the question: ";

class LifecycleTest : public ServerTest {
 protected:
  int Health(const std::string& service) {
    int status = 0;
    EXPECT_EQ(client_->CheckHealth(service, &status), kOk);
    return status;
  }
};

TEST_F(LifecycleTest, LoadingAnswersUnavailable) {
  Start({}, {}, /*load=*/false);
  core_->host().SetProgress({"packing weights", 0.42});
  for (const char* service : {"", "moe.v1.Inference", "moe.v1.Operations"}) {
    EXPECT_EQ(Health(service), kHealthNotServing) << service;
  }
  v1::GenerateResponse response;
  const RpcStatus status = client_->Generate(TextRequest("x"), &response);
  EXPECT_EQ(status, kUnavailable);
  EXPECT_NE(status.message.find("loading (packing weights, 42 %)"), std::string::npos) << status;
  v1::ModelInfo info;
  EXPECT_EQ(client_->GetModel("", &info), kUnavailable);
  v1::Load load;
  EXPECT_EQ(client_->GetLoad(&load), kUnavailable);
  EXPECT_EQ(core_->counters().rejected(RejectReason::kLoading), 1u);

  const auto watch = client_->WatchHealth("moe.v1.Inference");
  EXPECT_EQ(watch->Next(), kHealthNotServing);
  Load(Says(kText));
  EXPECT_EQ(watch->Next(), kHealthServing);
  EXPECT_EQ(Health(""), kHealthServing);
  EXPECT_EQ(client_->Generate(TextRequest("x"), &response), kOk);
}

TEST_F(LifecycleTest, UnknownHealthNames) {
  Start(Says(kText));
  int status = 0;
  EXPECT_EQ(client_->CheckHealth("no.such.Service", &status), kNotFound);
  EXPECT_EQ(client_->WatchHealth("no.such.Service")->Next(), kHealthServiceUnknown);
}

TEST_F(LifecycleTest, StuckEngineIsNotServing) {
  Start(Says(kText));
  const auto watch = client_->WatchHealth("");
  EXPECT_EQ(watch->Next(), kHealthServing);
  engine_->SetHealth(absl::UnavailableError("no step has ended for 10 s"));
  EXPECT_EQ(watch->Next(), kHealthNotServing);
  v1::GenerateResponse response;
  EXPECT_EQ(client_->Generate(TextRequest("x"), &response), kUnavailable);
  engine_->SetHealth(Status());
  EXPECT_EQ(watch->Next(), kHealthServing);
  EXPECT_EQ(client_->Generate(TextRequest("x"), &response), kOk);
}

TEST_F(LifecycleTest, WatchesEndWithTheServer) {
  Start(Says(kText));
  const auto watch = client_->WatchHealth("");
  const auto unknown = client_->WatchHealth("x");
  EXPECT_EQ(watch->Next(), kHealthServing);
  EXPECT_EQ(unknown->Next(), kHealthServiceUnknown);
  const auto start = std::chrono::steady_clock::now();
  server_->Shutdown(10);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(watch->Next(), -1);
}

TEST_F(LifecycleTest, DrainLetsRunningRequestsFinish) {
  FakeEngineOptions options = Says(kText);
  options.step = std::chrono::milliseconds(5);
  Start(options);
  const auto watch = client_->WatchHealth("");
  EXPECT_EQ(watch->Next(), kHealthServing);
  const auto stream = client_->GenerateStream(TextRequest("x", 40));
  v1::GenerateChunk chunk;
  ASSERT_TRUE(stream->Read(&chunk));
  v1::DrainResponse drained;
  RpcStatus drain_status;
  std::thread drain([&] { drain_status = client_->Drain(0, &drained); });
  EXPECT_EQ(watch->Next(), kHealthNotServing);
  v1::GenerateResponse refused;
  EXPECT_EQ(client_->Generate(TextRequest("x"), &refused), kUnavailable);
  uint32_t generated = 0;
  while (stream->Read(&chunk)) generated = chunk.usage().generated_tokens();
  EXPECT_EQ(stream->Finish(), kOk);
  EXPECT_EQ(generated, 40u);
  drain.join();
  EXPECT_EQ(drain_status, kOk);
  EXPECT_EQ(drained.finished(), 1u);
  EXPECT_EQ(drained.cancelled(), 0u);
  v1::ModelInfo info;
  EXPECT_EQ(client_->GetModel("", &info), kOk) << "the process stays up";
  EXPECT_EQ(client_->Drain(0, &drained), kOk) << "a second drain is done at once";
}

TEST_F(LifecycleTest, DrainDeadlineEndsTheRest) {
  FakeEngineOptions options = Says(kText);
  options.step = std::chrono::milliseconds(20);
  Start(options);
  const auto stream = client_->GenerateStream(TextRequest("x", 100000));
  v1::GenerateChunk chunk;
  ASSERT_TRUE(stream->Read(&chunk));
  v1::DrainResponse drained;
  RpcStatus drain_status;
  std::thread drain([&] { drain_status = client_->Drain(0.1, &drained); });
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  while (stream->Read(&chunk)) finish = chunk.delta().finish_reason();
  EXPECT_EQ(stream->Finish(), kOk);
  EXPECT_EQ(finish, v1::FINISH_REASON_CANCELLED);
  drain.join();
  EXPECT_EQ(drain_status, kOk);
  EXPECT_EQ(drained.cancelled(), 1u);
  EXPECT_EQ(drained.finished(), 0u);
  EXPECT_EQ(client_->Drain(-1, &drained), kInvalidArgument);
}

TEST_F(LifecycleTest, AbortEndsWithOkAndCancelled) {
  FakeEngineOptions options = Says(kText);
  options.step = std::chrono::milliseconds(2);
  Start(options);
  v1::GenerateRequest request = TextRequest("x", 100000);
  request.set_request_id("job-1");
  const auto stream = client_->GenerateStream(request);
  v1::GenerateChunk chunk;
  ASSERT_TRUE(stream->Read(&chunk));
  v1::AbortResponse aborted;
  ASSERT_EQ(client_->Abort({"job-1", "no such id"}, &aborted), kOk);
  EXPECT_EQ(aborted.aborted(), 1u);
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  while (stream->Read(&chunk)) finish = chunk.delta().finish_reason();
  EXPECT_EQ(stream->Finish(), kOk);
  EXPECT_EQ(finish, v1::FINISH_REASON_CANCELLED);
  EXPECT_GT(chunk.usage().generated_tokens(), 0u);
  EXPECT_EQ(core_->counters().cancelled(CancelCause::kAbort), 1u);
  ASSERT_EQ(client_->Abort({"job-1"}, &aborted), kOk);
  EXPECT_EQ(aborted.aborted(), 0u);
}

TEST_F(LifecycleTest, OtherOperations) {
  Start(Says(kText));
  v1::Load load;
  ASSERT_EQ(client_->GetLoad(&load), kOk);
  ASSERT_EQ(load.ranks_size(), 1);
  EXPECT_EQ(load.ranks(0).max_kv_tokens(), 1600u);
  v1::FlushPrefixCacheResponse flushed;
  ASSERT_EQ(client_->FlushPrefixCache(&flushed), kOk);
  EXPECT_EQ(flushed.freed_blocks(), 7u);
  engine_->AddExpertTokens(engine_->model().spec.MoeLayers().front(), 3, 64);
  v1::ExpertPlacement placement;
  ASSERT_EQ(client_->GetExpertPlacement(&placement), kOk);
  ASSERT_EQ(placement.layers_size(), static_cast<int>(engine_->model().spec.MoeLayers().size()));
  ASSERT_EQ(placement.layers(0).experts_size(), 32);
  EXPECT_EQ(placement.layers(0).experts(3).tokens(), 64u);
  EXPECT_EQ(placement.layers(0).experts(3).ranks(0), 0u);
  EXPECT_EQ(placement.layers(0).imbalance(), 1.0);
  EXPECT_EQ(client_->Rebalance(), kUnimplemented);
}

TEST(GrpcServerTest, ATakenPortIsAnError) {
  ServerCore core("m", {});
  auto first = GrpcServer::Start(&core, {});
  ASSERT_TRUE(first.ok()) << first.status().message();
  ServerCore other("m", {});
  GrpcServerOptions options;
  options.port = (*first)->port();
  const auto second = GrpcServer::Start(&other, options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find("in use"), std::string::npos);
  options.host = "203.0.113.1";  // a documentation address, never ours
  EXPECT_EQ(GrpcServer::Start(&other, options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moe::testing
