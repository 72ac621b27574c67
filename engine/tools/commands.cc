#include "engine/tools/commands.h"

namespace moe {

void RegisterEngineCommands(CLI::App& app, int* exit_code) {
  RegisterRunCommand(app, exit_code);
  RegisterInspectCommand(app, exit_code);
}

}  // namespace moe
