// `moe inspect`: what a checkpoint is, without loading it.
#include <iostream>

#include "engine/tools/commands.h"
#include "engine/tools/describe_model.h"
#include "engine/tools/model_source.h"

namespace moe {
namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
};

int Inspect(const InspectOptions& options) {
  auto files = OpenModelSource(options.model);
  if (!files.ok()) {
    std::cerr << "moe inspect: " << DescribeError(files.status()) << "\n";
    return kExitModel;
  }
  // A directory with config.json alone is described too: memory can be planned before a download.
  LoadOptions load;
  load.weights = (*files)->Has("model.safetensors") || (*files)->Has("model.safetensors.index.json");
  auto model = LoadModel(**files, load);
  if (!model.ok()) {
    std::cerr << "moe inspect: " << DescribeError(model.status()) << "\n";
    return kExitModel;
  }
  if (options.json) {
    std::cout << DescribeModelJson(**model).dump(2) << "\n";
  } else {
    std::cout << DescribeModelText(**model);
  }
  return kExitOk;
}

}  // namespace

void RegisterInspectCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Say what a checkpoint is: architecture, layers, router, experts, memory needed. Loads no weights.");
  command->add_option("model", options->model, "Directory of a Hugging Face checkpoint; none: the demo model");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, exit_code] { *exit_code = Inspect(*options); });
}

}  // namespace moe
