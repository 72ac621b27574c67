// The flags of everything that starts an engine, in one place: name, environment variable, default, help, range.
#ifndef MOE_ENGINE_TOOLS_ENGINE_FLAGS_H_
#define MOE_ENGINE_TOOLS_ENGINE_FLAGS_H_

#include <CLI/CLI.hpp>

#include "engine/core/engine_options.h"

namespace moe {

// Adds --device, --dtype, --threads … to `app`, each with its MOE_… variable; values land in *options.
void AddEngineFlags(CLI::App* app, EngineOptions* options);

// A number in [low, high]; CLI::Range lets NaN through.
CLI::Validator FiniteRange(double low, double high);
// A seed: 64 bits without sign; CLI11 reads -1 and 2^64 as the largest.
CLI::Validator SeedText();
// A stop string.
CLI::Validator NotEmpty();

}  // namespace moe

#endif  // MOE_ENGINE_TOOLS_ENGINE_FLAGS_H_
