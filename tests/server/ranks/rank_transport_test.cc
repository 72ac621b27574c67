// GrpcRankTransport against GrpcRankPort, and against peers that do not behave, on loopback.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "moe/v1/worker.grpc.pb.h"
#include "server/listen_address.h"
#include "server/ranks/rank_client.h"
#include "server/ranks/rank_events.h"
#include "server/ranks/rank_fragments.h"
#include "server/ranks/rank_mapping.h"
#include "server/ranks/rank_service.h"
#include "server/ranks/stall_meter.h"

namespace moe {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<GrpcRankTransport> Front(const RankServiceOptions& options = {}) {
  auto front = GrpcRankTransport::Start(options);
  EXPECT_TRUE(front.ok()) << front.status();
  return *std::move(front);
}

RankClientOptions ClientOf(const GrpcRankTransport& front) {
  RankClientOptions options;
  options.target = front.address();
  options.join_timeout_seconds = 20;
  return options;
}

// A rank that says hello and keeps what it is told.
class FakeRank {
 public:
  explicit FakeRank(const RankClientOptions& options) {
    auto port = GrpcRankPort::Connect(options);
    EXPECT_TRUE(port.ok()) << port.status();
    if (!port.ok()) return;
    port_ = *std::move(port);
    port_->SetProgress([this] { return progress_.load(); });
    thread_ = std::thread([this] {
      outcome_ = port_->Run([this](RankOrder order) {
        std::lock_guard lock(mutex_);
        orders_.push_back(std::move(order));
      });
      over_ = true;
    });
    port_->Report(RankHello{"build", "checkpoint", "host", {"cpu"}});
  }
  ~FakeRank() {
    if (port_ == nullptr) return;
    port_->Close();
    thread_.join();
  }

  GrpcRankPort& port() { return *port_; }
  void SetProgress(uint64_t progress) { progress_ = progress; }
  size_t NumOrders() {
    std::lock_guard lock(mutex_);
    return orders_.size();
  }
  std::vector<RankOrder> orders() {
    std::lock_guard lock(mutex_);
    return orders_;
  }
  bool over() const { return over_; }
  Status outcome() const { return outcome_; }  // once over

