// AdminHttp: the HTTP port for operators: /metrics, /healthz (is the process fine?), /readyz (does it take requests?).
#ifndef MOE_SERVER_ADMIN_HTTP_H_
#define MOE_SERVER_ADMIN_HTTP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

struct HttpAnswer {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpPage {
  std::string path;
  std::function<HttpAnswer()> answer;  // called from several threads
};

class AdminHttp {
 public:
  // ALREADY_EXISTS for a port in use. Port 0: a free one.
  static StatusOr<std::unique_ptr<AdminHttp>> Start(const std::string& host, int port, std::vector<HttpPage> pages);
  virtual ~AdminHttp() = default;  // waits for answers being sent
  virtual int port() const = 0;
};

class Metrics;
class ModelHost;

// The three pages; both arguments outlive them.
std::vector<HttpPage> AdminPages(const ModelHost* host, const Metrics* metrics);

}  // namespace moe

#endif  // MOE_SERVER_ADMIN_HTTP_H_
