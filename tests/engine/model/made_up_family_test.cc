// A family that nobody published is one function and one line of a table: a mix of known parts that no other family
// has, loaded under names of its own and run by the engine, against the same model written out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "loaders/architectures/common.h"
#include "loaders/rope.h"
#include "tests/engine/model/test_model.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::FileMap;
using moe::testing::TinyTensor;

// ---- The family ------------------------------------------------------------------------------------------------

// Norms before and after each block; attention with sinks, in even layers within a window and with RoPE, in odd ones
// over everything and gated; sigmoid routing with a selection bias over clamped experts, beside a shared one.
void ReadMosaic(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;
  spec->embedding_scale = static_cast<float>(config->FloatOr("embedding_factor", 1, -1e6, 1e6));
  spec->logit_cap = static_cast<float>(config->FloatOr("cap", 0, 0, 1e6));
  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.sinks = true;
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert = {.intermediate_size = config->Int("tile_size", 1, limits::kMaxInner)};
  moe.expert.limit = static_cast<float>(config->FloatOr("tile_limit", 0, 0, 1e6));
  moe.router = {.score = RouterSpec::Score::kSigmoid, .select_bias = true};
  moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.router.scale = static_cast<float>(config->FloatOr("tile_factor", 1, 0, 1e6));
  moe.shared = SharedExpertSpec{.mlp = {.intermediate_size = moe.expert.intermediate_size}};
  AddPreNormLayers(config, spec, norm, attn, moe, std::vector<bool>(static_cast<size_t>(num_layers), true));
  for (size_t l = 0; config->ok() && l < spec->layers.size(); ++l) {
    LayerSpec& layer = spec->layers[l];
    layer.mixer_post_norm = layer.ffn_post_norm = norm;
    auto& own = std::get<AttentionSpec>(layer.mixer);
    if (l % 2 == 0) {
      own.window = config->Int("sliding_window", 1, limits::kMaxPositions);
      own.rope = ReadRope(config, {.head_dim = own.head_dim, .max_positions = spec->max_positions});
    } else {
      own.gate = AttentionGate::kHeadSigmoid;
    }
  }

  const std::string layer = "tiles.{l}.";
  AddLlamaNames(rules, "");
  for (const char* place : {"mixer", "mixer_post", "ffn", "ffn_post"}) {
    rules->Add(Cat("layers.{l}.", place, "_norm"), Cat(layer, place, ".grout"));
  }
  for (const char* name : {"q", "k", "v", "o", "gate", "sinks"}) {
    rules->Add(Cat("layers.{l}.attn.", name), layer + name);
  }
  rules->Add("layers.{l}.moe.router", layer + "router");
  rules->Add("layers.{l}.moe.router.select_bias", layer + "router_bias");
  rules->AddExperts("layers.{l}.moe.experts.", layer + "pieces.", "a", "b", "c");
  rules->AddMlp("layers.{l}.moe.shared.", layer + "whole.", "a", "b", "c");
}

constexpr Architecture kTable[] = {{"MosaicForCausalLM", "mosaic", "mosaic", ReadMosaic}};

// ---- A checkpoint ----------------------------------------------------------------------------------------------

constexpr int64_t kVocab = 30, kHidden = 12, kHeads = 4, kKvHeads = 2, kHeadDim = 6, kLayers = 3, kExperts = 5,
                  kTopK = 2, kInner = 7, kWindow = 5;
constexpr double kEps = 1e-5, kFactor = 1.5, kCap = 9, kLimit = 0.6, kEmbedding = 2;

using Weights = std::map<std::string, TinyTensor>;

