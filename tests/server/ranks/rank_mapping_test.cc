// Every report and order comes back from its message bit for bit, whole and in pieces; what does not fit together is an
// error, and no bytes end the process.
#include "server/ranks/rank_mapping.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <deque>
#include <limits>
#include <random>

#include "server/ranks/rank_fragments.h"

namespace moe {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t Bits() { return engine_(); }
  int Below(int n) { return static_cast<int>(engine_() % static_cast<uint64_t>(n)); }
  bool Coin() { return (engine_() & 1) != 0; }
  int32_t Id() { return static_cast<int32_t>(engine_() >> 33); }
  int64_t Count() { return static_cast<int64_t>(engine_() >> (1 + Below(60))); }
  // Any bits but a signalling NaN's; often the awkward ones.
  float Float() {
    static constexpr float kAwkward[] = {0.0f,
                                         -0.0f,
                                         std::numeric_limits<float>::infinity(),
                                         -std::numeric_limits<float>::infinity(),
                                         std::numeric_limits<float>::denorm_min(),
                                         std::numeric_limits<float>::quiet_NaN()};
    if (Below(4) == 0) return kAwkward[Below(6)];
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(engine_()));
    return std::isnan(value) ? 1.0f : value;
  }
  std::string Bytes(int max) {
    std::string text(static_cast<size_t>(Below(max + 1)), '\0');
    for (char& c : text) c = static_cast<char>(engine_());
    return text;
  }
  template <typename Fn>
  auto Some(int max, Fn fn) {
    std::vector<decltype(fn())> all(static_cast<size_t>(Below(max + 1)));
    for (auto& one : all) one = fn();
    return all;
  }
  std::vector<int32_t> Ids(int max) {
    return Some(max, [&] { return Id(); });
  }
  Status AnyStatus(bool ok) {
    return ok ? Status() : Status(static_cast<absl::StatusCode>(1 + Below(16)), "x" + Bytes(20));
  }

 private:
  std::mt19937_64 engine_;
};

TokenInfo RandomToken(Random& random) {
  TokenInfo token{random.Id(), random.Float(), static_cast<uint32_t>(random.Bits()), {}};
  token.top = random.Some(random.Coin() ? 0 : 5, [&] { return TokenProb{random.Id(), random.Float()}; });
  return token;
}

RankResult RandomResult(Random& random) {
  RankResult result;
  result.slices = random.Some(4, [&] {
    return SliceResult{random.Bits(), random.Some(4, [&] { return RandomToken(random); }),
                       random.Some(4, [&] { return RandomToken(random); }), random.Ids(30), random.Coin()};
  });
  for (SliceResult& slice : result.slices) slice.not_finite = random.Coin();
  result.expert_tokens = random.Some(20, [&] { return random.Count(); });
  result.rows_computed = random.Count();
  result.exchange = {random.Count(), random.Count(), random.Count(), random.Count(), random.Count()};
  for (double* seconds : {&result.compute_seconds, &result.exchange.counts_seconds, &result.exchange.dispatch_seconds,
                          &result.exchange.combine_seconds}) {
    *seconds = static_cast<double>(random.Bits()) * 1e-20;
  }
  return result;
}

ExpertLists RandomExperts(Random& random) {
  return random.Some(4, [&] {
    std::vector<int32_t> experts;
    for (int32_t e = 0; e < 20; ++e) {
      if (random.Coin()) experts.push_back(e);
    }
    return experts;
  });
}

ExpertPlacement RandomPlacement(Random& random, int num_ranks) {
  std::vector<std::vector<int32_t>> ranks(static_cast<size_t>(random.Below(9)));
  std::vector<std::vector<float>> shares;
  for (auto& holders : ranks) {
    holders.push_back(random.Below(num_ranks));
    if (num_ranks > 1 && random.Coin()) holders.push_back((holders[0] + 1) % num_ranks);
    const float first = holders.size() == 1 ? 1.0f : static_cast<float>(random.Below(1000)) / 1000.0f;
    shares.push_back(holders.size() == 1 ? std::vector<float>{1.0f} : std::vector<float>{first, 1.0f - first});
  }
  return *ExpertPlacement::FromShares(ranks, shares, num_ranks);
}

