// `moe`: one binary, one subcommand a job.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "engine/tools/commands.h"
#include "server/commands/commands.h"
#include "server/server_options.h"

int main(int argc, char** argv) {
  CLI::App app{"moe: a gRPC inference server for Mixture-of-Experts language models"};
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
