// Generate and GenerateStream over real gRPC: what comes back, and how it adds up.
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"

namespace moe::testing {
namespace {

const std::string kText = "But soft, what light through yonder window breaks? ";

class GenerateTest : public ServerTest {};

// All chunks of a stream, put together per choice.
struct Collected {
  std::vector<v1::Choice> choices;
  std::vector<v1::GenerateChunk> chunks;
  RpcStatus status;
};

Collected Collect(Stream* stream, size_t num_choices = 1) {
  Collected all;
  all.choices.resize(num_choices);
  v1::GenerateChunk chunk;
  while (stream->Read(&chunk)) {
    v1::Choice& choice = all.choices.at(chunk.index());
    EXPECT_EQ(choice.finish_reason(), v1::FINISH_REASON_UNSPECIFIED) << "a chunk after the last one of a choice";
    choice.set_text(choice.text() + chunk.delta().text());
    choice.mutable_token_ids()->MergeFrom(chunk.delta().token_ids());
    choice.mutable_logprobs()->MergeFrom(chunk.delta().logprobs());
    choice.set_finish_reason(chunk.delta().finish_reason());
    choice.set_stop_match(chunk.delta().stop_match());
    all.chunks.push_back(chunk);
  }
  all.status = stream->Finish();
  return all;
}

TEST_F(GenerateTest, UnaryCarriesEverything) {
  Start(Says(kText));
  v1::GenerateRequest request = TextRequest("O Romeo", 5);
  request.set_request_id("mine");
  request.mutable_output()->set_logprobs(2);
  request.mutable_output()->set_prompt_logprobs(1);
  request.mutable_output()->set_routed_experts(true);
  v1::GenerateResponse response;
  ASSERT_EQ(client_->Generate(request, &response), kOk);
  EXPECT_EQ(response.request_id(), "mine");
  EXPECT_EQ(response.model(), "test-model");
  ASSERT_EQ(response.choices_size(), 1);
  const v1::Choice& choice = response.choices(0);
  EXPECT_EQ(choice.token_ids_size(), 5);
  EXPECT_EQ(choice.text(), kText.substr(0, choice.text().size()));
  EXPECT_EQ(choice.finish_reason(), v1::FINISH_REASON_LENGTH);
  ASSERT_EQ(choice.logprobs_size(), 5);
  EXPECT_EQ(choice.logprobs(0).token_id(), choice.token_ids(0));
  EXPECT_EQ(choice.logprobs(0).top_size(), 2);
  const int prompt = static_cast<int>(response.usage().prompt_tokens());
  EXPECT_EQ(prompt, static_cast<int>(Ids(engine_->model(), "O Romeo").size()));
  ASSERT_EQ(response.prompt_logprobs_size(), prompt);
  EXPECT_EQ(response.prompt_logprobs(0).ByteSizeLong(), 0u) << "nothing precedes the first token";
  EXPECT_EQ(response.prompt_logprobs(1).rank(), 2u);
  EXPECT_EQ(choice.routed_experts().tokens(), static_cast<uint32_t>(prompt + 4));
  EXPECT_EQ(static_cast<uint32_t>(choice.routed_experts().expert_ids_size()),
            choice.routed_experts().tokens() * choice.routed_experts().moe_layers() *
                choice.routed_experts().experts_per_token());
  EXPECT_EQ(response.usage().generated_tokens(), 5u);
  EXPECT_GT(response.usage().total_seconds(), 0);
}

TEST_F(GenerateTest, StreamAddsUpToTheUnaryAnswer) {
  Start(Says(kText));
  const v1::GenerateRequest request = TextRequest("O Romeo", 12);
  v1::GenerateResponse unary;
  ASSERT_EQ(client_->Generate(request, &unary), kOk);
  const auto stream = client_->GenerateStream(request);
  const Collected all = Collect(stream.get());
  ASSERT_EQ(all.status, kOk);
  ASSERT_FALSE(all.chunks.empty());
  EXPECT_EQ(all.choices[0].text(), unary.choices(0).text());
  EXPECT_EQ(all.choices[0].finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_GT(all.chunks.front().usage().prompt_tokens(), 0u) << "the first chunk tells of the prompt";
  EXPECT_EQ(all.chunks.back().usage().generated_tokens(), 12u);
  EXPECT_GT(all.chunks.back().usage().total_seconds(), 0) << "the last chunk has the times";
  for (const v1::GenerateChunk& chunk : all.chunks) EXPECT_GT(chunk.delta().token_ids_size(), 0);
}

TEST_F(GenerateTest, FirstChunkCarriesPromptLogprobs) {
  Start(Says(kText));
  v1::GenerateRequest request = TextRequest("O Romeo, Romeo", 3);
  request.mutable_output()->set_prompt_logprobs(0);
  const auto stream = client_->GenerateStream(request);
  const Collected all = Collect(stream.get());
  ASSERT_EQ(all.status, kOk);
  EXPECT_EQ(all.chunks.front().prompt_logprobs_size(), static_cast<int>(all.chunks.front().usage().prompt_tokens()));
  for (size_t i = 1; i < all.chunks.size(); ++i) EXPECT_EQ(all.chunks[i].prompt_logprobs_size(), 0);
}

TEST_F(GenerateTest, StopStringOverTokenBorders) {
  Start(Says(kText));
  v1::GenerateRequest request = TextRequest("O Romeo", 200);
  request.mutable_stopping()->add_stop("ndow br");
  const auto stream = client_->GenerateStream(request);
  const Collected all = Collect(stream.get());
  ASSERT_EQ(all.status, kOk);
  EXPECT_EQ(all.choices[0].text(), "But soft, what light through yonder wi");
  EXPECT_EQ(all.choices[0].finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(all.choices[0].stop_match(), "ndow br");
  EXPECT_EQ(all.chunks.back().usage().generated_tokens(), static_cast<uint32_t>(all.choices[0].token_ids_size()));

  request.mutable_stopping()->set_include_stop(true);
  v1::GenerateResponse response;
  ASSERT_EQ(client_->Generate(request, &response), kOk);
  EXPECT_EQ(response.choices(0).text(), "But soft, what light through yonder window br");
  EXPECT_TRUE(Eventually([&] { return engine_->Unfinished() == 0; }));
}

TEST_F(GenerateTest, EndTokenIsInTheIdsButNotInTheText) {
  FakeEngineOptions options;
  const auto model = TestModel();
  std::vector<int32_t> ids = Ids(*model, "Good night");
  ids.push_back(model->eos_token_ids.front());
  options.script = [ids](const Request&, uint32_t) { return ids; };
  Start(options);
  v1::GenerateResponse response;
  ASSERT_EQ(client_->Generate(TextRequest("x", 100), &response), kOk);
  EXPECT_EQ(response.choices(0).text(), "Good night");
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_EOS);
  EXPECT_EQ(response.choices(0).token_ids_size(), static_cast<int>(ids.size()));
}

TEST_F(GenerateTest, SeveralChoicesEachEndOnce) {
  FakeEngineOptions options;
  const auto model = TestModel();
  const std::vector<std::vector<int32_t>> scripts = {Ids(*model, "alpha "), Ids(*model, "beta "),
                                                     Ids(*model, "gamma ")};
  options.script = [scripts](const Request&, uint32_t choice) { return scripts[choice]; };
  Start(options);
  v1::GenerateRequest request = TextRequest("x", 9);
  request.mutable_sampling()->set_n(3);
  v1::GenerateResponse response;
  ASSERT_EQ(client_->Generate(request, &response), kOk);
  ASSERT_EQ(response.choices_size(), 3);
  const auto stream = client_->GenerateStream(request);
  const Collected all = Collect(stream.get(), 3);
  ASSERT_EQ(all.status, kOk);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(response.choices(i).index(), static_cast<uint32_t>(i));
    EXPECT_EQ(all.choices[static_cast<size_t>(i)].text(), response.choices(i).text());
    EXPECT_EQ(all.choices[static_cast<size_t>(i)].finish_reason(), v1::FINISH_REASON_LENGTH);
  }
  EXPECT_EQ(response.usage().generated_tokens(), 27u);
}

TEST_F(GenerateTest, IdsOnly) {
  Start(Says(kText));
  v1::GenerateRequest request = TextRequest("x", 4);
  request.mutable_output()->set_skip_text(true);
  v1::GenerateResponse response;
  ASSERT_EQ(client_->Generate(request, &response), kOk);
  EXPECT_EQ(response.choices(0).text(), "");
  EXPECT_EQ(response.choices(0).token_ids_size(), 4);
}

TEST_F(GenerateTest, PromptsThatDoNotFit) {
  FakeEngineOptions options = Says(kText);
  options.max_model_len = 320;
  Start(options);
  v1::ModelInfo info;
  ASSERT_EQ(client_->GetModel("", &info), kOk);
  EXPECT_EQ(info.max_context_tokens(), 320u);
  v1::GenerateRequest request;
  for (int i = 0; i < 319; ++i) request.mutable_tokens()->add_ids(5);
  request.mutable_stopping()->set_max_new_tokens(4294967295u);
  v1::GenerateResponse response;
  ASSERT_EQ(client_->Generate(request, &response), kOk);
  EXPECT_EQ(response.usage().generated_tokens(), 1u) << "clamped to what is left";
  request.mutable_tokens()->add_ids(5);
  request.mutable_tokens()->add_ids(5);
  const RpcStatus status = client_->Generate(request, &response);
  EXPECT_EQ(status, kInvalidArgument);
  EXPECT_NE(status.message.find("tokens.ids: 321"), std::string::npos) << status;
  EXPECT_NE(status.message.find("[1, 319]"), std::string::npos) << status;
  EXPECT_EQ(client_->Generate(TextRequest(""), &response), kInvalidArgument);
}

TEST_F(GenerateTest, UnknownModel) {
  Start(Says(kText));
  v1::GenerateRequest request = TextRequest("x");
  request.set_model("other");
  v1::GenerateResponse response;
  const RpcStatus status = client_->Generate(request, &response);
  EXPECT_EQ(status, kNotFound);
  EXPECT_NE(status.message.find("test-model"), std::string::npos) << status;
  v1::ModelInfo info;
  EXPECT_EQ(client_->GetModel("other", &info), kNotFound);
  request.set_model("test-model");
  EXPECT_EQ(client_->Generate(request, &response), kOk);
}

TEST_F(GenerateTest, ControlCharactersAreText) {
  Start(Says(kText));
  for (const std::string& text : {std::string("\0abc", 4), std::string("\x07\x1b[31m"),
                                  std::string("\xef\xbb\xbf"
                                              "abc"),
                                  std::string("\xe2\x80\xae")}) {
    v1::GenerateResponse response;
    EXPECT_EQ(client_->Generate(TextRequest(text), &response), kOk);
  }
}

TEST_F(GenerateTest, MessagesThatDoNotParse) {
  Start(Says(kText));
  const std::string path = "/moe.v1.Inference/Generate";
  for (const std::string& bytes : {std::string("\x12\x02\xff\xfe"), std::string("\xff\xff\xff\xff")}) {
    const RpcStatus status = client_->RawCall(path, bytes);
    EXPECT_EQ(status, kInvalidArgument);
    EXPECT_NE(status.message.find("UTF-8"), std::string::npos) << status;
  }
  EXPECT_EQ(client_->RawCall("/moe.v1.Inference/NoSuchMethod", ""), kUnimplemented);
  EXPECT_EQ(client_->RawCall("/no.such.Service/Generate", ""), kUnimplemented);
  v1::GenerateResponse response;
  EXPECT_EQ(client_->Generate(TextRequest("x"), &response), kOk);
}

TEST_F(GenerateTest, ModelInfoIsTheModels) {
  Start(Says(kText));
  v1::ModelInfo info;
  ASSERT_EQ(client_->GetModel("test-model", &info), kOk);
  EXPECT_EQ(info.architecture(), "NemotronHForCausalLM");
  EXPECT_EQ(info.vocab_size(), 2048u);
  EXPECT_EQ(info.experts(), 32u);
  EXPECT_EQ(info.experts_per_token(), 4u);
  EXPECT_EQ(info.latent_size(), 96u);
  EXPECT_EQ(info.shared_experts(), 1u);
  EXPECT_EQ(info.backend(), "fake");
}

}  // namespace
}  // namespace moe::testing