std::vector<float> Values(const TinyTensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

Weights MakeWeights() {
  Weights weights;
  std::mt19937 engine(7);
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> values(static_cast<size_t>(shape.size() == 2 ? shape[0] * shape[1] : shape[0]));
    for (float& value : values) value = normal(engine);
    weights[name] = {name, shape, "F32", moe::testing::Floats(values)};
  };
  add("embed_tokens.weight", {kVocab, kHidden}, 0, 0.5f);
  add("norm.weight", {kHidden}, 1, 0.3f);
  add("lm_head.weight", {kVocab, kHidden}, 0, 0.6f);
  for (int64_t l = 0; l < kLayers; ++l) {
    const std::string layer = Cat("tiles.", l, ".");
    for (const char* place : {"mixer", "mixer_post", "ffn", "ffn_post"}) {
      add(Cat(layer, place, ".grout"), {kHidden}, 1, 0.3f);
    }
    add(layer + "q", {kHeads * kHeadDim, kHidden}, 0, 0.6f);
    add(layer + "k", {kKvHeads * kHeadDim, kHidden}, 0, 0.6f);
    add(layer + "v", {kKvHeads * kHeadDim, kHidden}, 0, 0.6f);
    add(layer + "o", {kHidden, kHeads * kHeadDim}, 0, 0.6f);
    if (l % 2 == 1) add(layer + "gate", {kHeads, kHidden}, 0, 0.6f);
    add(layer + "sinks", {kHeads}, 0, 1);
    add(layer + "router", {kExperts, kHidden}, 0, 0.6f);
    add(layer + "router_bias", {kExperts}, 0, 0.3f);
    for (int64_t e = 0; e <= kExperts; ++e) {
      const std::string expert = e < kExperts ? Cat(layer, "pieces.", e, ".") : layer + "whole.";
      add(expert + "a.weight", {kInner, kHidden}, 0, 0.6f);
      add(expert + "b.weight", {kInner, kHidden}, 0, 0.6f);
      add(expert + "c.weight", {kHidden, kInner}, 0, 0.6f);
    }
  }
  return weights;
}

FileMap Files(const Weights& weights) {
  const nlohmann::json config = {{"architectures", {"MosaicForCausalLM"}},
                                 {"vocab_size", kVocab},
                                 {"hidden_size", kHidden},
                                 {"num_hidden_layers", kLayers},
                                 {"num_attention_heads", kHeads},
                                 {"num_key_value_heads", kKvHeads},
                                 {"head_dim", kHeadDim},
                                 {"num_experts", kExperts},
                                 {"num_experts_per_tok", kTopK},
                                 {"tile_size", kInner},
                                 {"tile_limit", kLimit},
                                 {"tile_factor", kFactor},
                                 {"embedding_factor", kEmbedding},
                                 {"cap", kCap},
                                 {"sliding_window", kWindow},
                                 {"rms_norm_eps", kEps},
                                 {"rope_theta", 100.0},
                                 {"max_position_embeddings", 128}};
  std::vector<TinyTensor> tensors;
  for (const auto& [name, tensor] : weights) tensors.push_back(tensor);
  return {{"config.json", config.dump()}, {"model.safetensors", moe::testing::Pack(moe::testing::LayOut(tensors))}};
}

// ---- The model by hand -----------------------------------------------------------------------------------------

using Row = std::vector<double>;

class ByHand {
 public:
  explicit ByHand(const Weights& weights) : weights_(weights) {}

  // Logits of every position; the experts of each position and layer, ascending.
  std::vector<Row> Logits(const std::vector<int32_t>& ids) {
    std::vector<Row> x;
    const std::vector<float> embedding = Values(weights_.at("embed_tokens.weight"));
    for (const int32_t id : ids) {
      Row row(embedding.begin() + id * kHidden, embedding.begin() + (id + 1) * kHidden);
      for (double& value : row) value *= kEmbedding;
      x.push_back(row);
    }
    experts.assign(ids.size(), {});
    for (int64_t l = 0; l < kLayers; ++l) {
      const std::string layer = Cat("tiles.", l, ".");
      const std::vector<Row> mixed = Attention(layer, l % 2 == 0, x);
      for (size_t p = 0; p < x.size(); ++p) Add(&x[p], Norm(mixed[p], layer + "mixer_post.grout"));
      for (size_t p = 0; p < x.size(); ++p) {
        Add(&x[p], Norm(Moe(layer, Norm(x[p], layer + "ffn.grout"), p), layer + "ffn_post.grout"));
      }
    }
    for (Row& row : x) {
      row = Times("lm_head.weight", Norm(row, "norm.weight"));
      for (double& value : row) value = kCap * std::tanh(value / kCap);
    }
    return x;
  }