SequenceInit RandomSequence(Random& random) {
  SequenceInit sequence;
  sequence.id = random.Bits();
  sequence.tokens = random.Ids(40);
  sequence.prompt_len = random.Below(static_cast<int>(sequence.tokens.size()) + 1);
  sequence.choice = static_cast<uint32_t>(random.Bits());
  sequence.sampling = {random.Float(), random.Float(), static_cast<uint32_t>(random.Bits()),
                       random.Float(), random.Float(), random.Float(),
                       random.Float(), random.Bits(),  {}};
  sequence.sampling.logit_bias = random.Some(4, [&] { return std::pair(random.Id(), random.Float()); });
  sequence.min_new_tokens = random.Count();
  sequence.end_ids = random.Ids(3);
  if (random.Coin()) sequence.logprobs = random.Below(20) - 1;
  if (random.Coin()) sequence.prompt_logprobs = random.Below(20) - 1;
  sequence.routed_experts = random.Coin();
  sequence.state_slot = random.Below(5) - 1;
  sequence.state_snapshot = random.Below(5) - 1;
  sequence.long_context = random.Coin();
  return sequence;
}

SlicePlan RandomSlice(Random& random) {
  SlicePlan slice{random.Bits(), random.Below(100000), 10 + random.Below(100), random.Ids(5),
                  random.Coin(), random.Ids(5),        random.Below(4) - 1};
  return slice;
}

RankReport RandomReport(Random& random, int kind) {
  const bool ok = random.Coin();
  switch (kind) {
    case 0:
      return RankHello{random.Bytes(20), random.Bytes(20), random.Bytes(20),
                       random.Some(4, [&] { return random.Bytes(12); })};
    case 1:
      return RankProgress{random.Below(1000) / 999.0};
    case 2:
      return RankLoaded{random.Count(), random.Count()};
    case 3:
      return RankFailed{random.AnyStatus(false)};
    case 4:
      return StoreEntry{random.Bits(), random.Bytes(30), random.Bytes(300)};
    case 5:
      return RankFormed{random.Bits(), random.AnyStatus(ok), random.Below(9) - 1};
    case 6:
      return RankPrepared{random.Bits(), random.AnyStatus(ok)};
    default:
      return RankStepDone{random.Bits(), random.Bits(), random.AnyStatus(ok), random.Below(9) - 1,
                          ok ? RandomResult(random) : RankResult()};
  }
}
constexpr int kReports = 8;

RankOrder RandomOrder(Random& random, int kind) {
  switch (kind) {
    case 0:
      return RefuseRank{random.Bytes(20)};
    case 1:
      return LoadRank{random.Below(256), random.Bytes(20), random.Bytes(20), RandomExperts(random)};
    case 2:
      return ConfigureRank{random.Count(), random.Count(), random.Count(), random.Count()};
    case 3:
      return PrepareExperts{random.Bits(), RandomExperts(random), random.Bits() % 2 == 0};
    case 4: {
      FormGroup form;
      form.generation = random.Bits();
      form.size = 1 + random.Below(8);
      form.member = random.Below(form.size);
      form.transport = random.Coin() ? ExchangeTransport::kTcp : ExchangeTransport::kGloo;
      for (int i = random.Below(4); i > 0; --i) form.placements.push_back(RandomPlacement(random, form.size));
      form.same_group = random.Coin();
      form.undo_step = random.Bits();
      form.forget_sequences = random.Coin();
      return form;
    }
    case 5:
      return StoreEntry{random.Bits(), random.Bytes(30), random.Bytes(300)};
    case 6: {
      RankStep step{random.Bits(), random.Bits(), random.Count(), {}};
      step.plan.most_rows = random.Count();
      step.plan.drop = random.Some(4, [&] { return random.Bits(); });
      step.plan.admit = random.Some(4, [&] { return RandomSequence(random); });
      step.plan.slices = random.Some(4, [&] { return RandomSlice(random); });
      return step;
    }
    case 7:
      return AbortStep{random.Bits(), random.Bytes(20)};
    default:
      return StopRank{random.Bytes(20)};
  }
}
constexpr int kOrders = 9;

// --- Equality, bit for bit ---

void Same(float a, float b) {
  EXPECT_EQ(std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b));
}
void Same(double a, double b) {
  EXPECT_EQ(std::bit_cast<uint64_t>(a), std::bit_cast<uint64_t>(b));
}
void Same(const Status& a, const Status& b) {
  EXPECT_EQ(a, b);
}
template <typename T, typename Fn>
void SameAll(const std::vector<T>& a, const std::vector<T>& b, Fn same) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) same(a[i], b[i]);
}

