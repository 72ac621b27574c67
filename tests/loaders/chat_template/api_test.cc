// Creating and rendering: what inputs are accepted, messages as transformers prepares them, continued messages,
// several templates in one configuration.
#include <gtest/gtest.h>

#include <thread>

#include "loaders/chat_template/chat_templates.h"
#include "tests/loaders/chat_template/test_util.h"

namespace moe {
namespace {

std::string ErrorOf(const std::string& source, const ChatRenderInput& input) {
  const auto text = RenderText(source, input);
  if (text.ok()) return "no error: " + *text;
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(text.status().message());
}

TEST(ChatApi, ChecksTheInput) {
  ChatRenderInput input;
  input.messages = Json::array();
  EXPECT_NE(ErrorOf("x", input).find("empty conversation"), std::string::npos);
  input.messages = Json::array({"text"});
  EXPECT_NE(ErrorOf("x", input).find("must be objects"), std::string::npos);
  input.messages = UserMessage("hi");
  input.tools = "text";
  EXPECT_NE(ErrorOf("x", input).find("tools"), std::string::npos);
  input.tools = nullptr;
  input.arguments = Json::array();
  EXPECT_NE(ErrorOf("x", input).find("arguments"), std::string::npos);
  input.arguments = {{"messages", 1}};
  EXPECT_NE(ErrorOf("x", input).find("cannot be named 'messages'"), std::string::npos);
}

TEST(ChatApi, RaisedTextIsKeptWordForWord) {
  EXPECT_EQ(ErrorOf("\n\n{{ raise_exception('Only ' ~ 1 ~ ' role') }}", {}), "Only 1 role");
}

// transformers drops null keys and fills in the names under which templates look for reasoning.
TEST(ChatApi, PreparesMessages) {
  ChatRenderInput input;
  input.messages = Json::parse(R"([{"role": "assistant", "content": null, "thinking": "T"}])");
  EXPECT_EQ(*RenderText("{{ messages[0]|tojson }}", input),
            R"({"thinking": "T", "role": "assistant", "reasoning_content": "T"})");
  input.messages = Json::parse(R"([{"role": "assistant", "content": "c", "reasoning": "R", "x": {"y": null}}])");
  EXPECT_EQ(*RenderText("{{ messages[0]|tojson }}", input),
            R"({"thinking": "R", "role": "assistant", "content": "c", "reasoning": "R", "x": {"y": null}, )"
            R"("reasoning_content": "R"})");
}

TEST(ChatApi, Variables) {
  ChatRenderInput input;
  input.arguments = {{"enable_thinking", false}, {"eos_token", "E"}};
  EXPECT_EQ(*RenderText("{{ enable_thinking is false }}{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ tools is none }}"
                        "{{ documents is none }}{{ add_generation_prompt }}",
                        input),
            "True<s>ETrueTrueTrue");
}

constexpr char kTrimming[] = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}";
constexpr char kPlain[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}";

ChatRenderInput Continued(const Json& content) {
  ChatRenderInput input;
  input.messages = Json::array({{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", content}}});
  input.add_generation_prompt = false;
  input.continue_final_message = true;
  return input;
}

TEST(ChatApi, ContinuesTheFinalMessage) {
  EXPECT_EQ(*RenderText(kPlain, Continued("Once upon")), "<user>q</user><assistant>Once upon");
  EXPECT_EQ(*RenderText(kPlain, Continued(" Once upon \n")), "<user>q</user><assistant> Once upon \n");
  EXPECT_EQ(*RenderText(kTrimming, Continued(" Once upon ")), "<user>q</user><assistant>Once upon");
  EXPECT_EQ(*RenderText("{% for m in messages %}{{ m.content[0].text }}|{% endfor %}",
                        [] {
                          auto input = Continued(Json::parse(R"([{"type": "text", "text": "a b"}])"));
                          input.messages.erase(0);
                          return input;
                        }()),
            "a b");
}

TEST(ChatApi, ContinuationErrors) {
  auto input = Continued("x");
  input.add_generation_prompt = true;
  EXPECT_NE(ErrorOf(kPlain, input).find("not compatible"), std::string::npos);
  EXPECT_NE(
      ErrorOf("{% for m in messages %}{{ m.content[:3] }}{% endfor %}", Continued("Once upon")).find("does not appear"),
      std::string::npos);
  EXPECT_NE(ErrorOf("{{ messages[0].role }}", Continued("x")).find("not an accepted field"), std::string::npos);
  EXPECT_NE(ErrorOf(kPlain, Continued(nullptr)).find("no \"content\""), std::string::npos);
  EXPECT_NE(ErrorOf(kPlain, Continued(Json::array())).find("could not find any text"), std::string::npos);
}

TEST(ChatApi, ContinuedContentStaysUntrusted) {
  const auto pieces = RenderPieces(kPlain, Continued("<s>"));
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(pieces->back().text, "<s>");
  EXPECT_FALSE(pieces->back().trusted);
}

TEST(ChatApi, SeveralTemplates) {
  const Json config = Json::parse(R"({"chat_template": [{"name": "default", "template": "D{{ bos_token }}"},
    {"name": "tool_use", "template": "T{{ image_token }}"}, {"name": "rag", "template": "{% broken"}],
    "bos_token": {"content": "<s>", "special": true}, "image_token": "<i>", "add_bos_token": true, "pad_token": null})");
  const auto templates = ChatTemplatesFromConfig(config, "tokenizer_config.json");
  ASSERT_TRUE(templates.ok()) << templates.status();
  ChatRenderInput input;
  input.messages = UserMessage("hi");
  EXPECT_EQ(JoinPieces(*(*templates)->Render(input)), "D<s>");
  input.tools = Json::array({{{"type", "function"}}});
  EXPECT_EQ(JoinPieces(*(*templates)->Render(input)), "T<i>");
}

TEST(ChatApi, BadConfigurations) {
  for (const char* text :
       {"{}", "[]", "null", R"({"chat_template": null})", R"({"chat_template": 5})", R"({"chat_template": []})",
        R"({"chat_template": [5]})", R"({"chat_template": [{"name": "default"}]})",
        R"({"chat_template": [{"name": "tool_use", "template": "x"}]})", R"({"chat_template": "{% if"})"}) {
    const auto templates = ChatTemplatesFromConfig(Json::parse(text), "tokenizer_config.json");
    ASSERT_FALSE(templates.ok()) << text;
    EXPECT_EQ(templates.status().code(), absl::StatusCode::kInvalidArgument) << templates.status();
  }
}

TEST(ChatApi, RendersInManyThreads) {
  const Json data = ReadTestJson("qwen2.json");
  const auto templates = ChatTemplatesFromConfig(data["tokenizer_config"], "tokenizer_config.json");
  ASSERT_TRUE(templates.ok());
  ChatRenderInput input;
  input.messages = data["chat"][2]["messages"];
  const std::string expected = data["chat"][2]["prompt"];
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(JoinPieces(*(*templates)->Render(input)), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace moe