  std::vector<std::vector<std::vector<int32_t>>> experts;

 private:
  static double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static void Add(Row* x, const Row& y) {
    for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
  }

  Row Times(const std::string& name, const Row& x) const {
    const std::vector<float> w = Values(weights_.at(name));
    Row y(w.size() / x.size());
    for (size_t r = 0; r < y.size(); ++r) {
      for (size_t c = 0; c < x.size(); ++c) y[r] += static_cast<double>(w[r * x.size() + c]) * x[c];
    }
    return y;
  }

  Row Norm(const Row& x, const std::string& name) const {
    const std::vector<float> w = Values(weights_.at(name));
    double square = 0;
    for (const double value : x) square += value * value;
    Row y = x;
    for (size_t i = 0; i < y.size(); ++i) y[i] *= w[i] / std::sqrt(square / static_cast<double>(x.size()) + kEps);
    return y;
  }

  static void Rotate(double* head, size_t position) {
    for (int64_t i = 0; i < kHeadDim / 2; ++i) {
      const double angle = static_cast<double>(position) * std::pow(100.0, -2.0 * static_cast<double>(i) / kHeadDim);
      const double a = head[i], b = head[i + kHeadDim / 2];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + kHeadDim / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  std::vector<Row> Attention(const std::string& layer, bool sliding, const std::vector<Row>& x) const {
    std::vector<Row> q, k, v, out;
    const std::vector<float> sinks = Values(weights_.at(layer + "sinks"));
    for (size_t p = 0; p < x.size(); ++p) {
      const Row normed = Norm(x[p], layer + "mixer.grout");
      q.push_back(Times(layer + "q", normed));
      k.push_back(Times(layer + "k", normed));
      v.push_back(Times(layer + "v", normed));
      for (int64_t h = 0; sliding && h < kHeads; ++h) Rotate(q[p].data() + h * kHeadDim, p);
      for (int64_t h = 0; sliding && h < kKvHeads; ++h) Rotate(k[p].data() + h * kHeadDim, p);
      Row mixed(kHeads * kHeadDim);
      const Row gate = sliding ? Row() : Times(layer + "gate", normed);
      for (int64_t h = 0; h < kHeads; ++h) {
        const int64_t shared = h / (kHeads / kKvHeads) * kHeadDim;
        double total = std::exp(sinks[static_cast<size_t>(h)]);
        for (size_t j = sliding && p >= kWindow ? p - kWindow + 1 : 0; j <= p; ++j) {
          double score = 0;
          for (int64_t d = 0; d < kHeadDim; ++d) score += q[p][h * kHeadDim + d] * k[j][shared + d];
          const double e = std::exp(score / std::sqrt(static_cast<double>(kHeadDim)));
          total += e;
          for (int64_t d = 0; d < kHeadDim; ++d) mixed[h * kHeadDim + d] += e * v[j][shared + d];
        }
        for (int64_t d = 0; d < kHeadDim; ++d) mixed[h * kHeadDim + d] *= (sliding ? 1 : Sigmoid(gate[h])) / total;
      }
      out.push_back(Times(layer + "o", mixed));
    }
    return out;
  }

  Row Expert(const std::string& expert, const Row& x, double limit) const {
    const Row gate = Times(expert + "a.weight", x), up = Times(expert + "b.weight", x);
    Row h(kInner);
    for (int64_t i = 0; i < kInner; ++i) {
      const double g = limit > 0 ? std::min(gate[i], limit) : gate[i];
      h[i] = g * Sigmoid(g) * (limit > 0 ? std::clamp(up[i], -limit, limit) : up[i]);
    }
    return Times(expert + "c.weight", h);
  }

  Row Moe(const std::string& layer, const Row& x, size_t position) {
    const Row logits = Times(layer + "router", x);
    const std::vector<float> bias = Values(weights_.at(layer + "router_bias"));
    std::vector<int32_t> order;
    for (int32_t e = 0; e < kExperts; ++e) order.push_back(e);
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return Sigmoid(logits[a]) + bias[a] > Sigmoid(logits[b]) + bias[b]; });
    order.resize(kTopK);
    std::sort(order.begin(), order.end());
    experts[position].push_back(order);
    double sum = 0;
    for (const int32_t e : order) sum += Sigmoid(logits[e]);
    Row y = Expert(layer + "whole.", x, 0);
    for (const int32_t e : order) {
      const Row part = Expert(Cat(layer, "pieces.", e, "."), x, kLimit);
      for (int64_t i = 0; i < kHidden; ++i) y[i] += kFactor * Sigmoid(logits[e]) / sum * part[i];
    }
    return y;
  }

