// Templates and requests that mean harm: bounded time, memory and stack, and an error that says which limit it was.
#include <gtest/gtest.h>

#include <ctime>

#include "tests/loaders/chat_template/test_util.h"

namespace moe {
namespace {

double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// Renders and expects an error with `limit` in it, soon.
void ExpectBounded(const std::string& source, const std::string& limit, ChatRenderInput input = {}) {
  const double start = CpuSeconds();
  const auto text = RenderText(source, std::move(input));
  const double took = CpuSeconds() - start;
  ASSERT_FALSE(text.ok()) << source;
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << text.status();
  EXPECT_NE(std::string(text.status().message()).find(limit), std::string::npos) << source << "\n" << text.status();
  // The contract is 1 s; sanitizers and busy machines included.
  EXPECT_LT(took, 1.0) << source;
}

std::string Repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// Templates of a few lines that would take hours, gigabytes or the whole stack.
TEST(ChatLimits, Bombs) {
  ExpectBounded(
      "{% for a in range(700) %}{% for b in range(700) %}{% for c in range(700) %}{% endfor %}{% endfor %}{% endfor %}",
      "limit");
  ExpectBounded("{% for i in range(900000000) %}{% endfor %}", "Range too big");
  ExpectBounded("{{ 'a' * 1000000000 }}", "limit on memory");
  ExpectBounded(
      "{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
      "limit on memory");
  ExpectBounded("{% macro f(n) %}{{ f(n+1) }}{% endmacro %}{{ f(0) }}", "limit on depth");
}

TEST(ChatLimits, Work) {
  const std::string loops = "{% for a in range(100000) %}{% for b in range(100000) %}";
  const std::string ends = "{% endfor %}{% endfor %}";
  ExpectBounded(loops + "{{ a }}" + ends, "limit");
  ExpectBounded("{% set s = 'ab' * 1000000 %}" + loops + "{{ 'x' in s }}{{ s|length }}" + ends, "limit");
  ExpectBounded(
      "{% set s = 'ab' * 1000000 %}" + loops + "{% set q = s|upper %}{% set q = s.replace('a', 'c') %}" + ends,
      "limit");
  ExpectBounded("{% set s = 'ab' * 1000000 %}" + loops + "{% set q = s.split('a') %}" + ends, "limit");
  ExpectBounded("{% set s = 'ab' * 1000000 %}" + loops + "{% set q = s[::-1] %}" + ends, "limit");
  ExpectBounded("{% set s = ' ' * 4000000 %}" + loops + "{% set q = s|trim %}{% set q = s.split() %}" + ends, "limit");
  ExpectBounded("{% set l = range(100000)|list %}" + loops + "{{ l == l[:] }}{{ 5 in l[1:] }}" + ends, "limit");
  ExpectBounded("{% set l = range(100000)|list %}" + loops + "{% set q = l|sort|reverse|list|sum %}" + ends, "limit");
  ExpectBounded("{% set l = range(100000)|list %}" + loops + "{% set q = l|tojson %}" + ends, "limit");
  ExpectBounded("{% set l = range(100000)|list %}" + loops + "{% set q = l + l %}" + ends, "limit");
  ExpectBounded("{% set l = range(5000)|map('string')|list %}" + loops + "{% set q = l|unique|join('-') %}" + ends,
                "limit");
  ExpectBounded(loops + "{% set ns = namespace(a=a, b=b, c=[a, b], d={a: b}) %}" + ends, "limit");
  ExpectBounded(loops + "{% macro m() %}{{ a }}{% endmacro %}{{ m() }}" + ends, "limit");
}

TEST(ChatLimits, Memory) {
  ExpectBounded("{{ '%100000000d' % 1 }}", "width");
  ExpectBounded("{{ '%*d' % (100000, 1) * 1000 }}", "limit on memory");
  ExpectBounded("{{ '{:999999999}'.format('a') }}", "format");
  ExpectBounded("{{ 'a'.center(1000000000) }}", "limit on memory");
  ExpectBounded("{{ 'a'.zfill(1000000000) }}", "limit on memory");
  ExpectBounded("{{ 'a'|indent(1000000000, true) }}", "limit on memory");
  ExpectBounded("{{ 1|tojson(indent=1000000000) }}", "indent");
  ExpectBounded("{{ [1] * 1000000000 }}", "limit on memory");
  ExpectBounded("{{ [1]|batch(1000000000, 0)|list }}", "too many");
  ExpectBounded("{{ [1]|slice(1000000000)|list }}", "too many");
  ExpectBounded("{{ ('a' * 1000000).replace('a', 'b' * 1000) }}", "limit");
  ExpectBounded("{{ ('a' * 100000)|join('b' * 1000) }}", "limit");
  ExpectBounded("{{ strftime_now('%c' * 100000) }}", "too long");
  ExpectBounded("{% for i in range(100000) %}" + std::string(1000, 'x') + "{% endfor %}", "limit on memory");
  ExpectBounded(
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = ns.l + ['a' ~ i] %}{% endfor %}",
      "limit");
  ExpectBounded("{{ ('\\n' * 1000000).splitlines() }}", "limit");
  ExpectBounded("{{ '{a}'.format(a=('x' * 5000000)) ~ ('y' * 5000000) ~ ('z' * 7000000) }}", "limit on memory");
}

TEST(ChatLimits, Depth) {
  ExpectBounded("{{ " + std::string(10000, '(') + "1" + std::string(10000, ')') + " }}", "nested deeper");
  ExpectBounded("{{ " + std::string(10000, '[') + std::string(10000, ']') + " }}", "nested deeper");
  ExpectBounded("{{ " + Repeat("{1: ", 10000) + "1" + std::string(10000, '}') + " }}", "nested deeper");
  ExpectBounded("{{ " + Repeat("not ", 10000) + "1 }}", "nested deeper");
  ExpectBounded("{{ " + Repeat("- ", 10000) + "1 }}", "nested deeper");
  ExpectBounded("{{ " + Repeat("f(", 10000) + Repeat(")", 10000) + " }}", "nested deeper");
  ExpectBounded("{{ " + Repeat("a[", 10000) + "1" + Repeat("]", 10000) + " }}", "nested deeper");
  ExpectBounded("{{ " + Repeat("1 if x else ", 10000) + "1 }}", "nested deeper");
  ExpectBounded("{{ 1" + Repeat(" + 1", 10000) + " }}", "levels");
  ExpectBounded("{{ 1" + Repeat(" ** 1", 10000) + " }}", "levels");
  ExpectBounded("{{ 1" + Repeat(" and 1", 10000) + " }}", "levels");
  ExpectBounded("{{ a" + Repeat(".b", 10000) + " }}", "levels");
  ExpectBounded("{{ a" + Repeat("|upper", 10000) + " }}", "levels");
  ExpectBounded("{{ a" + Repeat(" is defined", 10000) + " }}", "chain");
  ExpectBounded("{{ 1" + Repeat(" if 1", 10000) + " }}", "levels");
  ExpectBounded("{% set " + std::string(10000, '(') + "a" + std::string(10000, ')') + " = 1 %}", "nested deeper");
  ExpectBounded(Repeat("{% if 1 %}", 10000) + Repeat("{% endif %}", 10000), "nested deeper");
  ExpectBounded(Repeat("{% for i in [1] %}", 10000), "nested deeper");
  ExpectBounded("{{ " + Repeat("x|map(", 500) + "1" + Repeat(")", 500) + " }}", "nested deeper");
  // Wide is not deep.
  EXPECT_TRUE(RenderText("{{ [" + Repeat("1, ", 10000) + "]|sum }}{{ 1" + Repeat(" ~ 1", 5000) + " }}").ok());
  EXPECT_TRUE(RenderText(Repeat("{% if 1 %}x{% endif %}", 10000)).ok());
}

TEST(ChatLimits, DepthOfValues) {
  const std::string nest =
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}";
  for (const char* use : {"{{ ns.l }}", "{{ ns.l|tojson }}", "{{ ns.l == [ns.l] }}", "{{ '%r' % (ns.l,) }}"}) {
    ExpectBounded(nest + use, "limit on depth");
  }
  // A namespace that holds itself.
  ExpectBounded("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "limit on depth");
  ExpectBounded("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "limit on depth");
  ExpectBounded(
      "{% macro f() %}{{ caller() }}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{% call f() %}{% endcall %}",
      "");
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  ChatRenderInput input;
  input.arguments = {{"deep", deep}};
  ExpectBounded("{{ deep }}", "nested deeper", input);
  input.arguments = nullptr;
  input.messages = Json::array({{{"role", "user"}, {"content", deep}}});
  ExpectBounded("{{ messages }}", "nested deeper", input);
}

TEST(ChatLimits, SizeOfTheSource) {
  EXPECT_FALSE(ChatTemplate::Create(std::string(2 << 20, 'x'), {}, "f").ok());
  EXPECT_TRUE(ChatTemplate::Create(std::string(1 << 19, 'x'), {}, "f").ok());
}

// Every cut of a template either parses or is an error; none crashes or hangs.
TEST(ChatLimits, CutTemplates) {
  for (const char* kind : {"qwen2", "o200k", "metaspace_bpe"}) {
    const std::string source = ReadTestJson(std::string(kind) + ".json")["tokenizer_config"]["chat_template"];
    for (size_t cut = 0; cut < source.size(); cut += 3) {
      (void)RenderText(source.substr(0, cut));
      (void)RenderText(source.substr(cut, 200));
    }
  }
}

// A long conversation is not an attack: a megabyte of text, a thousand messages.
TEST(ChatLimits, LongConversationsPass) {
  ChatRenderInput input;
  input.messages = Json::array();
  for (int i = 0; i < 1000; ++i) {
    input.messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(1000, 'a' + i % 26)}});
  }
  for (const char* kind : {"gpt2", "gpt_neox", "qwen2", "llama3", "o200k", "deepseek_v3", "mixtral", "gemma"}) {
    const Json config = ReadTestJson(std::string(kind) + ".json")["tokenizer_config"];
    const double start = CpuSeconds();
    const auto text = RenderText(config["chat_template"], input);
    RecordProperty(kind, std::to_string(1000 * (CpuSeconds() - start)) + " ms");
    ASSERT_TRUE(text.ok()) << kind << ": " << text.status();
    EXPECT_GT(text->size(), 1000u * 1000u);
  }
  // One message of two megabytes.
  input.messages = UserMessage(std::string(2 << 20, 'x'));
  const auto text = RenderText(ReadTestJson("qwen2.json")["tokenizer_config"]["chat_template"], input);
  ASSERT_TRUE(text.ok()) << text.status();
}

}  // namespace
}  // namespace moe
