// The subcommands of `moe` that need the server's libraries; those that do not are in engine/tools/commands.h.
#ifndef MOE_SERVER_COMMANDS_COMMANDS_H_
#define MOE_SERVER_COMMANDS_COMMANDS_H_

namespace CLI {
class App;
}

namespace moe {

// Each adds one subcommand to `app`; running it sets `*exit_code`.
void RegisterServeCommand(CLI::App& app, int* exit_code);
void RegisterGenerateCommand(CLI::App& app, int* exit_code);
void RegisterHealthCommand(CLI::App& app, int* exit_code);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_COMMANDS_H_
