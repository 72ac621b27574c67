// SIGTERM and SIGINT as events that a thread waits for, instead of handlers.
#ifndef MOE_SERVER_COMMANDS_SIGNALS_H_
#define MOE_SERVER_COMMANDS_SIGNALS_H_

#include <chrono>

namespace moe {

// Before any other thread starts: they inherit it. SIGPIPE is ignored.
void BlockStopSignals();

// The signal that came within `timeout`, or 0.
int WaitForStopSignal(std::chrono::milliseconds timeout);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_SIGNALS_H_
