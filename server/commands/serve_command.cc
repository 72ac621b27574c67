#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/tools/engine_flags.h"
#include "server/commands/commands.h"
#include "server/commands/flags.h"
#include "server/commands/rank_flags.h"
#include "server/commands/serve_run.h"
#include "server/server_options.h"

namespace moe {
namespace {

// What CLI11 fills in; turned into ServerOptions when all is parsed.
struct ServeFlags {
  ServerOptions options;
  std::string log_level = "info";
  std::string log_format = "text";
  std::string expert_detail = "rank";
};

void AddModelFlags(CLI::App* app, ServeFlags* flags) {
  ServerOptions& options = flags->options;
  const char* group = "Model";
  AddFlag(app, "--model", options.model,
          "Checkpoint directory (Hugging Face layout: config.json, *.safetensors, tokenizer.json). Without one the "
          "built-in demo model is served.",
          "--model,model")
      ->group(group);
  AddFlag(app, "--served-model-name", options.served_model_name,
          "Name that requests use. Default: the directory's name, or shakespeare-nemotronh for the demo")
      ->group(group);
}

void AddNetworkFlags(CLI::App* app, ServeFlags* flags) {
  ServerOptions& options = flags->options;
  const char* group = "Network";
  AddFlag(app, "--host", options.host, "Address to listen on, for gRPC and admin")->group(group);
  AddFlag(app, "--port", options.port, "gRPC port; 0: a free one, printed at the start")
      ->check(CLI::Range(0, 65535))
      ->group(group);
  AddFlag(app, "--admin-port", options.admin_port, "HTTP port of /metrics, /healthz and /readyz; 0: none")
      ->check(CLI::Range(0, 65535))
      ->group(group);
  AddFlag(app, "--max-message-bytes", options.max_message_bytes, "Largest gRPC message, both ways")
      ->check(CLI::Range(int64_t{1024}, int64_t{2147483647}))
      ->group(group);
}

void AddLimitFlags(CLI::App* app, ServeFlags* flags) {
  ServerOptions& options = flags->options;
  const char* group = "Limits";
  AddFlag(app, "--max-queue", options.engine.max_queue,
          "Requests that may wait; more are refused at once with RESOURCE_EXHAUSTED")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->group(group);
  AddFlag(app, "--max-n", options.limits.max_n, "Largest n (samples of one prompt) of a request")
      ->check(CLI::Range(1, 65536))
      ->group(group);
  const auto bytes = CLI::Range(int64_t{1}, int64_t{1} << 50);
  AddFlag(app, "--stream-backlog-bytes", options.stream.max_backlog_bytes,
          "A stream's client with more than this waiting for it has to take something within --stream-backlog-seconds, "
          "or the request is ended with RESOURCE_EXHAUSTED. With less, within a minute")
      ->check(bytes)
      ->group(group);
  AddFlag(app, "--stream-backlog-seconds", options.stream.backlog_seconds,
          "How long such a client may pause; the request is computed on meanwhile")
      ->check(FiniteRange(0.0, 86400.0))
      ->group(group);
  AddFlag(app, "--stream-backlog-hard-bytes", options.stream.hard_backlog_bytes,
          "What may wait in one stream at most, whether or not its client reads; then RESOURCE_EXHAUSTED")
      ->check(bytes)
      ->group(group);
  AddFlag(app, "--stream-backlog-total-bytes", options.stream.total_backlog_bytes,
          "What may wait in all streams together; then those with more than --stream-backlog-bytes are ended with "
          "RESOURCE_EXHAUSTED")
      ->check(bytes)
      ->group(group);
  AddFlag(app, "--shutdown-timeout", options.shutdown_timeout_seconds,
          "Seconds that running requests get to finish after SIGTERM; then they are ended. 0: at once. A second signal "
          "never waits")
      ->check(FiniteRange(0.0, 86400.0 * 365))
      ->group(group);
}

void AddObservabilityFlags(CLI::App* app, ServeFlags* flags) {
  const char* group = "Observability";
  AddFlag(app, "--metrics-expert-detail", flags->expert_detail,
          "Series of moe_expert_tokens_total: one a layer and rank, or one a layer and expert")
      ->check(CLI::IsMember({"rank", "expert"}))
      ->group(group);
  AddFlag(app, "--log-level", flags->log_level, "Prompts and outputs are never logged, at any level")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->group(group);
  AddFlag(app, "--log-format", flags->log_format, "Lines for people, or one JSON object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->group(group);
}

void Finish(const CLI::App& app, ServeFlags* flags) {
  static const std::map<std::string, LogLevel> kLevels = {{"debug", LogLevel::kDebug},
                                                          {"info", LogLevel::kInfo},
                                                          {"warning", LogLevel::kWarning},
                                                          {"error", LogLevel::kError}};
  ServerOptions& options = flags->options;
  options.log_level = kLevels.at(flags->log_level);
  options.log_format = flags->log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  options.metrics_per_expert = flags->expert_detail == "expert";
  options.non_default = NonDefaultFlags(app);
}

}  // namespace

void RegisterServeCommand(CLI::App& app, int* exit_code) {
  CLI::App* serve = app.add_subcommand("serve", "Serve a model over gRPC");
  serve->footer(
      "Every option is also an environment variable (Env above); the command line wins.\n"
      "Exit codes: 0 drained after SIGTERM or SIGINT, 1 a fault (with --join: the front refused this rank or is lost), "
      "2 bad options, 3 the model cannot be loaded, 4 a port is in use.\n"
      "\n"
      "  moe serve                            the built-in demo model on 127.0.0.1:50051\n"
      "  moe serve /models/Qwen3-30B-A3B      a checkpoint\n"
      "  moe generate \"O Romeo, \"             talk to it");
  auto flags = std::make_shared<ServeFlags>();
  AddModelFlags(serve, flags.get());
  AddNetworkFlags(serve, flags.get());
  AddEngineFlags(serve, &flags->options.engine);
  AddRankFlags(serve, &flags->options);
  AddLimitFlags(serve, flags.get());
  AddObservabilityFlags(serve, flags.get());
  serve->callback([serve, flags, exit_code] {
    Finish(*serve, flags.get());
    *exit_code = RunServe(flags->options);
  });
}

}  // namespace moe