void Same(const RankHello& a, const RankHello& b) {
  EXPECT_EQ(std::tie(a.build, a.checkpoint, a.host, a.backends), std::tie(b.build, b.checkpoint, b.host, b.backends));
}
void Same(const RankProgress& a, const RankProgress& b) {
  Same(a.fraction, b.fraction);
}
void Same(const RankLoaded& a, const RankLoaded& b) {
  EXPECT_EQ(std::tie(a.weight_bytes, a.available_bytes), std::tie(b.weight_bytes, b.available_bytes));
}
void Same(const RankFailed& a, const RankFailed& b) {
  Same(a.status, b.status);
}
void Same(const StoreEntry& a, const StoreEntry& b) {
  EXPECT_EQ(std::tie(a.generation, a.key, a.value), std::tie(b.generation, b.key, b.value));
}
void Same(const RankFormed& a, const RankFormed& b) {
  EXPECT_EQ(std::tie(a.generation, a.status, a.suspect), std::tie(b.generation, b.status, b.suspect));
}
void Same(const RankPrepared& a, const RankPrepared& b) {
  EXPECT_EQ(std::tie(a.ticket, a.status), std::tie(b.ticket, b.status));
}
void Same(const TokenInfo& a, const TokenInfo& b) {
  EXPECT_EQ(std::tie(a.id, a.rank), std::tie(b.id, b.rank));
  Same(a.logprob, b.logprob);
  SameAll(a.top, b.top, [](const TokenProb& x, const TokenProb& y) {
    EXPECT_EQ(x.id, y.id);
    Same(x.logprob, y.logprob);
  });
}
void Same(const RankStepDone& a, const RankStepDone& b) {
  EXPECT_EQ(std::tie(a.generation, a.step, a.status, a.suspect), std::tie(b.generation, b.step, b.status, b.suspect));
  const RankResult& x = a.result;
  const RankResult& y = b.result;
  SameAll(x.slices, y.slices, [](const SliceResult& s, const SliceResult& t) {
    EXPECT_EQ(std::tie(s.id, s.expert_ids, s.not_finite), std::tie(t.id, t.expert_ids, t.not_finite));
    const auto same = [](const TokenInfo& m, const TokenInfo& n) { Same(m, n); };
    SameAll(s.tokens, t.tokens, same);
    SameAll(s.prompt_tokens, t.prompt_tokens, same);
  });
  EXPECT_EQ(std::tie(x.expert_tokens, x.rows_computed), std::tie(y.expert_tokens, y.rows_computed));
  EXPECT_EQ(std::tie(x.exchange.count_bytes, x.exchange.dispatch_bytes, x.exchange.combine_bytes, x.exchange.rows_sent,
                     x.exchange.exchanges),
            std::tie(y.exchange.count_bytes, y.exchange.dispatch_bytes, y.exchange.combine_bytes, y.exchange.rows_sent,
                     y.exchange.exchanges));
  Same(x.compute_seconds, y.compute_seconds);
  Same(x.exchange.counts_seconds, y.exchange.counts_seconds);
  Same(x.exchange.dispatch_seconds, y.exchange.dispatch_seconds);
  Same(x.exchange.combine_seconds, y.exchange.combine_seconds);
}