  const Weights& weights_;
};

// ---- The test --------------------------------------------------------------------------------------------------

TEST(MadeUpFamily, LoadsAndRuns) {
  constexpr int64_t kPrompt = 45, kNew = 6;  // over the end of a block
  const Weights weights = MakeWeights();
  ByHand by_hand(weights);
  std::vector<int32_t> prompt;
  std::mt19937 engine(8);
  for (int64_t p = 0; p < kPrompt; ++p) prompt.push_back(static_cast<int32_t>(engine() % kVocab));
  for (const char* backend : {"reference", "auto"}) {
    TestModel model(moe::testing::InMemory(Files(weights)), {.backend = backend, .table = kTable});
    TestSequence* s = model.Add(prompt);
    s->init.logprobs = s->init.prompt_logprobs = -1;
    s->init.routed_experts = true;
    model.Run({s}, kNew, 7);

    std::vector<int32_t> ids = prompt;
    for (const TokenInfo& token : s->tokens) ids.push_back(token.id);
    ids.pop_back();
    const std::vector<Row> want = by_hand.Logits(ids);
    ASSERT_EQ(static_cast<int64_t>(s->expert_ids.size()), static_cast<int64_t>(ids.size()) * kLayers * kTopK);
    for (size_t p = 0; p < ids.size(); ++p) {
      double total = 0;
      for (const double logit : want[p]) total += std::exp(logit);
      const TokenInfo& got = p + 1 < prompt.size() ? s->prompt_tokens[p + 1] : s->tokens[p + 1 - prompt.size()];
      ASSERT_EQ(static_cast<int64_t>(got.top.size()), kVocab);
      for (const TokenProb& token : got.top) {
        EXPECT_NEAR(token.logprob, want[p][static_cast<size_t>(token.id)] - std::log(total), 1e-4)
            << backend << " position " << p << " token " << token.id;
      }
      for (int64_t l = 0; l < kLayers; ++l) {
        const auto begin = s->expert_ids.begin() + (static_cast<int64_t>(p) * kLayers + l) * kTopK;
        std::vector<int32_t> chosen(begin, begin + kTopK);
        std::sort(chosen.begin(), chosen.end());
        EXPECT_EQ(chosen, by_hand.experts[p][static_cast<size_t>(l)]) << backend << " position " << p;
      }
    }
  }
}

// Without the line in the table there is no such family, and a missing tensor is named as the family calls it.
TEST(MadeUpFamily, IsOnlyATableLine) {
  Weights weights = MakeWeights();
  const FileMap sound = Files(weights);
  EXPECT_EQ(ErrorKind(ReadModelConfig(sound.at("config.json")).status()), "UNSUPPORTED");
  weights.erase("tiles.1.gate");
  const FileMap files = Files(weights);
  auto model = ReadModelConfig(files.at("config.json"), "config.json", kTable);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto opened = moe::testing::InMemory(files);
  const Status status = OpenWeightStore(*opened, &model->spec, model->rules).status();
  EXPECT_NE(std::string(status.message()).find("tiles.1.gate"), std::string::npos) << status;
}

}  // namespace
}  // namespace moe
