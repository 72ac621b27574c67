// Whole templates of the kinds that models have, against what transformers renders.
#include <gtest/gtest.h>

#include "loaders/chat_template/chat_templates.h"
#include "tests/loaders/chat_template/test_util.h"

namespace moe {
namespace {

class ChatFixture : public testing::TestWithParam<const char*> {};

TEST_P(ChatFixture, EqualsTransformers) {
  const Json data = ReadTestJson(std::string(GetParam()) + ".json");
  const auto templates = ChatTemplatesFromConfig(data["tokenizer_config"], "tokenizer_config.json");
  ASSERT_TRUE(templates.ok()) << templates.status();
  ASSERT_GE(data["chat"].size(), 12u);
  for (const Json& test : data["chat"]) {
    ChatRenderInput input;
    input.messages = test["messages"];
    input.tools = test["tools"];
    input.add_generation_prompt = test["add_generation_prompt"];
    input.continue_final_message = test["continue_final_message"];
    input.arguments = test["kwargs"];
    input.now = ParseLocalTime(test["now"].get<std::string>());
    const auto pieces = (*templates)->Render(input);
    if (test.contains("error")) {
      ASSERT_FALSE(pieces.ok()) << test;
      EXPECT_EQ(std::string(pieces.status().message()), test["error"].get<std::string>());
    } else {
      ASSERT_TRUE(pieces.ok()) << pieces.status() << test;
      EXPECT_EQ(JoinPieces(*pieces), test["prompt"].get<std::string>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ChatFixture,
                         testing::Values("gpt2", "gpt_neox", "qwen2", "llama3", "o200k", "deepseek_v3", "deepseek_v2",
                                         "mixtral", "metaspace_bpe", "unigram", "unigram_bytes", "gemma"),
                         [](const auto& info) { return std::string(info.param); });

// White space control, braces in content, tojson.
TEST(ChatFixture, RenderingDetails) {
  const std::string source =
      "{%- if messages[0]['role'] == 'system' -%}\n    {{- '<|sys|>' + messages[0]['content'] | trim + '<|end|>' }}\n"
      "{%- endif %}\n{%- for m in messages %}\n    {%- if m['role'] == 'system' and not loop.first %}{{ "
      "raise_exception('system message must come first') }}{% endif %}\n    {%- if m['role'] != 'system' %}\n"
      "{{ '<|' ~ m.role ~ '|>' }}\n{{ m.content }}<|end|>\n    {%- endif %}\n{%- endfor %}\n"
      "{%- if add_generation_prompt %}\n<|assistant|>\n{% endif %}";
  ChatRenderInput input;
  input.messages = Json::parse(R"([{"role": "system", "content": "  Be brief. "},
    {"role": "user", "content": "a < b & \"c\""}, {"role": "assistant", "content": "ok"},
    {"role": "user", "content": "日本 {{ 7*7 }}"}])");
  const std::string without =
      "<|sys|>Be brief.<|end|><|user|>\na < b & \"c\"<|end|><|assistant|>\nok<|end|><|user|>\n日本 {{ 7*7 }}<|end|>";
  EXPECT_EQ(*RenderText(source, input), without + "<|assistant|>\n");
  input.add_generation_prompt = false;
  EXPECT_EQ(*RenderText(source, input), without);
  std::swap(input.messages[0], input.messages[1]);
  EXPECT_EQ(std::string(RenderText(source, input).status().message()), "system message must come first");
}

TEST(ChatFixture, JsonDetails) {
  ChatRenderInput input;
  input.messages = UserMessage("x<y>&'é'\n");
  EXPECT_EQ(*RenderText("{{ messages[0].content | tojson }}|{{ {'b': 1, 'a': [true, none, 1.5, '<é>']} | tojson }}|"
                        "{{ [1,2] | tojson(indent=2) }}",
                        input),
            "\"x<y>&'é'\\n\"|{\"b\": 1, \"a\": [true, null, 1.5, \"<é>\"]}|[\n  1,\n  2\n]");
}

}  // namespace
}  // namespace moe
