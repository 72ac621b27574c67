// Shared by the tests of the chat templates.
#ifndef MOE_TESTS_LOADERS_CHAT_TEMPLATE_TEST_UTIL_H_
#define MOE_TESTS_LOADERS_CHAT_TEMPLATE_TEST_UTIL_H_

#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "loaders/chat_template/chat_template.h"

namespace moe {

using Json = nlohmann::ordered_json;

inline Json ReadTestJson(const std::string& name) {
  std::ifstream in(std::string(MOE_TEST_DATA_DIR) + "/chat_templates/" + name);
  return Json::parse(in);
}

// "2026-02-03T04:05:06" as local time.
inline std::chrono::system_clock::time_point ParseLocalTime(const std::string& text) {
  std::tm parts{};
  strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  parts.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&parts));
}

inline Json UserMessage(const std::string& content) {
  return Json::array({{{"role", "user"}, {"content", content}}});
}

// Creates and renders in one go, for one user message unless `input` says more.
inline StatusOr<std::vector<RenderedPiece>> RenderPieces(const std::string& source, ChatRenderInput input = {}) {
  if (input.messages.is_null()) input.messages = UserMessage("hi");
  auto made = ChatTemplate::Create(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "tokenizer_config.json");
  if (!made.ok()) return made.status();
  return (*made)->Render(input);
}

inline StatusOr<std::string> RenderText(const std::string& source, ChatRenderInput input = {}) {
  auto pieces = RenderPieces(source, std::move(input));
  if (!pieces.ok()) return pieces.status();
  return JoinPieces(*pieces);
}

}  // namespace moe

#endif  // MOE_TESTS_LOADERS_CHAT_TEMPLATE_TEST_UTIL_H_
