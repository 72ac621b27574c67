// Every rule of the request mapping: what is refused, with which code and words, and which defaults are filled in.
#include "server/request_mapping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/server/server_fixture.h"

namespace moe::testing {
namespace {

const LoadedModel& Model() {
  static const std::unique_ptr<LoadedModel> model = TestModel();
  return *model;
}

v1::GenerateRequest Valid() {
  v1::GenerateRequest request;
  request.set_text("O Romeo");
  return request;
}

StatusOr<GenerateSpec> Map(const v1::GenerateRequest& request, const LoadedModel& model = Model()) {
  static const RequestLimits limits;
  return MapGenerateRequest(request, {model, limits});
}

struct BadCase {
  const char* field;  // the message starts with it
  const char* range;  // and contains this
  std::function<void(v1::GenerateRequest*)> edit;
};

TEST(RequestMappingTest, NamesFieldAndRangeOfBadValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  using R = v1::GenerateRequest*;
  const std::vector<BadCase> cases = {
      {"sampling.temperature: -1", "[0, inf)", [](R r) { r->mutable_sampling()->set_temperature(-1); }},
      {"sampling.temperature: nan", "[0, inf)", [=](R r) { r->mutable_sampling()->set_temperature(nan); }},
      {"sampling.temperature: inf", "[0, inf)", [=](R r) { r->mutable_sampling()->set_temperature(inf); }},
      {"sampling.top_p: 0", "(0, 1]", [](R r) { r->mutable_sampling()->set_top_p(0); }},
      {"sampling.top_p: 1.5", "(0, 1]", [](R r) { r->mutable_sampling()->set_top_p(1.5f); }},
      {"sampling.top_p: nan", "(0, 1]", [=](R r) { r->mutable_sampling()->set_top_p(nan); }},
      {"sampling.min_p: -0.5", "[0, 1]", [](R r) { r->mutable_sampling()->set_min_p(-0.5f); }},
      {"sampling.min_p: nan", "[0, 1]", [=](R r) { r->mutable_sampling()->set_min_p(nan); }},
      {"sampling.repetition_penalty: 0", "(0, inf)", [](R r) { r->mutable_sampling()->set_repetition_penalty(0); }},
      {"sampling.repetition_penalty: inf", "(0, inf)",
       [=](R r) { r->mutable_sampling()->set_repetition_penalty(inf); }},
      {"sampling.presence_penalty: 2.5", "[-2, 2]", [](R r) { r->mutable_sampling()->set_presence_penalty(2.5f); }},
      {"sampling.frequency_penalty: -3", "[-2, 2]", [](R r) { r->mutable_sampling()->set_frequency_penalty(-3); }},
      {"sampling.logit_bias key: 2048", "[0, 2047]",
       [](R r) { (*r->mutable_sampling()->mutable_logit_bias())[2048] = 1; }},
      {"sampling.logit_bias[5]: nan", "finite", [=](R r) { (*r->mutable_sampling()->mutable_logit_bias())[5] = nan; }},
      {"sampling.n: 129", "[0, 128]", [](R r) { r->mutable_sampling()->set_n(129); }},
      {"stopping.max_new_tokens: 0", "[1, 4294967295]", [](R r) { r->mutable_stopping()->set_max_new_tokens(0); }},
      {"stopping.min_new_tokens: 9", "[0, 8]",
       [](R r) {
         r->mutable_stopping()->set_max_new_tokens(8);
         r->mutable_stopping()->set_min_new_tokens(9);
       }},
      {"stopping.stop[0] length in bytes: 0", "[1, 1024]", [](R r) { r->mutable_stopping()->add_stop(""); }},
      {"stopping.stop[0] length in bytes: 1025", "[1, 1024]",
       [](R r) { r->mutable_stopping()->add_stop(std::string(1025, 'x')); }},
      {"stopping.stop count: 65", "[0, 64]",
       [](R r) {
         for (int i = 0; i < 65; ++i) r->mutable_stopping()->add_stop("x");
       }},
      {"stopping.stop_token_ids[0]: 2048", "[0, 2047]", [](R r) { r->mutable_stopping()->add_stop_token_ids(2048); }},
      {"stopping.stop_token_ids[0]: 4294967295", "[0, 2047]",
       [](R r) { r->mutable_stopping()->add_stop_token_ids(4294967295u); }},
      {"output.logprobs: -2", "[-1, 2048]", [](R r) { r->mutable_output()->set_logprobs(-2); }},
      {"output.logprobs: 2049", "[-1, 2048]", [](R r) { r->mutable_output()->set_logprobs(2049); }},
      {"output.prompt_logprobs: -2", "[-1, 2048]", [](R r) { r->mutable_output()->set_prompt_logprobs(-2); }},
      {"request_id length in bytes: 257", "[0, 256]", [](R r) { r->set_request_id(std::string(257, 'r')); }},
      {"cache_salt length in bytes: 257", "[0, 256]", [](R r) { r->set_cache_salt(std::string(257, 's')); }},
      {"input: is not set", "chat", [](R r) { r->clear_input(); }},
      {"tokens.ids: is empty", "", [](R r) { r->mutable_tokens(); }},
      {"tokens.ids[1]: 2048", "[0, 2047]",
       [](R r) {
         r->mutable_tokens()->add_ids(1);
         r->mutable_tokens()->add_ids(2048);
       }},
      {"chat.messages count: 0", "[1, 4096]", [](R r) { r->mutable_chat(); }},
      {"chat.messages[0].role: is empty", "", [](R r) { r->mutable_chat()->add_messages()->set_content("x"); }},
      {"chat.messages[0].extra_json: is not valid JSON", "",
       [](R r) {
         auto* m = r->mutable_chat()->add_messages();
         m->set_role("user");
         m->set_extra_json("{ZEBRA");
       }},
      {"chat.messages[0].extra_json: is a JSON array", "expected an object",
       [](R r) {
         auto* m = r->mutable_chat()->add_messages();
         m->set_role("user");
         m->set_extra_json("[]");
       }},
      {"chat.tools_json[0]: is a JSON number", "expected an object",
       [](R r) {
         r->mutable_chat()->add_messages()->set_role("user");
         r->mutable_chat()->set_tools_json("[1]");
       }},
      {"chat.template_arguments_json: is a JSON string", "expected an object",
       [](R r) {
         r->mutable_chat()->add_messages()->set_role("user");
         r->mutable_chat()->set_template_arguments_json("\"x\"");
       }},
  };
  for (const BadCase& bad : cases) {
    v1::GenerateRequest request = Valid();
    bad.edit(&request);
    const auto spec = Map(request);
    ASSERT_FALSE(spec.ok()) << bad.field;
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << bad.field;
    const std::string message(spec.status().message());
    EXPECT_EQ(message.rfind(bad.field, 0), 0u) << message << " does not start with " << bad.field;
    EXPECT_NE(message.find(bad.range), std::string::npos) << message << " lacks " << bad.range;
    EXPECT_EQ(message.find("ZEBRA"), std::string::npos) << "content leaked: " << message;
  }
}

TEST(RequestMappingTest, DefaultsOfTheProto) {
  const auto spec = Map(Valid());
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const SamplingParams& sampling = spec->request.sampling;
  EXPECT_EQ(sampling.temperature, 1.0f);
  EXPECT_EQ(sampling.top_p, 1.0f);
  EXPECT_EQ(sampling.top_k, 0u);
  EXPECT_EQ(sampling.min_p, 0.0f);
  EXPECT_EQ(sampling.repetition_penalty, 1.0f);
  EXPECT_EQ(spec->request.num_choices, 1u);
  EXPECT_EQ(spec->request.max_new_tokens, 4294967295);
  EXPECT_EQ(spec->request.id.size(), 32u);
  EXPECT_EQ(spec->request.eos_token_ids, Model().eos_token_ids);
  EXPECT_FALSE(spec->request.logprobs.has_value());
  EXPECT_TRUE(spec->text_wanted.show);
}

TEST(RequestMappingTest, RequestsWithoutASeedDiffer) {
  const auto a = Map(Valid());
  const auto b = Map(Valid());
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->request.sampling.seed, b->request.sampling.seed);
  EXPECT_NE(a->request.id, b->request.id);
  v1::GenerateRequest request = Valid();
  request.mutable_sampling()->set_seed(0);
  const auto c = Map(request);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->request.sampling.seed, 0u);
}

