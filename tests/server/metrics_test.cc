// /metrics, /healthz and /readyz: content, form (promtool) and counters that never go down.
#include "server/metrics.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "server/admin_http.h"
#include "server/expert_load.h"
#include "tests/server/server_fixture.h"

namespace moe::testing {
namespace {

// The whole answer to a GET, headers included.
std::string HttpGet(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      char buffer[4096];
      for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;) answer.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class MetricsTest : public ServerTest {};

TEST_F(MetricsTest, ShowsWhatHappened) {
  Start(Says("hello "));
  const Metrics metrics(core_.get(), /*per_expert=*/false);
  v1::GenerateResponse response;
  ASSERT_EQ(client_->Generate(TextRequest("x", 4), &response), kOk);
  ASSERT_EQ(client_->Generate(TextRequest("", 4), &response), kInvalidArgument);
  const int64_t layer = engine_->model().spec.MoeLayers().front();
  engine_->AddExpertTokens(layer, 0, 30);
  engine_->AddExpertTokens(layer, 1, 2);
  const std::string text = metrics.Text();
  for (const std::string& line : std::vector<std::string>{
           R"(moe_requests_total{model="test-model",method="Generate",code="OK"} 1)",
           R"(moe_requests_total{model="test-model",method="Generate",code="INVALID_ARGUMENT"} 1)",
           R"(moe_requests_rejected_total{model="test-model",reason="invalid"} 1)",
           R"(moe_generated_tokens_total{model="test-model"} 4)", R"(moe_ready{model="test-model"} 1)",
           R"(moe_kv_cache_blocks{model="test-model"} 100)",
           Cat(R"(moe_expert_tokens_total{model="test-model",layer=")", layer, R"(",rank="0"} 32)"),
           Cat(R"(moe_expert_imbalance_ratio{model="test-model",layer=")", layer, R"("} 30)"),
           Cat(R"(moe_experts_unused{model="test-model",layer=")", layer, R"("} 30)"),
           R"(moe_model_info{model="test-model",architecture="NemotronHForCausalLM")", "process_resident_memory_bytes",
           "process_threads", "process_open_fds", "process_cpu_seconds_total"}) {
    EXPECT_TRUE(Contains(text, line)) << line << "\nis not in\n" << text;
  }
  EXPECT_FALSE(Contains(text, "expert=\""));
  const Metrics detailed(core_.get(), /*per_expert=*/true);
  EXPECT_TRUE(Contains(detailed.Text(), R"(,expert="1"} 2)"));
}

TEST_F(MetricsTest, PromtoolFindsNothing) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  Start(Says("hello "));
  v1::GenerateResponse response;
  ASSERT_EQ(client_->Generate(TextRequest("x", 4), &response), kOk);
  const std::string path = ::testing::TempDir() + "moe_metrics.txt";
  for (bool per_expert : {false, true}) {
    std::ofstream(path) << Metrics(core_.get(), per_expert).Text();
    EXPECT_EQ(std::system(("promtool check metrics < " + path).c_str()), 0);
  }
  std::remove(path.c_str());
}

TEST_F(MetricsTest, ScrapesWhileLoading) {
  Start({}, {}, /*load=*/false);
  core_->host().SetProgress({"packing weights", 0.5});
  const Metrics metrics(core_.get(), false);
  EXPECT_TRUE(Contains(metrics.Text(), R"(moe_ready{model="test-model"} 0)"));
  EXPECT_TRUE(Contains(metrics.Text(), R"(moe_model_load_progress_ratio{model="test-model"} 0.5)"));
}

TEST_F(MetricsTest, CountersNeverGoDown) {
  Start(Says("hello "));
  const Metrics metrics(core_.get(), true);
  const int64_t layer = engine_->model().spec.MoeLayers().front();
  const std::string series = Cat(R"(moe_expert_tokens_total{model="test-model",layer=")", layer, R"(",expert="5"} )");
  engine_->AddExpertTokens(layer, 5, 10);
  EXPECT_TRUE(Contains(metrics.Text(), series + "10"));
  engine_->AddExpertTokens(layer, 5, static_cast<uint64_t>(-4));
  EXPECT_TRUE(Contains(metrics.Text(), series + "10"));
  engine_->AddExpertTokens(layer, 5, 7);
  EXPECT_TRUE(Contains(metrics.Text(), series + "13"));
}

TEST_F(MetricsTest, AdminPages) {
  Start({}, {}, /*load=*/false);
  core_->host().SetProgress({"packing weights", 0.25});
  const Metrics metrics(core_.get(), false);
  auto admin = AdminHttp::Start("127.0.0.1", 0, AdminPages(&core_->host(), &metrics));
  ASSERT_TRUE(admin.ok()) << admin.status().message();
  const int port = (*admin)->port();
  ASSERT_GT(port, 0);
  EXPECT_TRUE(Contains(HttpGet(port, "/healthz"), "200 OK"));
  const std::string loading = HttpGet(port, "/readyz");
  EXPECT_TRUE(Contains(loading, "503")) << loading;
  EXPECT_TRUE(Contains(loading, R"("progress":0.25)")) << loading;
  EXPECT_TRUE(Contains(loading, "packing weights")) << loading;
  Load(Says("x"));
  EXPECT_TRUE(Contains(HttpGet(port, "/readyz"), "200 OK"));
  EXPECT_TRUE(Contains(HttpGet(port, "/metrics"), "moe_ready"));
  EXPECT_TRUE(Contains(HttpGet(port, "/metrics"), "text/plain; version=0.0.4"));
  EXPECT_TRUE(Contains(HttpGet(port, "/"), "404"));
  EXPECT_TRUE(Contains(HttpGet(port, "/metrics/../../etc/passwd"), " 4"));
  engine_->SetHealth(absl::UnavailableError("stuck"));
  EXPECT_TRUE(Eventually([&] { return Contains(HttpGet(port, "/healthz"), "503"); }));
  engine_->SetHealth(Status());
  EXPECT_TRUE(Eventually([&] { return Contains(HttpGet(port, "/healthz"), "200"); }));

  const auto second = AdminHttp::Start("127.0.0.1", port, AdminPages(&core_->host(), &metrics));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Contains(std::string(second.status().message()), "in use")) << second.status().message();
}

TEST(ExpertLoadTest, Measures) {
  MoeLayerStats layer;
  layer.tokens_per_expert = {8, 0, 0, 0};
  const ExpertPlacement placement = ExpertPlacement::Linear(4, 2);
  const ExpertLoad two = MeasureExpertLoad(layer, &placement);
  EXPECT_EQ(two.expert_imbalance, 4);
  EXPECT_EQ(two.rank_imbalance, 2);
  EXPECT_EQ(two.unused, 3);
  layer.tokens_per_expert = {0, 0, 0, 0};
  EXPECT_EQ(MeasureExpertLoad(layer, nullptr).expert_imbalance, 1);
}

}  // namespace
}  // namespace moe::testing
