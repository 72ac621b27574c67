// The subcommands that need no server: run and inspect. Both binaries (with and without the server) have them.
#ifndef MOE_ENGINE_TOOLS_COMMANDS_H_
#define MOE_ENGINE_TOOLS_COMMANDS_H_

#include <CLI/CLI.hpp>

namespace moe {

// Exit codes of every subcommand.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitModel = 3;

// Adds `run` and `inspect`. A subcommand runs in its callback and leaves its exit code in *exit_code, which outlives
// app.
void RegisterEngineCommands(CLI::App& app, int* exit_code);

void RegisterRunCommand(CLI::App& app, int* exit_code);
void RegisterInspectCommand(CLI::App& app, int* exit_code);

}  // namespace moe

#endif  // MOE_ENGINE_TOOLS_COMMANDS_H_
