// `moe`: one binary, one subcommand a job.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <string>

#include "engine/tools/commands.h"
#include "engine/tools/exhaustion.h"
#include "server/commands/commands.h"
#include "server/server_options.h"

namespace {

int Main(int argc, char** argv) {
  CLI::App app{"moe: a gRPC inference server for Mixture-of-Experts language models", "moe"};
  app.set_version_flag("--version", "moe " MOE_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  moe::RegisterServeCommand(app, &exit_code);
  moe::RegisterGenerateCommand(app, &exit_code);
  moe::RegisterHealthCommand(app, &exit_code);
  moe::RegisterEngineCommands(app, &exit_code);
  if (argc == 1) {
    std::cout << app.help();
    return moe::kExitBadFlags;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) {  // how a subcommand returns a code of its own
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : moe::kExitBadFlags;
  }
  return exit_code;
}

// A server that is told to stop while the loader still works on its libraries ends as any other, with code 0. This runs
// before the libraries' own beginnings, in plain C and with nothing but a system call. Sanitizers are not ready then.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void HoldStopSignals(int argc, char** argv, char**) {
  if (argc < 2) return;
  const char* serve = "serve";
  for (const char* at = argv[1]; *at == *serve; ++at, ++serve) {
    if (*at != '\0') continue;
    const uint64_t signals = uint64_t{1} << (SIGTERM - 1) | uint64_t{1} << (SIGINT - 1);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &signals, nullptr, sizeof(signals));
    return;
  }
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const g_first)(int, char**, char**) = HoldStopSignals;
#endif

}  // namespace

int main(int argc, char** argv) {
  moe::ExplainExhaustion();
  return moe::ExitCodeOf([&] { return Main(argc, argv); });
}
