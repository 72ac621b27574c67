// Flags that are also environment variables: --max-model-len is MOE_MAX_MODEL_LEN. Command line over environment over
// default, all shown by --help.
#ifndef MOE_SERVER_COMMANDS_FLAGS_H_
#define MOE_SERVER_COMMANDS_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace moe {

inline std::string EnvironmentName(const std::string& flag) {
  std::string name = "MOE_";
  for (char c : flag.substr(flag.find_first_not_of('-'))) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

// `flag`: "--port". `names`: what CLI11 is to call it, if more than that ("--model,model").
template <typename T>
CLI::Option* AddFlag(CLI::App* app, const std::string& flag, T& value, const std::string& help,
                     const std::string& names = "") {
  return app->add_option(names.empty() ? flag : names, value, help)
      ->envname(EnvironmentName(flag))
      ->capture_default_str();
}

// "--port 50052" for every option that was given and differs from its default.
inline std::vector<std::string> NonDefaultFlags(const CLI::App& app) {
  std::vector<std::string> changed;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_name() == "--help") continue;
    const std::string value = CLI::detail::join(option->results(), ",");
    if (value != option->get_default_str()) changed.push_back(option->get_name() + " " + value);
  }
  return changed;
}

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_FLAGS_H_
