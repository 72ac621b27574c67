// Many clients, slow clients, clients that leave, and too much of everything.
#include <atomic>
#include <thread>

#include "tests/server/server_fixture.h"

namespace moe::testing {
namespace {

const std::string kText = "Tomorrow, and tomorrow, and tomorrow, creeps in this petty pace from day to day ";

class PressureTest : public ServerTest {
 protected:
  static FakeEngineOptions Slow(int milliseconds) {
    FakeEngineOptions options = Says(kText);
    options.step = std::chrono::milliseconds(milliseconds);
    return options;
  }
  bool Idle() {
    return Eventually([&] { return engine_->Unfinished() == 0 && core_->calls().size() == 0; });
  }
};

TEST_F(PressureTest, CancelEndsTheRequestInTheEngine) {
  Start(Slow(2));
  v1::GenerateChunk chunk;
  const auto stream = client_->GenerateStream(TextRequest("x", 100000));
  ASSERT_TRUE(stream->Read(&chunk));
  stream->Cancel();
  EXPECT_EQ(stream->Finish(), kCancelled);
  EXPECT_TRUE(Idle());
  EXPECT_EQ(core_->counters().cancelled(CancelCause::kClient), 1u);
  EXPECT_EQ(engine_->cancelled(), 1u);
}

TEST_F(PressureTest, DeadlineEndsTheRequestInTheEngine) {
  Start(Slow(2));
  v1::GenerateResponse response;
  EXPECT_EQ(client_->Generate(TextRequest("x", 100000), &response, 0.2), kDeadlineExceeded);
  const auto stream = client_->GenerateStream(TextRequest("x", 100000), 0.2);
  EXPECT_EQ(stream->Finish(), kDeadlineExceeded);
  EXPECT_TRUE(Idle());
  EXPECT_EQ(core_->counters().cancelled(CancelCause::kDeadline), 2u);
  EXPECT_EQ(core_->counters().finished(0, kDeadlineExceeded), 1u);
  EXPECT_EQ(core_->counters().finished(1, kDeadlineExceeded), 1u);
}

TEST_F(PressureTest, CancelBeforeTheFirstStep) {
  FakeEngineOptions options = Slow(0);
  options.max_running = 1;
  Start(options);
  engine_->Pause(true);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(client_->GenerateStream(TextRequest("x", 4)));
  ASSERT_TRUE(Eventually([&] { return engine_->Unfinished() == 6; }));
  for (int i = 1; i <= 3; ++i) streams[static_cast<size_t>(i)]->Cancel();
  EXPECT_TRUE(Eventually([&] { return engine_->Unfinished() == 3; }));
  engine_->Pause(false);
  for (size_t i = 0; i < streams.size(); ++i) EXPECT_EQ(streams[i]->Finish(), i >= 1 && i <= 3 ? kCancelled : kOk);
  EXPECT_TRUE(Idle());
}

TEST_F(PressureTest, ClientsThatVanishAreCancelled) {
  Start(Slow(2));
  for (int i = 0; i < 20; ++i) {
    Client client(server_->address());
    v1::GenerateChunk chunk;
    auto stream = client.GenerateStream(TextRequest("x", 100000));
    ASSERT_TRUE(stream->Read(&chunk));
  }
  EXPECT_TRUE(Idle());
  EXPECT_EQ(core_->counters().cancelled(CancelCause::kClient), 20u);
}

TEST_F(PressureTest, FullQueueIsRefusedAtOnce) {
  FakeEngineOptions options = Slow(0);
  options.max_running = 2;
  options.max_queue = 3;
  Start(options);
  engine_->Pause(true);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 5; ++i) streams.push_back(client_->GenerateStream(TextRequest("x", 4)));
  ASSERT_TRUE(Eventually([&] { return engine_->Unfinished() == 5; }));
  v1::GenerateResponse response;
  EXPECT_EQ(client_->Generate(TextRequest("x", 4), &response), kResourceExhausted);
  EXPECT_EQ(core_->counters().rejected(RejectReason::kQueueFull), 1u);
  engine_->Pause(false);
  for (auto& stream : streams) EXPECT_EQ(stream->Finish(), kOk);
}

TEST_F(PressureTest, OversizeMessages) {
  ServerOptions options;
  options.max_message_bytes = 64 << 10;
  Start(Says(kText), options);
  v1::GenerateResponse response;
  const RpcStatus status = client_->Generate(TextRequest(std::string(100 << 10, 'x')), &response);
  EXPECT_EQ(status, kResourceExhausted);
  EXPECT_NE(status.message.find("65536"), std::string::npos) << "both sizes: " << status;
  EXPECT_EQ(client_->Generate(TextRequest("x"), &response), kOk);
}

TEST_F(PressureTest, ConcurrentStreamsAreAllWhole) {
  Start(Slow(1));
  v1::GenerateResponse alone;
  ASSERT_EQ(client_->Generate(TextRequest("x", 50), &alone), kOk);
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&] {
      const auto stream = client_->GenerateStream(TextRequest("x", 50));
      std::string text;
      int ends = 0;
      v1::GenerateChunk chunk;
      while (stream->Read(&chunk)) {
        text += chunk.delta().text();
        ends += chunk.delta().finish_reason() == v1::FINISH_REASON_LENGTH ? 1 : 0;
      }
      if (stream->Finish() == kOk && text == alone.choices(0).text() && ends == 1) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 32);
}