void Same(const RefuseRank& a, const RefuseRank& b) {
  EXPECT_EQ(a.reason, b.reason);
}
void Same(const StopRank& a, const StopRank& b) {
  EXPECT_EQ(a.reason, b.reason);
}
void Same(const LoadRank& a, const LoadRank& b) {
  EXPECT_EQ(std::tie(a.slot, a.backend, a.dtype, a.experts), std::tie(b.slot, b.backend, b.dtype, b.experts));
}
void Same(const ConfigureRank& a, const ConfigureRank& b) {
  EXPECT_EQ(std::tie(a.kv_blocks, a.state_slots, a.state_snapshots, a.rollback_slots),
            std::tie(b.kv_blocks, b.state_slots, b.state_snapshots, b.rollback_slots));
}
void Same(const PrepareExperts& a, const PrepareExperts& b) {
  EXPECT_EQ(std::tie(a.ticket, a.experts, a.let_go), std::tie(b.ticket, b.experts, b.let_go));
}
void Same(const ExpertPlacement& a, const ExpertPlacement& b) {
  ASSERT_EQ(a.num_experts(), b.num_experts());
  EXPECT_EQ(a.num_ranks(), b.num_ranks());
  for (int64_t e = 0; e < a.num_experts(); ++e) {
    EXPECT_TRUE(std::ranges::equal(a.RanksOf(e), b.RanksOf(e)));
    ASSERT_EQ(a.SharesOf(e).size(), b.SharesOf(e).size());
    for (size_t i = 0; i < a.SharesOf(e).size(); ++i) Same(a.SharesOf(e)[i], b.SharesOf(e)[i]);
  }
}
void Same(const FormGroup& a, const FormGroup& b) {
  EXPECT_EQ(std::tie(a.generation, a.member, a.size, a.transport, a.same_group, a.undo_step, a.forget_sequences),
            std::tie(b.generation, b.member, b.size, b.transport, b.same_group, b.undo_step, b.forget_sequences));
  SameAll(a.placements, b.placements, [](const ExpertPlacement& x, const ExpertPlacement& y) { Same(x, y); });
}
void Same(const RankStep& a, const RankStep& b) {
  EXPECT_EQ(std::tie(a.generation, a.step, a.rows, a.plan.most_rows, a.plan.drop),
            std::tie(b.generation, b.step, b.rows, b.plan.most_rows, b.plan.drop));
  SameAll(a.plan.admit, b.plan.admit, [](const SequenceInit& x, const SequenceInit& y) {
    EXPECT_EQ(std::tie(x.id, x.prompt_len, x.tokens, x.choice, x.min_new_tokens, x.end_ids, x.logprobs,
                       x.prompt_logprobs, x.routed_experts, x.state_slot, x.state_snapshot, x.long_context),
              std::tie(y.id, y.prompt_len, y.tokens, y.choice, y.min_new_tokens, y.end_ids, y.logprobs,
                       y.prompt_logprobs, y.routed_experts, y.state_slot, y.state_snapshot, y.long_context));
    const SamplingParams& s = x.sampling;
    const SamplingParams& t = y.sampling;
    Same(s.temperature, t.temperature);
    Same(s.top_p, t.top_p);
    Same(s.min_p, t.min_p);
    Same(s.repetition_penalty, t.repetition_penalty);
    Same(s.presence_penalty, t.presence_penalty);
    Same(s.frequency_penalty, t.frequency_penalty);
    EXPECT_EQ(std::tie(s.top_k, s.seed), std::tie(t.top_k, t.seed));
    SameAll(s.logit_bias, t.logit_bias, [](const auto& m, const auto& n) {
      EXPECT_EQ(m.first, n.first);
      Same(m.second, n.second);
    });
  });
  SameAll(a.plan.slices, b.plan.slices, [](const SlicePlan& x, const SlicePlan& y) {
    EXPECT_EQ(std::tie(x.id, x.first_pos, x.count, x.new_blocks, x.sample, x.draft, x.save_snapshot),
              std::tie(y.id, y.first_pos, y.count, y.new_blocks, y.sample, y.draft, y.save_snapshot));
  });
}
void Same(const AbortStep& a, const AbortStep& b) {
  EXPECT_EQ(std::tie(a.generation, a.reason), std::tie(b.generation, b.reason));
}

template <typename Variant>
void SameVariant(const Variant& a, const Variant& b) {
  ASSERT_EQ(a.index(), b.index());
  std::visit([&](const auto& x) { Same(x, std::get<std::decay_t<decltype(x)>>(b)); }, a);
}

template <typename Message, typename Value>
void RoundTrip(const Value& value) {
  Message read;
  ASSERT_TRUE(read.ParseFromString(ToProto(value).SerializeAsString()));
  const auto back = FromProto(read);
  ASSERT_TRUE(back.ok()) << back.status();
  SameVariant(value, *back);
}

TEST(RankMapping, RoundTripsAreBitwise) {
  static_assert(std::variant_size_v<RankReport> == kReports && std::variant_size_v<RankOrder> == kOrders);
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    for (int kind = 0; kind < kReports; ++kind) {
      const RankReport report = RandomReport(random, kind);
      ASSERT_EQ(report.index(), static_cast<size_t>(kind));
      RoundTrip<v1::RankReportMessage>(report);
    }
    for (int kind = 0; kind < kOrders; ++kind) {
      const RankOrder order = RandomOrder(random, kind);
      ASSERT_EQ(order.index(), static_cast<size_t>(kind));
      RoundTrip<v1::RankOrderMessage>(order);
    }
    if (HasFailure()) FAIL() << "in round " << i;
  }
}

