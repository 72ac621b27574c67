// The `moe` binary of a build without the server: run and inspect.
#include <iostream>

#include "engine/tools/commands.h"
#include "engine/tools/exhaustion.h"

namespace {

int Main(int argc, char** argv) {
  CLI::App app("moe: inference for Mixture-of-Experts language models (built without the server)", "moe");
  app.set_version_flag("--version", MOE_VERSION);
  app.require_subcommand(1);
  int exit_code = moe::kExitOk;
  moe::RegisterEngineCommands(app, &exit_code);
  if (argc == 1) {
    std::cout << app.help();
    return moe::kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? moe::kExitOk : moe::kExitUsage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  moe::ExplainExhaustion();
  return moe::ExitCodeOf([&] { return Main(argc, argv); });
}
