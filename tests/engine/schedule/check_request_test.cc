#include "engine/schedule/check_request.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace moe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Request Good() {
  Request r;
  r.prompt = {1, 2, 3};
  r.max_new_tokens = 10;
  return r;
}

ModelSpec Spec() {
  ModelSpec spec;
  spec.vocab_size = 64;
  return spec;
}

void ExpectBad(const std::string& names, const std::function<void(Request&)>& change) {
  Request r = Good();
  change(r);
  const Status status = CheckRequest(r, Spec(), 256);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << names;
  EXPECT_NE(status.message().find(names), std::string::npos) << status.message() << " does not say " << names;
}

TEST(CheckRequest, GoodOnes) {
  EXPECT_TRUE(CheckRequest(Good(), Spec(), 256).ok());
  Request r = Good();
  r.sampling.temperature = 1e-38f;
  r.sampling.top_k = 5000000;
  r.sampling.logit_bias = {{63, -kInf}, {0, 100.0f}};
  r.sampling.presence_penalty = -2;
  r.logprobs = -1;
  r.prompt_logprobs = 64;
  r.max_new_tokens = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(CheckRequest(r, Spec(), 256).ok());
}

TEST(CheckRequest, NamesFieldValueAndRange) {
  for (float t : {-1.0f, std::nanf(""), kInf, -kInf}) {
    ExpectBad("temperature", [&](Request& r) { r.sampling.temperature = t; });
  }
  ExpectBad("top_p is 0", [](Request& r) { r.sampling.top_p = 0; });
  ExpectBad("(0, 1]", [](Request& r) { r.sampling.top_p = 1.5f; });
  ExpectBad("top_p", [](Request& r) { r.sampling.top_p = std::nanf(""); });
  ExpectBad("min_p", [](Request& r) { r.sampling.min_p = -0.1f; });
  ExpectBad("repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = 0; });
  ExpectBad("presence_penalty is 2.5; allowed is [-2, 2]", [](Request& r) { r.sampling.presence_penalty = 2.5f; });
  ExpectBad("frequency_penalty", [](Request& r) { r.sampling.frequency_penalty = std::nanf(""); });
  ExpectBad("logit_bias has token 64; token ids are 0 to 63", [](Request& r) { r.sampling.logit_bias = {{64, 1.0f}}; });
  ExpectBad("logit_bias of token 3", [](Request& r) { r.sampling.logit_bias = {{3, kInf}}; });
  ExpectBad("n is 0", [](Request& r) { r.num_choices = 0; });
  ExpectBad("max_new_tokens is 0", [](Request& r) { r.max_new_tokens = 0; });
  ExpectBad("max_new_tokens is -1", [](Request& r) { r.max_new_tokens = -1; });
  ExpectBad("min_new_tokens is 11", [](Request& r) { r.min_new_tokens = 11; });
  ExpectBad("logprobs is -2", [](Request& r) { r.logprobs = -2; });
  ExpectBad("prompt_logprobs is 65", [](Request& r) { r.prompt_logprobs = 65; });
  ExpectBad("prompt is empty", [](Request& r) { r.prompt.clear(); });
  ExpectBad("prompt[1] is 64", [](Request& r) { r.prompt[1] = 64; });
  ExpectBad("prompt[0] is -1", [](Request& r) { r.prompt[0] = -1; });
}

TEST(CheckRequest, StopIdsOutsideTheVocabulary) {
  for (int32_t id : {64, -1, 2147483647}) {
    ExpectBad("stop_token_ids[1]", [&](Request& r) { r.stop_token_ids = {5, id}; });
  }
}

TEST(CheckRequest, LengthLimits) {
  Request r = Good();
  r.prompt.assign(6, 1);
  for (int64_t max_new : {int64_t{2147483647}, int64_t{4294967295}, std::numeric_limits<int64_t>::max()}) {
    r.max_new_tokens = max_new;
    EXPECT_TRUE(CheckRequest(r, Spec(), 256).ok());
    EXPECT_EQ(EffectiveMaxNewTokens(r, 256), 250);
  }
  r.prompt.assign(319, 1);
  EXPECT_TRUE(CheckRequest(r, Spec(), 320).ok());
  EXPECT_EQ(EffectiveMaxNewTokens(r, 320), 1);
  r.prompt.assign(321, 1);
  const Status status = CheckRequest(r, Spec(), 320);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("prompt has 321 tokens; the limit is 319 (max_model_len 320"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace moe
