// Every router of the supported families against transformers' numbers, and routing that is easily got wrong.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/engine/device/unit_values.h"

namespace moe::device_test {
namespace {

using Json = nlohmann::json;

// Of transformers' weights, computed in float32 as ours are: both err by a softmax or sigmoid (E + 16 u), a sum of k
// and a division.
double Bound(int64_t experts, int64_t top_k, double weight) {
  return 2 * static_cast<double>(experts + top_k + 20) * kU * std::fabs(weight) + 0x1p-126;
}

RouterSpec ReadSpec(const Json& json) {
  static const std::map<std::string, RouterSpec::Score> kScores = {{"softmax", RouterSpec::Score::kSoftmax},
                                                                   {"sigmoid", RouterSpec::Score::kSigmoid},
                                                                   {"sqrt_softplus", RouterSpec::Score::kSqrtSoftplus},
                                                                   {"sparse_mixer", RouterSpec::Score::kSparseMixer}};
  static const std::map<std::string, RouterSpec::Normalize> kNormalize = {
      {"none", RouterSpec::Normalize::kNone},
      {"sum", RouterSpec::Normalize::kSum},
      {"softmax_over_chosen", RouterSpec::Normalize::kSoftmaxOverChosen}};
  RouterSpec spec;
  spec.score = kScores.at(json["score"]);
  spec.normalize = kNormalize.at(json.value("normalize", "none"));
  spec.normalize_eps = json.value("normalize_eps", 0.0f);
  spec.normalize_min = json.value("normalize_min", 0.0f);
  spec.jitter = json.value("jitter", spec.jitter);
  spec.logit_bias = json.value("logit_bias", false);
  spec.select_bias = json.value("select_bias", false);
  spec.select_by_logit = json.value("select_by_logit", false);
  spec.logit_cap = json.value("logit_cap", 0.0f);
  spec.scale = json.value("scale", 1.0f);
  spec.num_groups = json.value("groups", 1);
  spec.top_groups = json.value("top_groups", 1);
  if (json.value("group_score", "") == "max") spec.group_score = RouterSpec::GroupScore::kMax;
  spec.others_score_zero = json.value("others_score_zero", false);
  return spec;
}

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

struct RouteInput {
  RouterSpec spec;
  int64_t top_k = 0;
  std::vector<float> logits, bias, expert_scale;
  std::vector<int32_t> given;
  int64_t experts = 0;
};

// Each row's choice by expert id, with RouterSpec::scale.
Routed Route(Backend& backend, const RouteInput& in) {
  const auto rows = static_cast<int64_t>(in.logits.size()) / in.experts;
  Routed r{std::vector<int32_t>(rows * in.top_k), std::vector<float>(rows * in.top_k)};
  RouteOp op;
  op.spec = &in.spec;
  op.num_experts = in.experts;
  op.top_k = in.top_k;
  op.logits = in.logits.data();
  op.logit_bias = in.spec.logit_bias ? in.bias.data() : nullptr;
  op.select_bias = in.spec.select_bias ? in.bias.data() : nullptr;
  op.expert_scale = in.expert_scale.empty() ? nullptr : in.expert_scale.data();
  op.given = in.given.empty() ? nullptr : in.given.data();
  op.rows = rows;
  op.ids = r.ids.data();
  op.weights = r.weights.data();
  backend.Route(op);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<std::pair<int32_t, float>> chosen;
    for (int64_t k = 0; k < in.top_k; ++k)
      chosen.emplace_back(r.ids[row * in.top_k + k], r.weights[row * in.top_k + k]);
    std::sort(chosen.begin(), chosen.end());
    for (int64_t k = 0; k < in.top_k; ++k) {
      r.ids[row * in.top_k + k] = chosen[k].first;
      r.weights[row * in.top_k + k] = chosen[k].second * in.spec.scale;
    }
  }
  return r;
}

void ExpectRouted(const std::string& what, const Routed& got, const std::vector<int32_t>& ids,
                  const std::vector<float>& weights, int64_t experts, int64_t top_k) {
  EXPECT_EQ(got.ids, ids) << what;
  std::vector<double> bound;
  for (const float w : weights) bound.push_back(Bound(experts, top_k, w));
  ExpectNear(what, got.weights, weights, bound, top_k);
}

TEST(RouterValues, OfEveryKind) {
  const Json units = ReadUnits("routers");
  ForEachBackend([&](Backend& backend) {
    for (const Json& json : units["routes"]) {
      RouteInput in;
      in.spec = ReadSpec(json["spec"]);
      in.top_k = json["top_k"];
      in.logits = Flat<float>(json["logits"]);
      in.experts = static_cast<int64_t>(json["logits"][0].size());
      if (json.contains("bias")) in.bias = Flat<float>(json["bias"]);
      const std::string what = Cat(backend.name(), ", ", json["name"].get<std::string>());
      ExpectRouted(what, Route(backend, in), Flat<int32_t>(json["ids"]), Flat<float>(json["weights"]), in.experts,
                   in.top_k);
    }
  });
}

// Gemma-4: norm, learnt scales by dimension, H^-1/2, softmax, renormalised, scaled by expert.
TEST(RouterValues, Gemma4) {
  const Json units = ReadUnits("routers")["gemma4"];
  const auto rows = static_cast<int64_t>(units["x"].size());
  const auto hidden = static_cast<int64_t>(units["x"][0].size());
  const auto experts = static_cast<int64_t>(units["weight"].size());
  const std::vector<float> x = Flat<float>(units["x"]);
  const std::vector<float> scale = Flat<float>(units["scale"]);
  const Values weight = ToValues(DType::kF32, Flat<float>(units["weight"]));
  ForEachBackend([&](Backend& backend) {
    std::vector<float> normed(x.size());
    backend.Norm({.x = x.data(),
                  .rows = rows,
                  .dim = hidden,
                  .stride = hidden,
                  .spec = {.eps = units["eps"].get<float>()},
                  .weight = scale.data(),
                  .out_f32 = normed.data()});
    const WeightSource source = Source(weight, experts, hidden);
    const auto packed = backend.Pack({&source, 1}, DType::kF32);
    RouteInput in;
    in.spec.normalize = RouterSpec::Normalize::kSum;
    in.spec.input_scale = 1.0f / std::sqrt(static_cast<float>(hidden));
    in.top_k = units["top_k"];
    in.experts = experts;
    in.expert_scale = Flat<float>(units["expert_scale"]);
    in.logits.resize(static_cast<size_t>(rows * experts));
    const Values a = ToValues(DType::kF32, normed);
    backend.Gemm({.a = View(a, rows, hidden), .w = packed.get(), .out = in.logits.data(), .out_stride = experts});
    const Routed got = Route(backend, in);
    EXPECT_EQ(got.ids, Flat<int32_t>(units["ids"])) << backend.name();
    // The logits err by (H + 10) u of a sum of absolute terms below 60, twice.
    const std::vector<float> want = Flat<float>(units["weights"]);
    const double of_logits = 2 * static_cast<double>(hidden + 10) * kU * 60;
    std::vector<double> bound;
    for (const float w : want) bound.push_back(2 * of_logits * w + Bound(experts, in.top_k, w));
    ExpectNear(backend.name(), got.weights, want, bound, in.top_k);
  });
}

// DeepSeek-V4's first layers: a token's experts come from a table, their scores only weigh them.
TEST(RouterValues, ExpertsByToken) {
  const Json units = ReadUnits("routers")["hash"];
  ForEachBackend([&](Backend& backend) {
    RouteInput in;
    in.spec.score = RouterSpec::Score::kSqrtSoftplus;
    in.spec.normalize = RouterSpec::Normalize::kSum;
    in.spec.normalize_eps = 1e-20f;
    in.spec.by_token = true;
    in.spec.scale = units["scale"];
    in.top_k = units["top_k"];
    in.logits = Flat<float>(units["logits"]);
    in.experts = static_cast<int64_t>(units["logits"][0].size());
    in.given = Flat<int32_t>(units["given"]);
    ExpectRouted(backend.name(), Route(backend, in), Flat<int32_t>(units["ids"]), Flat<float>(units["weights"]),
                 in.experts, in.top_k);
  });
}

// Inkling: the shared experts' logits take part in the sum. In the last row every sigmoid is 0 in float32.
TEST(RouterValues, Sinks) {
  const Json units = ReadUnits("routers")["inkling"];
  const int64_t sinks = units["sinks"];
  const int64_t top_k = units["top_k"];
  const auto rows = static_cast<int64_t>(units["logits"].size());
  std::vector<float> logits, sink_logits;
  for (const Json& row : units["logits"]) {
    const auto all = row.get<std::vector<float>>();
    logits.insert(logits.end(), all.begin(), all.end() - sinks);
    sink_logits.insert(sink_logits.end(), all.end() - sinks, all.end());
  }
  ForEachBackend([&](Backend& backend) {
    RouteInput in;
    in.spec.score = RouterSpec::Score::kSigmoid;
    in.spec.select_bias = true;
    in.top_k = top_k;
    in.experts = static_cast<int64_t>(logits.size()) / rows;
    in.logits = logits;
    in.bias = Flat<float>(units["bias"]);
    Routed got = Route(backend, in);
    EXPECT_EQ(got.ids, Flat<int32_t>(units["ids"])) << backend.name();
    std::vector<float> sink_weights(static_cast<size_t>(sinks * rows));
    backend.SinkWeights({.logits = logits.data(),
                         .sink_logits = sink_logits.data(),
                         .ids = got.ids.data(),
                         .num_experts = in.experts,
                         .sinks = sinks,
                         .top_k = top_k,
                         .rows = rows,
                         .scale = units["scale"],
                         .weights = got.weights.data(),
                         .sink_weights = sink_weights.data()});
    // transformers goes by way of logarithms, whose sum errs by some u of the largest |logit|.
    const double of_logits = 4 * kU * 202;
    const auto bounds = [&](const std::vector<float>& want) {
      std::vector<double> bound;
      for (const float w : want) bound.push_back(of_logits * w + Bound(in.experts + sinks, top_k, w));
      return bound;
    };
    const std::vector<float> want = Flat<float>(units["weights"]);
    ExpectNear(backend.name(), got.weights, want, bounds(want), top_k);
    std::vector<float> by_row;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t s = 0; s < sinks; ++s) by_row.push_back(sink_weights[s * rows + r]);
    }
    const std::vector<float> want_sinks = Flat<float>(units["sink_weights"]);
    ExpectNear(backend.name(), by_row, want_sinks, bounds(want_sinks), sinks);
  });
}

