// A whole server over real gRPC in this process, with a FakeEngine behind it and a client in front. Keeps gRPC's
// headers out of the tests.
#ifndef MOE_TESTS_SERVER_SERVER_FIXTURE_H_
#define MOE_TESTS_SERVER_SERVER_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "moe/v1/inference.pb.h"
#include "server/commands/housekeeping.h"
#include "server/grpc_server.h"
#include "server/server_core.h"
#include "tests/server/fake_engine.h"

namespace moe::testing {

// The demo model's description and tokenizer, with a ChatML template, without weights.
std::unique_ptr<LoadedModel> TestModel();
// One without tokenizer and template.
std::unique_ptr<LoadedModel> TestModelWithoutText();
std::vector<int32_t> Ids(const LoadedModel& model, const std::string& text);

struct RpcStatus {
  int code = 0;  // canonical
  std::string message;
  bool operator==(int expected) const { return code == expected; }
};
std::ostream& operator<<(std::ostream& out, const RpcStatus& status);

inline constexpr int kOk = 0;
inline constexpr int kCancelled = 1;
inline constexpr int kInvalidArgument = 3;
inline constexpr int kDeadlineExceeded = 4;
inline constexpr int kNotFound = 5;
inline constexpr int kResourceExhausted = 8;
inline constexpr int kFailedPrecondition = 9;
inline constexpr int kUnimplemented = 12;
inline constexpr int kUnavailable = 14;

class Stream {
 public:
  virtual ~Stream() = default;  // cancels
  virtual bool Read(v1::GenerateChunk* chunk) = 0;
  virtual void Cancel() = 0;
  virtual RpcStatus Finish() = 0;
};

class HealthWatch {
 public:
  virtual ~HealthWatch() = default;
  virtual int Next() = 0;  // the next status; -1 when the stream has ended
};

class Client {
 public:
  // Each client has a connection of its own. `small_window`: as little flow control as HTTP/2 allows.
  explicit Client(const std::string& address, bool small_window = false);
  ~Client();

  RpcStatus Generate(const v1::GenerateRequest& request, v1::GenerateResponse* response, double deadline_seconds = 30);
  std::unique_ptr<Stream> GenerateStream(const v1::GenerateRequest& request, double deadline_seconds = 30);
  RpcStatus Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response);
  RpcStatus Detokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse* response);
  RpcStatus GetModel(const std::string& name, v1::ModelInfo* response);
  RpcStatus Drain(double deadline_seconds, v1::DrainResponse* response);
  RpcStatus Abort(const std::vector<std::string>& ids, v1::AbortResponse* response);
  RpcStatus GetLoad(v1::Load* response);
  RpcStatus GetExpertPlacement(v1::ExpertPlacement* response);
  RpcStatus Rebalance();
  RpcStatus FlushPrefixCache(v1::FlushPrefixCacheResponse* response);
  // Bytes as the request of any method, "/moe.v1.Inference/Generate".
  RpcStatus RawCall(const std::string& path, const std::string& bytes);
  RpcStatus CheckHealth(const std::string& service, int* status);
  std::unique_ptr<HealthWatch> WatchHealth(const std::string& service);

 private:
  struct Stubs;
  std::unique_ptr<Stubs> stubs_;
};

inline constexpr int kHealthServing = 1;
inline constexpr int kHealthNotServing = 2;
inline constexpr int kHealthServiceUnknown = 3;

class ServerTest : public ::testing::Test {
 protected:
  // Starts the server; `load` false leaves it loading.
  void Start(FakeEngineOptions engine, ServerOptions options = {}, bool load = true);
  void Load(FakeEngineOptions options);
  // The script: this text's tokens, for every choice.
  static FakeEngineOptions Says(const std::string& text);
  void TearDown() override;

  v1::GenerateRequest TextRequest(const std::string& text, uint32_t max_new_tokens = 8);
  // Polls until `condition`, ten seconds at most.
  static bool Eventually(const std::function<bool()>& condition);

  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<Housekeeping> housekeeping_;
  std::unique_ptr<Client> client_;
  FakeEngine* engine_ = nullptr;
};

}  // namespace moe::testing

#endif  // MOE_TESTS_SERVER_SERVER_FIXTURE_H_
