#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "engine/tools/engine_flags.h"
#include "server/commands/commands.h"
#include "server/commands/flags.h"
#include "server/commands/generate_client.h"
#include "server/server_options.h"

namespace moe {
namespace {

// A flag the request leaves out unless it was given: CLI11 fills std::optional.
template <typename T>
CLI::Option* AddSampling(CLI::App* app, const std::string& name, T& value, const std::string& help) {
  return app->add_option(name, value, help)->group("Sampling (absent: the server's default)");
}

}  // namespace

void RegisterGenerateCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("generate", "Send a prompt to a server and print the text as it comes");
  command->footer(
      "Ctrl-C cancels the request. Exit codes: 0 done, 1 the server refused or failed, 2 bad options, 130 cancelled.\n"
      "\n"
      "  moe generate \"O Romeo, \" --max-new-tokens 40\n"
      "  echo \"O Romeo, \" | moe generate - --temperature 0 --json");
  auto flags = std::make_shared<GenerateFlags>();
  command->add_option("prompt", flags->prompt, "The prompt; - reads it from standard input")->required();
  AddFlag(command, "--target", flags->target, "HOST:PORT of the server");
  command->add_option("--model", flags->model, "Served name; empty: whatever the server has");
  command->add_flag("--chat", flags->chat, "Send the prompt as a user message through the model's chat template");
  command->add_option("--system", flags->system, "System message, with --chat");
  command->add_flag("--json", flags->json, "Print each message of the stream as a line of JSON");
  command->add_option("--timeout", flags->timeout, "Seconds until the call is given up; 0: never")
      ->capture_default_str()
      ->check(FiniteRange(0.0, 86400.0 * 365));
  AddSampling(command, "--max-new-tokens,-m", flags->max_new_tokens, "Tokens to generate at most");
  AddSampling(command, "--min-new-tokens", flags->min_new_tokens, "Tokens to generate at least");
  AddSampling(command, "--temperature,-t", flags->temperature, "0 is greedy");
  AddSampling(command, "--top-p", flags->top_p, "Nucleus sampling, (0, 1]");
  AddSampling(command, "--top-k", flags->top_k, "Only the k likeliest tokens; 0: off");
  AddSampling(command, "--min-p", flags->min_p, "Only tokens with this share of the likeliest one's probability");
  AddSampling(command, "--repetition-penalty", flags->repetition_penalty, "Above 1 discourages repetition");
  AddSampling(command, "--presence-penalty", flags->presence_penalty, "[-2, 2]");
  AddSampling(command, "--frequency-penalty", flags->frequency_penalty, "[-2, 2]");
  AddSampling(command, "--seed,-s", flags->seed, "The same seed gives the same text")->transform(SeedText());
  AddSampling(command, "--stop", flags->stop, "End before this string; may be given several times")
      ->allow_extra_args(false)
      ->check(NotEmpty());
  AddSampling(command, "-n,--samples", flags->n, "Independent samples of the prompt");
  command->add_flag("--ignore-eos", flags->ignore_eos, "Do not stop at the end token");
  command->callback([flags, exit_code] {
    if (flags->prompt == "-") {
      flags->prompt.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
    }
    *exit_code = RunGenerate(*flags);
  });
}

}  // namespace moe
