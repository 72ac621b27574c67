#include <nlohmann/json.hpp>

#include "server/admin_http.h"
#include "server/metrics.h"
#include "server/model_host.h"

namespace moe {
namespace {

HttpAnswer JsonAnswer(int code, const nlohmann::json& value) {
  return {code, "application/json", value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

// Live: loading and draining are fine; an engine that is stuck or a model that cannot be loaded are not.
HttpAnswer Healthz(const ModelHost& host) {
  const ModelHost::State state = host.state();
  const bool fine = state != ModelHost::State::kUnhealthy && state != ModelHost::State::kLoadFailed;
  return JsonAnswer(fine ? 200 : 503, {{"status", fine ? "ok" : "failed"}, {"state", host.StateText()}});
}

HttpAnswer Readyz(const ModelHost& host) {
  const bool ready = host.Serving();
  const LoadProgress progress = host.progress();
  return JsonAnswer(ready ? 200 : 503, {{"ready", ready},
                                        {"state", host.StateText()},
                                        {"stage", progress.stage},
                                        {"progress", progress.fraction},
                                        {"model", host.name()}});
}

}  // namespace

std::vector<HttpPage> AdminPages(const ModelHost* host, const Metrics* metrics) {
  return {{"/metrics",
           [metrics] {
             return HttpAnswer{200, "text/plain; version=0.0.4; charset=utf-8", metrics->Text()};
           }},
          {"/healthz", [host] { return Healthz(*host); }},
          {"/readyz", [host] { return Readyz(*host); }}};
}

}  // namespace moe