TEST(RankMapping, LongMessagesComeInPieces) {
  const StoreEntry entry{7, "key", std::string(3 * kFragmentBytes + 5, 'x')};
  std::deque<v1::RankOrderMessage> pieces;
  ASSERT_TRUE(AppendCut(ToProto(RankOrder(entry)), &pieces).ok());
  ASSERT_EQ(pieces.size(), 4u);
  FragmentJoiner<v1::RankOrderMessage> joiner;
  for (size_t i = 0; i < pieces.size(); ++i) {
    ASSERT_TRUE(pieces[i].has_fragment());
    const auto whole = joiner.Add(pieces[i]);
    ASSERT_TRUE(whole.ok());
    ASSERT_EQ(whole->has_value(), i == 3);
    if (i == 3) SameVariant(RankOrder(entry), *FromProto(**whole));
  }
  std::deque<v1::RankOrderMessage> one;
  ASSERT_TRUE(AppendCut(ToProto(RankOrder(StopRank{"x"})), &one).ok());
  EXPECT_TRUE(one.at(0).has_stop());
}

TEST(RankMapping, PiecesOfNothingAreErrors) {
  FragmentJoiner<v1::RankReportMessage> joiner;
  v1::RankReportMessage message;
  message.mutable_fragment();
  EXPECT_EQ(joiner.Add(message).status().code(), absl::StatusCode::kInvalidArgument);
  message.mutable_fragment()->set_data("\xff\xff\xff");
  message.mutable_fragment()->set_last(true);
  EXPECT_EQ(joiner.Add(message).status().code(), absl::StatusCode::kInvalidArgument);
}

template <typename Message, typename Edit>
void Refuses(const Message& good, Edit edit, const char* what) {
  Message message = good;
  ASSERT_TRUE(FromProto(message).ok()) << FromProto(message).status();
  edit(message);
  EXPECT_EQ(FromProto(message).status().code(), absl::StatusCode::kInvalidArgument) << what;
}

