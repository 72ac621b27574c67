#include "server/admin_http.h"

#include <civetweb.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "server/listen_address.h"

namespace moe {
namespace {

const char* ReasonPhrase(int code) {
  return code == 200 ? "OK" : code == 503 ? "Service Unavailable" : "Error";
}

int Handle(mg_connection* connection, void* data) {
  const auto* page = static_cast<const HttpPage*>(data);
  const mg_request_info* request = mg_get_request_info(connection);
  // civetweb hands over everything below a path too; only the path itself is a page.
  if (page->path != request->local_uri) {
    mg_send_http_error(connection, 404, "%s", "no such page; there are /metrics, /healthz and /readyz");
    return 404;
  }
  const bool head = std::strcmp(request->request_method, "HEAD") == 0;
  if (!head && std::strcmp(request->request_method, "GET") != 0) {
    mg_send_http_error(connection, 405, "%s", "only GET and HEAD");
    return 405;
  }
  const HttpAnswer answer = page->answer();
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            answer.code, ReasonPhrase(answer.code), answer.content_type.c_str(), answer.body.size());
  if (!head) mg_write(connection, answer.body.data(), answer.body.size());
  return answer.code;
}

int NoPage(mg_connection* connection, void*) {
  mg_send_http_error(connection, 404, "%s", "no such page; there are /metrics, /healthz and /readyz");
  return 404;
}

class AdminHttpImpl final : public AdminHttp {
 public:
  explicit AdminHttpImpl(std::vector<HttpPage> pages) : pages_(std::move(pages)) {}

  ~AdminHttpImpl() override {
    if (context_ != nullptr) Stop();
    mg_exit_library();
  }

  Status Listen(const std::string& host, int port) {
    mg_init_library(0);
    host_ = host;
    const std::string address = JoinHostPort(host, port);
    const char* options[] = {"listening_ports",    address.c_str(), "num_threads", "16",
                             "request_timeout_ms", "1000",          nullptr};
    char text[256] = "";
    unsigned code = 0;
    mg_callbacks callbacks{};
    callbacks.log_message = [](const mg_connection*, const char*) { return 1; };  // nothing on stderr from there
    mg_init_data init{};
    init.callbacks = &callbacks;
    init.configuration_options = options;
    mg_error_data error{&code, text, sizeof(text)};
    context_ = mg_start2(&init, &error);
    if (context_ == nullptr) return absl::AlreadyExistsError(Cat("cannot listen on ", address, ": ", text));
    mg_server_port listening{};
    if (mg_get_server_ports(context_, 1, &listening) == 1) port_ = listening.port;
    mg_set_request_handler(context_, "**", NoPage, nullptr);
    for (HttpPage& page : pages_) mg_set_request_handler(context_, page.path.c_str(), Handle, &page);
    return Status();
  }

  int port() const override { return port_; }

 private:
  // civetweb looks for its stop flag every two seconds, or when a connection comes: so connections come.
  void Stop() {
    std::atomic<bool> stopped{false};
    std::thread poker([&] {
      while (!stopped) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        PokePort(host_, port_);
      }
    });
    mg_stop(context_);
    stopped = true;
    poker.join();
  }

  std::vector<HttpPage> pages_;  // the handlers point into it
  std::string host_;
  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<AdminHttp>> AdminHttp::Start(const std::string& host, int port, std::vector<HttpPage> pages) {
  if (port != 0) MOE_RETURN_IF_ERROR(CheckListenAddress(host, port));
  auto server = std::make_unique<AdminHttpImpl>(std::move(pages));
  MOE_RETURN_IF_ERROR(server->Listen(host, port));
  return server;
}

}  // namespace moe