TEST(RequestMappingTest, GenerationConfigFillsWhatTheRequestLeavesOpen) {
  auto model = TestModel();
  model->generation.temperature = 0.5;
  model->generation.top_p = 0.75;
  model->generation.top_k = 20;
  model->generation.max_new_tokens = 33;
  model->generation.repetition_penalty = 1.25;
  auto spec = Map(Valid(), *model);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->request.sampling.temperature, 0.5f);
  EXPECT_EQ(spec->request.sampling.top_p, 0.75f);
  EXPECT_EQ(spec->request.sampling.top_k, 20u);
  EXPECT_EQ(spec->request.sampling.repetition_penalty, 1.25f);
  EXPECT_EQ(spec->request.max_new_tokens, 33);

  model->generation.do_sample = false;  // greedy, unless the request says otherwise
  spec = Map(Valid(), *model);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->request.sampling.temperature, 0.0f);
  v1::GenerateRequest request = Valid();
  request.mutable_sampling()->set_temperature(0.25f);
  request.mutable_sampling()->set_top_k(0);
  spec = Map(request, *model);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->request.sampling.temperature, 0.25f);
  EXPECT_EQ(spec->request.sampling.top_k, 0u);
}

TEST(RequestMappingTest, ConstraintsAreNotOfferedYet) {
  v1::GenerateRequest request = Valid();
  request.mutable_constraint()->set_regex("ZEBRA.*");
  const auto spec = Map(request);
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(spec.status().message().find("ZEBRA"), std::string::npos);
}

