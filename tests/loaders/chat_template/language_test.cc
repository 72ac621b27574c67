// Small templates against what jinja2 makes of them (make_cases.py).
#include <gtest/gtest.h>

#include "tests/loaders/chat_template/test_util.h"

namespace moe {
namespace {

TEST(ChatTemplateLanguage, EqualsJinja) {
  const Json data = ReadTestJson("language.json");
  int checked = 0;
  for (const Json& test : data["cases"]) {
    ChatRenderInput input;
    input.messages = UserMessage("hi {{ n }}");
    input.arguments = data["variables"];
    input.add_generation_prompt = false;
    input.now = ParseLocalTime(data["now"].get<std::string>());
    const std::string source = test["template"];
    const auto text = RenderText(source, input);
    ++checked;
    if (test.contains("output")) {
      ASSERT_TRUE(test["output"].is_string());
      EXPECT_TRUE(text.ok()) << source << "\n" << text.status();
      if (!text.ok()) continue;
      EXPECT_EQ(*text, test["output"].get<std::string>()) << source;
    } else {
      EXPECT_FALSE(text.ok()) << source << "\ngave: " << *text << "\njinja: " << test["error"];
    }
  }
  EXPECT_GE(checked, 800);
}

// What jinja has and this engine does not is said when a template is read, by name and line.
TEST(ChatTemplateLanguage, UnsupportedIsSaidAtCreation) {
  for (const char* source :
       {"\n{{ 1|pprint }}", "\n{{ xs|random }}", "\n{% include 'x' %}", "\n{% block a %}{% endblock %}",
        "\n{% import 'x' as y %}", "\n{% extends 'x' %}", "\n{% do x %}", "\n{{ 1 is nope }}"}) {
    const auto made = ChatTemplate::Create(source, {}, "chat_template.jinja");
    ASSERT_FALSE(made.ok()) << source;
    EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented) << made.status();
    EXPECT_EQ(std::string(made.status().message()).find("chat_template.jinja: chat_template line 2: "), 0u)
        << made.status();
  }
}

TEST(ChatTemplateLanguage, SyntaxErrorsHaveALine) {
  const auto made = ChatTemplate::Create("a\n{% if x %}\n{{ 1 + }}\n{% endif %}", {}, "tokenizer_config.json");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(made.status().message()),
            "tokenizer_config.json: chat_template line 3: unexpected end of print statement");
}

TEST(ChatTemplateLanguage, RenderErrorsHaveALine) {
  const auto text = RenderText("a\n\n{{ messages[0].content + 1 }}");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(text.status().message()),
            "tokenizer_config.json: chat_template line 3: can only concatenate str (not \"int\") to str");
}

// transformers forbids these names on top of jinja's rules.
TEST(ChatTemplateLanguage, NamespacesHaveNoPrivateNames) {
  EXPECT_FALSE(RenderText("{{ namespace(_x=1) }}").ok());
  EXPECT_FALSE(RenderText("{% set ns = namespace() %}{% set ns._x = 1 %}").ok());
}

TEST(ChatTemplateLanguage, IntegersHave64Bits) {
  EXPECT_FALSE(RenderText("{{ 9223372036854775807 + 1 }}").ok());
  EXPECT_FALSE(RenderText("{{ 3 ** 50 }}").ok());
  EXPECT_FALSE(RenderText("{{ 9223372036854775808 }}").ok());
  ChatRenderInput input;
  input.arguments = {{"big", 18446744073709551615ull}};
  EXPECT_EQ(*RenderText("{{ big }} {{ big|tojson }} {{ big is integer }}", input),
            "18446744073709551615 18446744073709551615 True");
  EXPECT_FALSE(RenderText("{{ big + 1 }}", input).ok());
}

}  // namespace
}  // namespace moe
