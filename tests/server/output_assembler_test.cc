// Chunks to deltas: stop strings, dropped tokens, finish reasons, the account; and how deltas merge.
#include "server/output_assembler.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"

namespace moe::testing {
namespace {

const LoadedModel& Model() {
  static const std::unique_ptr<LoadedModel> model = TestModel();
  return *model;
}

OutputChunk Chunk(const std::vector<int32_t>& ids, FinishReason finish = FinishReason::kNone, uint32_t choice = 0) {
  OutputChunk chunk;
  chunk.choice = choice;
  chunk.finish = finish;
  for (int32_t id : ids) chunk.tokens.push_back({id, 0, 0, {}});
  return chunk;
}

TextWanted Stops(std::vector<std::string> stops, bool show = true) {
  TextWanted wanted;
  wanted.show = show;
  wanted.options.stop = std::move(stops);
  return wanted;
}

TEST(OutputAssemblerTest, StopStringEndsTheChoiceAndDropsLaterTokens) {
  OutputAssembler assembler(Model().tokenizer.get(), Stops({"STOP"}), 1);
  std::vector<int32_t> ids = Ids(Model(), "fooSTOPbarbarbar");
  ASSERT_GT(ids.size(), 6u);
  OutputChunk chunk = Chunk(ids);
  chunk.expert_rows = static_cast<uint32_t>(ids.size());  // prompt of one token: a row for it and all but the last
  chunk.expert_ids.assign(ids.size() * 2, 1);
  bool stop_found = false;
  const Delta delta = assembler.Take(std::move(chunk), &stop_found);
  EXPECT_TRUE(stop_found);
  EXPECT_EQ(delta.text, "foo");
  EXPECT_EQ(delta.finish, FinishReason::kStop);
  EXPECT_EQ(delta.stop_match, "STOP");
  EXPECT_LT(delta.tokens.size(), ids.size());
  EXPECT_EQ(assembler.generated_tokens(), delta.tokens.size()) << "tokens after the match do not count";
  EXPECT_EQ(delta.expert_rows, delta.tokens.size());
  EXPECT_EQ(delta.expert_ids.size(), delta.tokens.size() * 2);
  EXPECT_TRUE(assembler.AllFinished());

  const Delta late = assembler.Take(Chunk(ids, FinishReason::kStop), &stop_found);
  EXPECT_FALSE(stop_found);
  EXPECT_TRUE(late.tokens.empty());
  EXPECT_EQ(late.finish, FinishReason::kNone);
}

TEST(OutputAssemblerTest, StopStringOverTokensIsNeverSent) {
  OutputAssembler assembler(Model().tokenizer.get(), Stops({"ghthouse"}), 1);
  std::string text;
  bool stop_found = false;
  for (int32_t id : Ids(Model(), "An old lighthouse here")) {
    text += assembler.Take(Chunk({id}), &stop_found).text;
    if (stop_found) break;
  }
  EXPECT_TRUE(stop_found);
  EXPECT_EQ(text, "An old li");
}

TEST(OutputAssemblerTest, AStopStringInTheLastTokensBeatsLength) {
  OutputAssembler assembler(Model().tokenizer.get(), Stops({"END"}), 1);
  bool stop_found = false;
  const Delta delta = assembler.Take(Chunk(Ids(Model(), "xEND"), FinishReason::kLength), &stop_found);
  EXPECT_FALSE(stop_found) << "the engine has ended the choice itself";
  EXPECT_EQ(delta.finish, FinishReason::kStop);
  EXPECT_EQ(delta.text, "x");
}

TEST(OutputAssemblerTest, HeldBackTextComesAtTheEnd) {
  OutputAssembler assembler(Model().tokenizer.get(), Stops({"ghost"}), 1);
  bool stop_found = false;
  Delta delta = assembler.Take(Chunk(Ids(Model(), "a gho")), &stop_found);
  EXPECT_EQ(delta.text, "a ");
  delta = assembler.Take(Chunk({}, FinishReason::kLength), &stop_found);
  EXPECT_EQ(delta.text, "gho");
  EXPECT_EQ(delta.finish, FinishReason::kLength);
}

TEST(OutputAssemblerTest, TheEndTokenHasNoText) {
  for (bool keep : {false, true}) {
    TextWanted wanted;
    wanted.options.keep_special_tokens = keep;
    OutputAssembler assembler(Model().tokenizer.get(), wanted, 1);
    std::vector<int32_t> ids = Ids(Model(), "bye");
    ids.push_back(Model().eos_token_ids.front());
    bool stop_found = false;
    const Delta delta = assembler.Take(Chunk(ids, FinishReason::kEos), &stop_found);
    EXPECT_EQ(delta.text, "bye");
    EXPECT_EQ(delta.tokens.size(), ids.size());
  }
}

TEST(OutputAssemblerTest, IdsOnlyStillStops) {
  OutputAssembler assembler(Model().tokenizer.get(), Stops({"STOP"}, /*show=*/false), 1);
  bool stop_found = false;
  const Delta delta = assembler.Take(Chunk(Ids(Model(), "fooSTOP")), &stop_found);
  EXPECT_TRUE(stop_found);
  EXPECT_TRUE(delta.text.empty());
  EXPECT_EQ(delta.finish, FinishReason::kStop);

  TextWanted none;
  none.show = false;
  OutputAssembler without(nullptr, none, 2);
  EXPECT_EQ(without.Take(Chunk({1, 2, 3}), &stop_found).tokens.size(), 3u);
  EXPECT_FALSE(without.AllFinished());
}

TEST(OutputAssemblerTest, CharactersAreNeverSplit) {
  OutputAssembler assembler(Model().tokenizer.get(), {}, 1);
  std::string text;
  bool stop_found = false;
  for (int32_t id : Ids(Model(), "日本 😀")) {
    const std::string piece = assembler.Take(Chunk({id}), &stop_found).text;
    EXPECT_EQ(piece.find("\xef\xbf\xbd"), std::string::npos);
    text += piece;
  }
  text += assembler.Take(Chunk({}, FinishReason::kLength), &stop_found).text;
  EXPECT_EQ(text, "日本 😀");
}

TEST(DeltaTest, AppendingAddsUp) {
  Delta a;
  a.text = "ab";
  a.tokens = {{1, 0, 0, {}}};
  a.expert_rows = 1;
  a.expert_ids = {4, 5};
  Delta b;
  b.text = "cd";
  b.tokens = {{2, 0, 0, {}}, {3, 0, 0, {}}};
  b.expert_rows = 2;
  b.expert_ids = {6, 7, 8, 9};
  b.finish = FinishReason::kStop;
  b.stop_match = "x";
  const int64_t sum = a.Bytes() + b.Bytes();
  a.Append(b);
  EXPECT_EQ(a.text, "abcd");
  EXPECT_EQ(a.tokens.size(), 3u);
  EXPECT_EQ(a.expert_rows, 3u);
  EXPECT_EQ(a.expert_ids, (std::vector<int32_t>{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(a.finish, FinishReason::kStop);
  EXPECT_EQ(a.stop_match, "x");
  EXPECT_LE(a.Bytes(), sum);
}

}  // namespace
}  // namespace moe::testing