TEST(RequestMappingTest, TextNeedsATokenizer) {
  const auto model = TestModelWithoutText();
  EXPECT_EQ(Map(Valid(), *model).status().code(), absl::StatusCode::kFailedPrecondition);

  v1::GenerateRequest request;
  request.mutable_tokens()->add_ids(1);
  EXPECT_EQ(Map(request, *model).status().code(), absl::StatusCode::kFailedPrecondition) << "text is wanted back";
  request.mutable_output()->set_skip_text(true);
  EXPECT_TRUE(Map(request, *model).ok());
  request.mutable_stopping()->add_stop("x");
  EXPECT_EQ(Map(request, *model).status().code(), absl::StatusCode::kFailedPrecondition);

  v1::GenerateRequest chat;
  chat.mutable_chat()->add_messages()->set_role("user");
  EXPECT_EQ(Map(chat, *model).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RequestMappingTest, ChatKeepsOrderAndExtraKeys) {
  v1::Chat chat;
  v1::ChatMessage* message = chat.add_messages();
  message->set_role("assistant");
  message->set_content("replaced");
  message->set_extra_json(R"({"zeta": 1, "alpha": 2, "content": null})");
  chat.set_continue_final_message(true);
  const RequestLimits limits;
  const auto mapped = MapChat(chat, "chat", limits);
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  EXPECT_EQ(mapped->messages[0].dump(), R"({"role":"assistant","content":null,"zeta":1,"alpha":2})");
  EXPECT_TRUE(mapped->continue_final_message);
  EXPECT_FALSE(mapped->add_generation_prompt);
}

}  // namespace
}  // namespace moe::testing