TEST(RankMapping, WhatDoesNotFitTogetherIsRefused) {
  EXPECT_FALSE(FromProto(v1::RankReportMessage()).ok());
  EXPECT_FALSE(FromProto(v1::RankOrderMessage()).ok());

  RankStepDone done;
  done.result.slices = {{1, {{5, -0.5f, 1, {{5, -0.5f}, {6, -1.0f}}}}, {}, {1, 2}}};
  done.result.expert_tokens = {1, 2};
  const v1::RankReportMessage report = ToProto(RankReport(done));
  const auto tokens = [](v1::RankReportMessage& m) {
    return m.mutable_step_done()->mutable_result()->mutable_slices(0)->mutable_tokens();
  };
  Refuses(
      report, [&](auto& m) { tokens(m)->add_logprobs(1); }, "more log-probabilities than tokens");
  Refuses(
      report, [&](auto& m) { tokens(m)->clear_ranks(); }, "fewer ranks than tokens");
  Refuses(
      report, [&](auto& m) { tokens(m)->set_top_counts(0, 3); }, "fewer alternatives than counted");
  Refuses(
      report, [&](auto& m) { tokens(m)->set_top_counts(0, 0xffffffffu); }, "a count beyond all");
  Refuses(
      report, [&](auto& m) { tokens(m)->add_top_ids(1); }, "alternatives without log-probability");
  Refuses(
      report, [](auto& m) { m.mutable_step_done()->clear_result(); }, "success without a result");
  Refuses(
      report, [](auto& m) { m.mutable_step_done()->mutable_status()->set_code(3); }, "failure with a result");
  Refuses(
      report, [](auto& m) { m.mutable_step_done()->mutable_status()->set_code(17); }, "no such code");
  Refuses(
      report, [](auto& m) { m.mutable_step_done()->set_suspect(-2); }, "no such member");
  Refuses(
      report, [](auto& m) { m.mutable_step_done()->mutable_result()->set_compute_seconds(NAN); }, "NaN seconds");
  Refuses(
      report, [](auto& m) { m.mutable_step_done()->mutable_result()->set_rows_sent(-1); }, "rows below 0");
  Refuses(
      report, [](auto& m) { m.mutable_failed(); }, "failed without an error");

  FormGroup form{.generation = 1, .member = 1, .size = 2, .placements = {ExpertPlacement::Linear(4, 2)}};
  const v1::RankOrderMessage group = ToProto(RankOrder(form));
  const auto placement = [](v1::RankOrderMessage& m) { return m.mutable_form_group()->mutable_placements(0); };
  Refuses(
      group, [](auto& m) { m.mutable_form_group()->set_member(2); }, "a member outside");
  Refuses(
      group, [](auto& m) { m.mutable_form_group()->set_size(0); }, "an empty group");
  Refuses(
      group, [&](auto& m) { placement(m)->set_num_ranks(3); }, "a placement over others");
  Refuses(
      group, [&](auto& m) { placement(m)->set_counts(0, 2); }, "counts beyond ranks");
  Refuses(
      group, [&](auto& m) { placement(m)->set_counts(0, 0xffffffffu); }, "a count beyond all");
  Refuses(
      group, [&](auto& m) { placement(m)->add_shares(1); }, "a share of nobody");
  Refuses(
      group, [&](auto& m) { placement(m)->set_ranks(0, 2); }, "a rank outside");
  Refuses(
      group, [&](auto& m) { placement(m)->set_shares(0, NAN); }, "a share that is no number");

  RankStep step;
  step.plan.admit.emplace_back();
  step.plan.admit[0].tokens = {1, 2, 3};
  step.plan.admit[0].sampling.logit_bias = {{1, 0.5f}};
  step.plan.slices = {{1, 0, 3, {0}, true, {7}, -1}};
  const v1::RankOrderMessage plan = ToProto(RankOrder(step));
  const auto sequence = [](v1::RankOrderMessage& m) { return m.mutable_step()->mutable_admit(0); };
  const auto slice = [](v1::RankOrderMessage& m) { return m.mutable_step()->mutable_slices(0); };
  Refuses(
      plan, [&](auto& m) { sequence(m)->set_prompt_len(4); }, "a prompt beyond the tokens");
  Refuses(
      plan, [&](auto& m) { sequence(m)->set_prompt_len(-1); }, "a prompt below 0");
  Refuses(
      plan, [&](auto& m) { sequence(m)->set_tokens(0, -1); }, "a token below 0");
  Refuses(
      plan, [&](auto& m) { sequence(m)->clear_sampling(); }, "no sampling");
  Refuses(
      plan, [&](auto& m) { sequence(m)->mutable_sampling()->add_bias_ids(1); }, "a biased token without a value");
  Refuses(
      plan, [&](auto& m) { sequence(m)->set_state_slot(-2); }, "a slot below -1");
  Refuses(
      plan, [&](auto& m) { slice(m)->set_count(0); }, "more guesses than positions");
  Refuses(
      plan, [&](auto& m) { slice(m)->set_first_pos(-1); }, "a position below 0");
  Refuses(
      plan, [&](auto& m) { slice(m)->set_first_pos(int64_t{1} << 40); }, "a position beyond all");
  Refuses(
      plan, [&](auto& m) { slice(m)->set_new_blocks(0, -1); }, "a block below 0");

  LoadRank load{.slot = 0, .backend = "cpu", .dtype = "auto", .experts = {{1, 2}}};
  const v1::RankOrderMessage order = ToProto(RankOrder(load));
  Refuses(
      order, [](auto& m) { m.mutable_load()->mutable_experts(0)->set_experts(1, 1); }, "an expert twice");
  Refuses(
      order, [](auto& m) { m.mutable_load()->mutable_experts(0)->set_experts(0, -1); }, "an expert below 0");
  Refuses(
      order, [](auto& m) { m.mutable_load()->set_slot(-1); }, "a slot below 0");
}

// Good messages with broken bytes: whatever parses is taken or refused.
TEST(RankMapping, GarbageNeverEndsTheProcess) {
  Random random(2);
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const bool is_report = random.Coin();
    std::string bytes = is_report ? ToProto(RandomReport(random, random.Below(kReports))).SerializeAsString()
                                  : ToProto(RandomOrder(random, random.Below(kOrders))).SerializeAsString();
    for (int edits = 1 + random.Below(4); edits > 0 && !bytes.empty(); --edits) {
      bytes[static_cast<size_t>(random.Below(static_cast<int>(bytes.size())))] = static_cast<char>(random.Bits());
    }
    if (random.Below(4) == 0) bytes.resize(static_cast<size_t>(random.Below(static_cast<int>(bytes.size()) + 1)));
    const auto count = [&](const Status& status) {
      ++read;
      if (status.ok()) return;
      ++refused;
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    };
    if (is_report) {
      v1::RankReportMessage message;
      if (message.ParseFromString(bytes)) count(FromProto(message).status());
    } else {
      v1::RankOrderMessage message;
      if (message.ParseFromString(bytes)) count(FromProto(message).status());
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace moe