// A client that reads nothing for a while gets the rest merged, whole.
TEST_F(PressureTest, SlowReaderGetsMergedMessages) {
  FakeEngineOptions options = Says(kText);
  options.max_model_len = 20000;
  Start(options);
  Client slow(server_->address(), /*small_window=*/true);
  const auto stream = slow.GenerateStream(TextRequest("x", 5000));
  ASSERT_TRUE(Eventually([&] { return core_->calls().size() == 1; }));
  ASSERT_TRUE(Eventually([&] { return engine_->Unfinished() == 0; })) << "the engine does not wait for the client";
  int messages = 0;
  int tokens = 0;
  std::string text;
  v1::GenerateChunk chunk;
  while (stream->Read(&chunk)) {
    ++messages;
    tokens += chunk.delta().token_ids_size();
    text += chunk.delta().text();
  }
  EXPECT_EQ(stream->Finish(), kOk);
  EXPECT_EQ(tokens, 5000);
  EXPECT_LT(messages, 4000);
  EXPECT_EQ(text.substr(0, kText.size()), kText);
}

// More waits than a client may leave unread for long, but it comes back in time: it misses nothing.
TEST_F(PressureTest, PauseOfAClientWithALargeBacklogIsNoFault) {
  FakeEngineOptions options = Says(kText);
  options.max_model_len = 20000;
  ServerOptions server;
  server.stream.max_backlog_bytes = 4 << 10;
  Start(options, server);
  Client slow(server_->address(), /*small_window=*/true);
  v1::GenerateRequest request = TextRequest("x", 5000);
  request.mutable_output()->set_logprobs(20);  // a few hundred bytes a token
  const auto stream = slow.GenerateStream(request, 60);
  ASSERT_TRUE(Eventually([&] { return core_->calls().size() == 1 && engine_->Unfinished() == 0; }));
  EXPECT_TRUE(Eventually([&] { return core_->stream_backlog() > 100 * server.stream.max_backlog_bytes; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // several looks at stalled clients
  int tokens = 0;
  v1::GenerateChunk chunk;
  while (stream->Read(&chunk)) tokens += chunk.delta().token_ids_size();
  EXPECT_EQ(stream->Finish(), kOk);
  EXPECT_EQ(tokens, 5000);
  EXPECT_TRUE(Idle());
  EXPECT_EQ(core_->stream_backlog(), 0);
}

class BacklogTest : public PressureTest {
 protected:
  // A stream that is made for ever and not read.
  std::unique_ptr<Stream> OpenUnread(Client* slow) {
    v1::GenerateRequest request = TextRequest("x", 500000);
    request.mutable_output()->set_logprobs(20);
    return slow->GenerateStream(request, 60);
  }
  static FakeEngineOptions Endless() {
    FakeEngineOptions options = Says(kText);
    options.max_model_len = 1 << 20;
    options.step = std::chrono::microseconds(50);
    return options;
  }
  bool Cut(uint64_t streams) {
    return Eventually([&] { return core_->counters().cancelled(CancelCause::kSlowReader) == streams; });
  }
};

TEST_F(BacklogTest, ClientThatTakesNothingIsCutOnceMuchWaits) {
  ServerOptions server;
  server.stream.max_backlog_bytes = 64 << 10;
  server.stream.backlog_seconds = 0.3;
  server.stream.hard_backlog_bytes = server.stream.total_backlog_bytes = int64_t{1} << 30;
  Start(Endless(), server);
  Client slow(server_->address(), /*small_window=*/true);
  const auto stream = OpenUnread(&slow);
  EXPECT_TRUE(Cut(1));
  EXPECT_TRUE(Eventually([&] { return engine_->Unfinished() == 0; }));
  EXPECT_EQ(stream->Finish(), kResourceExhausted) << "who reads on in time learns why";
  EXPECT_TRUE(Idle());
  EXPECT_EQ(core_->stream_backlog(), 0);
}

TEST_F(BacklogTest, OfOneStreamIsBounded) {
  ServerOptions server;
  server.stream.max_backlog_bytes = 64 << 10;
  server.stream.hard_backlog_bytes = 256 << 10;
  Start(Endless(), server);
  Client slow(server_->address(), /*small_window=*/true);
  const auto stream = OpenUnread(&slow);
  EXPECT_TRUE(Cut(1)) << "at once, long before backlog_seconds";
  EXPECT_TRUE(Eventually([&] { return engine_->Unfinished() == 0; }));
  EXPECT_EQ(stream->Finish(), kResourceExhausted);
  EXPECT_TRUE(Idle());
}

TEST_F(BacklogTest, OfAllStreamsIsBounded) {
  ServerOptions server;
  server.stream.max_backlog_bytes = 16 << 10;
  server.stream.total_backlog_bytes = 512 << 10;
  Start(Endless(), server);
  Client slow(server_->address(), /*small_window=*/true);
  v1::GenerateRequest small = TextRequest("x", 4);
  const auto modest = slow.GenerateStream(small, 60);
  ASSERT_TRUE(Eventually([&] { return core_->calls().size() == 1 && engine_->Unfinished() == 0; }));
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(OpenUnread(&slow));
  EXPECT_TRUE(Eventually([&] { return core_->counters().cancelled(CancelCause::kSlowReader) >= 7; }));
  v1::GenerateChunk chunk;
  int tokens = 0;
  while (modest->Read(&chunk)) tokens += chunk.delta().token_ids_size();
  EXPECT_EQ(modest->Finish(), kOk) << "who has little waiting is not the one to go";
  EXPECT_EQ(tokens, 4);
  EXPECT_LE(core_->stream_backlog(), (512 + 8 * 32) << 10);
  for (auto& stream : streams) stream->Cancel();
  EXPECT_TRUE(Idle());
  EXPECT_EQ(core_->stream_backlog(), 0);
}

TEST_F(PressureTest, StalledStreamIsDroppedAfterAWhile) {
  FakeEngineOptions options = Says(kText);
  options.max_model_len = 1 << 20;
  ServerOptions server;
  server.stream.max_backlog_bytes = server.stream.hard_backlog_bytes = int64_t{1} << 30;
  server.stream.total_backlog_bytes = int64_t{1} << 30;
  server.stream.stall_seconds = 0.3;
  Start(options, server);
  Client slow(server_->address(), /*small_window=*/true);
  v1::GenerateRequest request = TextRequest("x", 500000);
  request.mutable_output()->set_logprobs(20);
  const auto stream = slow.GenerateStream(request, 60);
  EXPECT_TRUE(Eventually([&] { return core_->counters().cancelled(CancelCause::kSlowReader) == 1; }));
  EXPECT_TRUE(Eventually([&] { return engine_->Unfinished() == 0; }));
  EXPECT_TRUE(Idle()) << "a client that never reads does not keep the call open";
}

TEST_F(PressureTest, CancelStormLeavesNothingBehind) {
  Start(Slow(0));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const auto stream = client_->GenerateStream(TextRequest("x", static_cast<uint32_t>(1 + (i * 7 + t) % 60)));
        v1::GenerateChunk chunk;
        for (int reads = (i + t) % 4; reads > 0 && stream->Read(&chunk); --reads) {
        }
        stream->Cancel();
        stream->Finish();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Idle());
  uint64_t ended = 0;
  for (size_t code = 0; code < kNumStatusCodes; ++code) ended += core_->counters().finished(1, code);
  EXPECT_LE(ended, 160u) << "a call ends once";
  v1::GenerateResponse response;
  EXPECT_EQ(client_->Generate(TextRequest("x", 4), &response), kOk);
}

}  // namespace
}  // namespace moe::testing
