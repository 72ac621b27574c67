// The client behind `moe generate`.
#ifndef MOE_SERVER_COMMANDS_GENERATE_CLIENT_H_
#define MOE_SERVER_COMMANDS_GENERATE_CLIENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moe {

struct GenerateFlags {
  std::string prompt;
  std::string target = "127.0.0.1:50051";
  std::string model;
  bool chat = false;
  std::string system;
  bool json = false;
  double timeout = 0;  // seconds; 0: none
  std::optional<uint32_t> max_new_tokens;
  std::optional<uint32_t> min_new_tokens;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<uint64_t> seed;
  std::optional<uint32_t> n;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

// Returns the exit code.
int RunGenerate(const GenerateFlags& flags);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_GENERATE_CLIENT_H_
