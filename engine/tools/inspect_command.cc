// `moe inspect`: what a checkpoint is, without loading it.
#include <iostream>

#include "engine/tools/commands.h"
#include "engine/tools/describe_model.h"
#include "engine/tools/model_source.h"
#include "loaders/architectures.h"

namespace moe {
namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
  bool tensors = false;
  bool architectures = false;
};

void ListArchitectures(bool json) {
  if (json) {
    auto list = nlohmann::ordered_json::array();
    for (const Architecture& entry : Architectures()) {
      list.push_back({{"architecture", entry.name}, {"family", entry.family}});
      if (entry.model_type != nullptr) list.back()["model_type"] = entry.model_type;
    }
    std::cout << list.dump(2) << "\n";
    return;
  }
  for (const Architecture& entry : Architectures()) {
    std::cout << entry.name << (entry.model_type == nullptr ? "" : Cat("  (model_type ", entry.model_type, ")"))
              << "\n";
  }
}

int Inspect(const InspectOptions& options) {
  if (options.architectures) {
    ListArchitectures(options.json);
    return kExitOk;
  }
  auto files = OpenModelSource(options.model);
  if (!files.ok()) {
    std::cerr << "moe inspect: " << DescribeError(files.status()) << "\n";
    return kExitModel;
  }
  // A directory with config.json alone is described too: memory can be planned before a download. Beside an index, so
  // are the tensors' names.
  auto model = LoadModel(**files, {.absent_weights = true});
  if (!model.ok()) {
    std::cerr << "moe inspect: " << DescribeError(model.status()) << "\n";
    return kExitModel;
  }
  if (options.tensors) {
    std::cout << (options.json ? DescribeTensorsJson(**model).dump(2) + "\n" : DescribeTensorsText(**model));
  } else {
    std::cout << (options.json ? DescribeModelJson(**model).dump(2) + "\n" : DescribeModelText(**model));
  }
  return (*model)->index && !(*model)->index->sound() ? kExitModel : kExitOk;
}

}  // namespace

void RegisterInspectCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Say what a checkpoint is: architecture, layers, router, experts, memory needed. Loads no weights.");
  command->footer("Exit codes: 0 done, 2 bad options, 3 the checkpoint cannot be read, or its index does not fit it.");
  command->add_option("model", options->model, "Directory of a Hugging Face checkpoint; none: the demo model");
  command->add_flag("--tensors", options->tensors,
                    "List the tensors a checkpoint of it is expected to have: names, shapes, what they hold");
  command->add_flag("--architectures", options->architectures, "List the architectures that can be served");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, exit_code] { *exit_code = Inspect(*options); });
}

}  // namespace moe