void ExpectRow(const RouteInput& in, const std::vector<int32_t>& ids, const std::vector<float>& weights,
               double relative) {
  ForEachBackend([&](Backend& backend) {
    const Routed got = Route(backend, in);
    EXPECT_EQ(got.ids, ids) << backend.name();
    std::vector<double> bound;
    for (const float w : weights) bound.push_back(relative * w);
    ExpectNear(backend.name(), got.weights, weights, bound, in.top_k);
  });
}

// Experts of dropped groups must lose even against negative scores; {0, 1, 2} would be chosen if they had 0.
TEST(RouterValues, DroppedGroupsLoseAgainstNegativeScores) {
  RouteInput in;
  in.spec.score = RouterSpec::Score::kSigmoid;
  in.spec.normalize = RouterSpec::Normalize::kSum;
  in.spec.select_bias = true;
  in.spec.num_groups = 4;
  in.spec.top_groups = 2;
  in.spec.scale = 2.5f;
  in.top_k = 3;
  in.experts = 8;
  in.logits = {-4.0f, -3.0f, -5.0f, -2.0f, 1.0f, 0.5f, -0.2f, 0.30000001f};
  in.bias.assign(8, -3.0f);
  ExpectRow(in, {4, 5, 7}, {0.94796884f, 0.80714738f, 0.74488366f}, 1e-6);
}