 private:
  std::unique_ptr<GrpcRankPort> port_;
  std::atomic<uint64_t> progress_{0};
  std::mutex mutex_;
  std::vector<RankOrder> orders_;  // guarded by mutex_
  std::atomic<bool> over_{false};
  Status outcome_;
  std::thread thread_;
};

// A peer below GrpcRankPort: reads and writes only what a test says.
class RawRank {
 public:
  explicit RawRank(const GrpcRankTransport& front, const std::string& secret = "") {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(front.address(), grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::RankControl::NewStub(channel_);
    if (!secret.empty()) context_.AddMetadata(kRankSecretKey, secret);
    stream_ = stub_->Join(&context_);
  }
  ~RawRank() {
    if (!finished_) {
      Cancel();
      Finish();
    }
  }

  void Report(const RankReport& report) { stream_->Write(ToProto(report)); }
  void Hello() { Report(RankHello{"build", "checkpoint", "host", {"cpu"}}); }
  bool Heartbeat() {
    v1::RankReportMessage beat;
    beat.mutable_heartbeat()->set_progress(1);
    return stream_->Write(beat);
  }
  bool Read(v1::RankOrderMessage* order) { return stream_->Read(order); }
  grpc::Status Finish() {
    v1::RankOrderMessage ignored;
    while (stream_->Read(&ignored)) {
    }
    finished_ = true;
    return stream_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::RankControl::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::RankReportMessage, v1::RankOrderMessage>> stream_;
  bool finished_ = false;
};

std::optional<RankTransport::Event> Next(RankTransport& front, double seconds = 20) {
  return front.Wait(front.Now() + seconds);
}

// The link of the next rank.
RankTransport::LinkId AwaitHello(RankTransport& front) {
  const auto event = Next(front);
  if (!event.has_value()) {
    ADD_FAILURE() << "no hello";
    return 0;
  }
  const auto* report = std::get_if<RankReport>(&event->what);
  EXPECT_TRUE(report != nullptr && std::holds_alternative<RankHello>(*report));
  return event->link;
}

template <typename Fn>
bool Eventually(Fn fn, double seconds = 20) {
  const double until = SteadySeconds() + seconds;
  while (!fn()) {
    if (SteadySeconds() > until) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

TEST(RankTransport, KeepsOrderBothWays) {
  const auto front = Front();
  FakeRank rank(ClientOf(*front));
  const auto link = AwaitHello(*front);
  constexpr uint64_t kCount = 500;
  const std::string large(3 * kFragmentBytes, 'v');
  for (uint64_t i = 0; i < kCount; ++i) {
    rank.port().Report(StoreEntry{i, "up", i % 100 == 7 ? large : "small"});
    front->Send(link, StoreEntry{i, "down", i % 100 == 9 ? large : "small"});
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    const auto event = Next(*front);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->link, link);
    const auto& entry = std::get<StoreEntry>(std::get<RankReport>(event->what));
    ASSERT_EQ(entry.generation, i);
    ASSERT_EQ(entry.value.size(), i % 100 == 7 ? large.size() : 5);
  }
  ASSERT_TRUE(Eventually([&] { return rank.NumOrders() == kCount; }));
  const auto orders = rank.orders();
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(std::get<StoreEntry>(orders[i]).generation, i);
    ASSERT_EQ(std::get<StoreEntry>(orders[i]).value.size(), i % 100 == 9 ? large.size() : 5);
  }
}

TEST(RankTransport, WaitReturnsAtItsTime) {
  const auto front = Front();
  EXPECT_FALSE(front->Wait(0).has_value());
  const double begin = front->Now();
  EXPECT_FALSE(front->Wait(begin + 0.2).has_value());
  EXPECT_GE(front->Now() - begin, 0.2);
}

TEST(RankTransport, WakesWhenNobodyWaits) {
  const auto front = Front();
  std::atomic<int> wakes{0};
  front->SetWake([&] { ++wakes; });
  FakeRank rank(ClientOf(*front));
  EXPECT_TRUE(Eventually([&] { return wakes == 1; }));
  EXPECT_TRUE(front->Wait(0).has_value());
  rank.port().Report(RankProgress{0.5});
  EXPECT_TRUE(Eventually([&] { return wakes == 2; }));
}

TEST(RankTransport, NothingComesAfterClose) {
  const auto front = Front();
  FakeRank rank(ClientOf(*front));
  const auto link = AwaitHello(*front);
  std::atomic<bool> stop{false};
  std::thread chatter([&] {
    while (!stop) {
      rank.port().Report(RankProgress{0.5});
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  ASSERT_TRUE(Next(*front).has_value());
  front->Close(link, "fenced for a test");
  EXPECT_FALSE(front->Wait(front->Now() + 0.3).has_value());
  EXPECT_TRUE(Eventually([&] { return rank.over(); }, 2));
  stop = true;
  chatter.join();
  EXPECT_FALSE(rank.outcome().ok());
  front->Send(link, StopRank{"nobody hears this"});
  front->Close(link, "again");
  EXPECT_FALSE(front->Wait(front->Now() + 0.1).has_value());
}

TEST(RankTransport, TheRankHearsWhyAndGoodbyesArrive) {
  const auto front = Front();
  {
    FakeRank rank(ClientOf(*front));
    front->Close(AwaitHello(*front), "because");
    ASSERT_TRUE(Eventually([&] { return rank.over(); }));
    EXPECT_NE(rank.outcome().message().find("because"), std::string::npos) << rank.outcome();
  }
  {
    FakeRank rank(ClientOf(*front));
    const auto link = AwaitHello(*front);
    front->Send(link, StoreEntry{1, "k", std::string(4 << 20, 'x')});
    front->Send(link, StopRank{"over"});
    front->Close(link, "stopped");
    ASSERT_TRUE(Eventually([&] { return rank.over(); }));
    EXPECT_TRUE(rank.outcome().ok()) << rank.outcome();
    EXPECT_TRUE(std::holds_alternative<StopRank>(rank.orders().back()));
  }
}

TEST(RankTransport, ReportsBeforeCloseArrive) {
  const auto front = Front();
  FakeRank rank(ClientOf(*front));
  const auto link = AwaitHello(*front);
  rank.port().Report(RankFailed{absl::DataLossError("it is broken")});
  rank.port().Close();
  auto event = Next(*front);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(std::get<RankFailed>(std::get<RankReport>(event->what)).status, absl::DataLossError("it is broken"));
  event = Next(*front, 2);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->link, link);
  EXPECT_TRUE(std::holds_alternative<RankTransport::Closed>(event->what));
  EXPECT_TRUE(Eventually([&] { return rank.over(); }, 2));
}

TEST(RankTransport, AnEndIsSeenAtOnce) {
  const auto front = Front();
  RawRank rank(*front);
  rank.Hello();
  const auto link = AwaitHello(*front);
  const double begin = front->Now();
  rank.Cancel();
  const auto event = Next(*front);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->link, link);
  EXPECT_TRUE(std::holds_alternative<RankTransport::Closed>(event->what));
  EXPECT_LT(front->Now() - begin, 0.3);
}

TEST(RankTransport, SilenceIsDeath) {
  const auto front = Front();
  RawRank rank(*front);
  rank.Hello();
  const auto link = AwaitHello(*front);
  // Alive while it beats, though it says nothing else.
  for (int i = 0; i < 15; ++i) {
    ASSERT_TRUE(rank.Heartbeat());
    EXPECT_FALSE(front->Wait(front->Now() + 0.1).has_value());
  }
  ASSERT_TRUE(rank.Heartbeat());
  const double begin = front->Now();
  const auto event = Next(*front);
  const double seconds = front->Now() - begin;
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->link, link);
  EXPECT_NE(std::get<RankTransport::Closed>(event->what).reason.find("no sign of life for 1."), std::string::npos);
  EXPECT_GE(seconds, 0.9);
  EXPECT_LE(seconds, 1.6);
  rank.Heartbeat();
  EXPECT_FALSE(front->Wait(front->Now() + 0.2).has_value());
}

TEST(RankTransport, AFakeRankThatOnlyBeatsStays) {
  const auto front = Front();
  FakeRank rank(ClientOf(*front));
  AwaitHello(*front);
  EXPECT_FALSE(front->Wait(front->Now() + 2).has_value());
}

TEST(RankTransport, HeartbeatGrowsAndNeverFalls) {
  const auto front = Front();
  FakeRank one(ClientOf(*front));
  const auto first = AwaitHello(*front);
  FakeRank two(ClientOf(*front));
  AwaitHello(*front);
  one.SetProgress(5);
  two.SetProgress(7);
  EXPECT_TRUE(Eventually([&] { return front->Heartbeat() == 12; }));
  front->Close(first, "gone");
  two.SetProgress(9);
  EXPECT_TRUE(Eventually([&] { return front->Heartbeat() == 14; }));
}

TEST(RankTransport, OnlyRanksThatSayHelloReachWait) {
  RankServiceOptions options;
  options.hello_timeout_seconds = 0.3;
  const auto front = Front(options);
  RawRank silent(*front);
  EXPECT_EQ(silent.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  RawRank impatient(*front);
  impatient.Report(RankLoaded{1, 1});
  const grpc::Status refused = impatient.Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << refused.error_message();
  RawRank beating(*front);
  beating.Heartbeat();
  EXPECT_EQ(beating.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(front->Wait(0).has_value());
}

TEST(RankTransport, ABrokenMessageClosesTheLink) {
  const auto front = Front();
  RawRank rank(*front);
  rank.Hello();
  AwaitHello(*front);
  rank.Report(RankProgress{7});
  const auto event = Next(*front);
  ASSERT_TRUE(event.has_value());
  EXPECT_NE(std::get<RankTransport::Closed>(event->what).reason.find("progress 7"), std::string::npos);
  EXPECT_EQ(rank.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(RankTransport, ARankThatDoesNotReadHoldsNobodyUp) {
  const auto front = Front();
  RawRank deaf(*front);
  deaf.Hello();
  const auto deaf_link = AwaitHello(*front);
  FakeRank other(ClientOf(*front));
  const auto other_link = AwaitHello(*front);
  const std::string value(1 << 20, 'v');
  double longest = 0;
  for (uint64_t i = 0; i < 64; ++i) {
    const double begin = front->Now();
    front->Send(deaf_link, StoreEntry{i, "k", value});
    longest = std::max(longest, front->Now() - begin);
    deaf.Heartbeat();
  }
  EXPECT_LT(longest, 0.2);
  front->Send(other_link, AbortStep{1, "hears"});
  EXPECT_TRUE(Eventually([&] { return other.NumOrders() == 1; }, 2));

  // What overtakes: the abort is there long before the entries are.
  front->Send(deaf_link, AbortStep{9, "now"});
  v1::RankOrderMessage message;
  int before = 0;
  while (deaf.Read(&message) && !message.has_abort_step()) {
    ++before;
    deaf.Heartbeat();
  }
  EXPECT_TRUE(message.has_abort_step());
  EXPECT_LT(before, 64 * 3);  // of 64 × 5 pieces
  const double begin = front->Now();
  front->Close(deaf_link, "fenced");
  EXPECT_LT(front->Now() - begin, 0.2);
}

TEST(RankTransport, WithoutTheSecretNobodyJoins) {
  RankServiceOptions options;
  options.secret = "0123456789abcdef";
  const auto front = Front(options);
  RankClientOptions client = ClientOf(*front);
  EXPECT_TRUE(absl::IsUnauthenticated(GrpcRankPort::Connect(client).status()));
  client.secret = "0123456789abcdee";
  EXPECT_TRUE(absl::IsUnauthenticated(GrpcRankPort::Connect(client).status()));
  client.secret = options.secret + "f";
  EXPECT_TRUE(absl::IsUnauthenticated(GrpcRankPort::Connect(client).status()));
  client.secret = options.secret;
  FakeRank rank(client);
  AwaitHello(*front);
  EXPECT_FALSE(front->Wait(0).has_value());
}

TEST(RankTransport, WhereNobodyNeedsToJoinNobodyMay) {
  RankServiceOptions options;
  options.children = options.only_children = true;
  const auto front = Front(options);
  RankClientOptions client = ClientOf(*front);
  EXPECT_TRUE(absl::IsUnauthenticated(GrpcRankPort::Connect(client).status()));
  client.target = front->child_address();
  client.secret = front->child_secret();
  FakeRank child(client);
  AwaitHello(*front);
}

TEST(RankTransport, BeyondLoopbackOnlyWithCredentials) {
  RankServiceOptions options;
  options.host = "0.0.0.0";
  const Status status = GrpcRankTransport::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("--rank-secret-file"), std::string::npos);
  options.secret = "0123456789abcdef";
  EXPECT_TRUE(GrpcRankTransport::Start(options).ok());
}

TEST(RankTransport, APortInUseIsNamed) {
  const auto front = Front();
  RankServiceOptions options;
  options.port = front->port();
  EXPECT_EQ(GrpcRankTransport::Start(options).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(RankTransport, LinksAreBounded) {
  RankServiceOptions options;
  options.max_links = 2;
  const auto front = Front(options);
  RawRank one(*front);
  one.Hello();
  AwaitHello(*front);
  auto two = std::make_unique<RawRank>(*front);
  two->Hello();
  AwaitHello(*front);
  RawRank three(*front);
  EXPECT_EQ(three.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(RankTransport, ALateFrontIsWaitedForAndAnAbsentOneNamed) {
  int port = 0;
  {
    const auto front = Front();
    port = front->port();
  }
  RankClientOptions client;
  client.target = Cat("127.0.0.1:", port);
  client.join_timeout_seconds = 0.5;
  const Status absent = GrpcRankPort::Connect(client).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(absent.message().find(client.target), std::string::npos) << absent;

  std::unique_ptr<GrpcRankTransport> front;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(500));
    RankServiceOptions options;
    options.port = port;
    front = Front(options);
  });
  client.join_timeout_seconds = 20;
  {
    FakeRank rank(client);
    later.join();
    AwaitHello(*front);
    // The front ends: so does the rank.
    front.reset();
    EXPECT_TRUE(Eventually([&] { return rank.over(); }, 2));
    EXPECT_FALSE(rank.outcome().ok());
  }
}

TEST(RankTransport, EndsWithRanksInEveryState) {
  auto front = Front();
  RawRank fresh(*front);
  RawRank deaf(*front);
  deaf.Hello();
  const auto link = AwaitHello(*front);
  for (uint64_t i = 0; i < 16; ++i) front->Send(link, StoreEntry{i, "k", std::string(1 << 20, 'v')});
  FakeRank rank(ClientOf(*front));
  AwaitHello(*front);
  const double begin = SteadySeconds();
  front.reset();
  EXPECT_LT(SteadySeconds() - begin, 3);
}

TEST(RankTransport, AProcessThatCannotLoadFailsTheStart) {
  RankServiceOptions options;
  options.children = options.only_children = true;
  const auto front = Front(options);
  RankLauncherOptions launcher;
  launcher.count = 1;
  launcher.executable = "/bin/sh";
  launcher.arguments = {"sh", "-c", "exit 3"};
  ASSERT_TRUE(front->Launch(std::move(launcher)).ok());
  const auto event = Next(*front);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->link, 0u);
  const Status status = std::get<RankFailed>(std::get<RankReport>(event->what)).status;
  EXPECT_NE(status.message().find("exited with code 3"), std::string::npos) << status;
}

// The children here are shells that write down what they were given; the test speaks in their place.
TEST(RankTransport, AProcessThatSaysWhyItCannotLoadFailsTheStartWithThat) {
  RankServiceOptions options;
  options.children = options.only_children = true;
  const auto front = Front(options);
  const std::string path = (std::filesystem::temp_directory_path() / Cat("rank_child_", getpid())).string();
  RankLauncherOptions launcher;
  launcher.count = 1;
  launcher.executable = "/bin/sh";
  launcher.arguments = {"sh", "-c", "echo $MOE_RANK_PROCESS > $OUT.tmp; mv $OUT.tmp $OUT; exec sleep 1000"};
  launcher.environment = {"OUT=" + path};
  ASSERT_TRUE(front->Launch(std::move(launcher)).ok());
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(path); }));
  RankClientOptions client = ClientOf(*front);
  client.target = front->child_address();
  client.secret = front->child_secret();
  const auto fail = [&](const std::string& process) {
    client.process = process;
    auto port = GrpcRankPort::Connect(client);
    ASSERT_TRUE(port.ok()) << port.status();
    (*port)->Report(RankFailed{absl::DataLossError("config.json: cut")});
  };
  fail("none of ours");
  EXPECT_FALSE(front->Wait(front->Now() + 0.2).has_value());
  std::string process;
  std::ifstream(path) >> process;
  std::filesystem::remove(path);
  fail(process);
  const auto event = Next(*front);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->link, 0u);
  EXPECT_EQ(std::get<RankFailed>(std::get<RankReport>(event->what)).status, absl::DataLossError("config.json: cut"));
}

// A fenced child is killed, and its successor is another process.
TEST(RankTransport, CloseKillsTheRightChild) {
  RankServiceOptions options;
  options.children = options.only_children = true;
  const auto front = Front(options);
  const std::string path = (std::filesystem::temp_directory_path() / Cat("rank_fenced_", getpid())).string();
  RankLauncherOptions launcher;
  launcher.count = 1;
  launcher.executable = "/bin/sh";
  launcher.arguments = {"sh", "-c", "echo $MOE_RANK_PROCESS >> $OUT; exec sleep 1000"};
  launcher.environment = {"OUT=" + path};
  ASSERT_TRUE(front->Launch(std::move(launcher)).ok());
  const auto names = [&] {
    std::ifstream file(path);
    return std::vector<std::string>{std::istream_iterator<std::string>(file), {}};
  };
  ASSERT_TRUE(Eventually([&] { return names().size() == 1; }));
  RankClientOptions client = ClientOf(*front);
  client.target = front->child_address();
  client.secret = front->child_secret();
  client.process = names()[0];
  FakeRank child(client);
  client.process = "";
  FakeRank stranger(client);
  const auto first = AwaitHello(*front);
  const auto second = AwaitHello(*front);
  front->Close(std::max(first, second), "not a child");
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(names().size(), 1u);
  front->Close(std::min(first, second), "fenced");
  EXPECT_TRUE(Eventually([&] { return names().size() == 2; }, 2));
  std::filesystem::remove(path);
}

class RankTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / Cat("rank_tls_", getpid());
    std::filesystem::create_directories(directory_);
    if (std::system("openssl version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no openssl to make certificates with";
    ASSERT_TRUE(Authority("ca") && Authority("other"));
    ASSERT_TRUE(Certificate("front", "ca") && Certificate("rank", "ca") && Certificate("stranger", "other"));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return (directory_ / name).string(); }
  bool Do(const std::string& command) const {
    return std::system(Cat("cd ", directory_.string(), " && openssl ", command, " >/dev/null 2>&1").c_str()) == 0;
  }
  bool Authority(const std::string& name) const {
    return Do(Cat("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=", name, " -keyout ",
                  name, ".key -out ", name, ".pem"));
  }
  bool Certificate(const std::string& name, const std::string& authority) const {
    std::ofstream(directory_ / "names") << "subjectAltName=IP:127.0.0.1\n";
    return Do(Cat("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=", name, " -keyout ", name,
                  ".key -out ", name, ".csr")) &&
           Do(Cat("x509 -req -days 2 -in ", name, ".csr -CA ", authority, ".pem -CAkey ", authority,
                  ".key -CAcreateserial -extfile names -out ", name, ".pem"));
  }
  RankTls Read(const std::string& name) const {
    auto tls = ReadRankTls(Path(name + ".pem"), Path(name + ".key"), Path("ca.pem"));
    EXPECT_TRUE(tls.ok()) << tls.status();
    return *std::move(tls);
  }

  std::filesystem::path directory_;
};

TEST_F(RankTlsTest, BothSidesShowACertificate) {
  RankServiceOptions options;
  options.host = "0.0.0.0";
  options.tls = Read("front");
  options.children = true;
  const auto front = Front(options);
  RankClientOptions client;
  client.target = Cat("127.0.0.1:", front->port());
  client.tls = Read("rank");
  FakeRank rank(client);
  AwaitHello(*front);

  client.join_timeout_seconds = 0.5;
  client.tls = Read("stranger");
  EXPECT_FALSE(GrpcRankPort::Connect(client).ok());
  client.tls = {};
  EXPECT_FALSE(GrpcRankPort::Connect(client).ok());

  // The front's own processes need none; others on their port get nowhere.
  client.join_timeout_seconds = 20;
  client.target = front->child_address();
  EXPECT_TRUE(absl::IsUnauthenticated(GrpcRankPort::Connect(client).status()));
  client.secret = front->child_secret();
  FakeRank child(client);
  AwaitHello(*front);
  EXPECT_FALSE(front->Wait(0).has_value());
}

TEST(RankSecurity, Secrets) {
  EXPECT_TRUE(SecretsEqual("abc", "abc"));
  EXPECT_FALSE(SecretsEqual("abc", "abd"));
  EXPECT_FALSE(SecretsEqual("abc", "abcabc"));
  EXPECT_FALSE(SecretsEqual("abcabc", "abc"));
  EXPECT_FALSE(SecretsEqual("", "abc"));
  EXPECT_NE(RandomSecret(), RandomSecret());
  EXPECT_EQ(RandomSecret().size(), 64u);

  const std::string path = (std::filesystem::temp_directory_path() / Cat("rank_secret_", getpid())).string();
  const auto read = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return ReadRankSecret(path);
  };
  EXPECT_EQ(*read("0123456789abcdef\n"), "0123456789abcdef");
  EXPECT_EQ(*read("0123456789abcdef\r\nmore"), "0123456789abcdef");
  EXPECT_EQ(read("short\n").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(read("0123456789abcde\xff").status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
  EXPECT_EQ(ReadRankSecret(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadRankTls("a", "", "").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RankSecurity, Loopback) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) EXPECT_TRUE(IsLoopbackHost(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org", ""}) EXPECT_FALSE(IsLoopbackHost(host)) << host;
}

TEST(StallMeter, OnlyLateTicksCount) {
  StallMeter meter(10, 0.05, 0.1);
  EXPECT_EQ(meter.Tick(10.05), 0);
  EXPECT_EQ(meter.Tick(10.19), 0);  // 0.09 late
  EXPECT_NEAR(meter.Tick(15.24), 5.0, 1e-9);
  EXPECT_EQ(meter.Tick(15.29), 0);
}

}  // namespace
}  // namespace moe