// With a large bias score + bias - bias is 0 in float32 here; the weights are the sigmoids themselves.
TEST(RouterValues, WeightsComeFromTheScoresWithoutBias) {
  RouteInput in;
  in.spec.score = RouterSpec::Score::kSigmoid;
  in.spec.normalize = RouterSpec::Normalize::kSum;
  in.spec.select_bias = true;
  in.top_k = 2;
  in.experts = 4;
  in.logits = {-17.0f, -16.0f, -15.5f, -18.0f};
  in.bias = {12.5f, 12.5f, 12.0f, 12.0f};
  ExpectRow(in, {0, 1}, {0.26894146f, 0.73105854f}, 1e-6);
}

// Without renormalisation the weights are shares of the softmax over all experts. One expert a token
// has weight 1 with renormalisation and its share without, row by row.
TEST(RouterValues, RenormalisedOrNot) {
  RouteInput in;
  in.top_k = 2;
  in.experts = 4;
  in.logits = {2.0f, -1.0f, 0.5f, 1.5f};
  ExpectRow(in, {0, 3}, {0.53207111f, 0.32271746f}, 1e-6);
  RouteInput renormalised = in;
  renormalised.spec.normalize = RouterSpec::Normalize::kSum;
  ExpectRow(renormalised, {0, 3}, {0.62245935f, 0.37754068f}, 1e-6);

  for (RouteInput* one : {&in, &renormalised}) {
    one->top_k = 1;
    one->logits.insert(one->logits.end(), {0.5f, 2.0f, -1.0f, 1.5f, 2.0f, -1.0f, 0.5f, 1.5f});
  }
  ExpectRow(in, {0, 1, 0}, {0.53207111f, 0.53207111f, 0.53207111f}, 1e-6);
  ExpectRow(renormalised, {0, 1, 0}, {1.0f, 1.0f, 1.0f}, 0);
}

}  // namespace
}  // namespace moe::device_test
