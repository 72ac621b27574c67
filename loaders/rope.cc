#include "loaders/rope.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "loaders/json_text.h"

namespace moe {
namespace {

constexpr double kSmallest = std::numeric_limits<double>::min();

// theta^(-2i/d) for i < d/2. In float32, as the reference implementation computes them: what a checkpoint was trained
// with are the rounded values, and at far positions the rounding is visible.
std::vector<float> BaseFrequencies(double theta, int64_t rotary_dim) {
  std::vector<float> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    frequencies[i] = 1.0f / std::pow(static_cast<float>(theta), exponent);
  }
  return frequencies;
}

void ApplyLinear(std::vector<float>* frequencies, double factor) {
  for (float& frequency : *frequencies) frequency /= static_cast<float>(factor);
}

struct Llama3 {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_positions = 0;
};

// Long wavelengths are stretched by `factor`, short ones kept, those between blended.
void ApplyLlama3(std::vector<float>* frequencies, const Llama3& settings) {
  const double longest_blended = settings.original_positions / settings.low_freq_factor;
  const double shortest_blended = settings.original_positions / settings.high_freq_factor;
  for (float& frequency : *frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    const double stretched = frequency / settings.factor;
    if (wavelength > longest_blended) {
      frequency = static_cast<float>(stretched);
    } else if (wavelength >= shortest_blended) {
      const double keep = (settings.original_positions / wavelength - settings.low_freq_factor) /
                          (settings.high_freq_factor - settings.low_freq_factor);
      frequency = static_cast<float>((1 - keep) * stretched + keep * frequency);
    }
  }
}

struct Yarn {
  double theta = 10000;
  double factor = 1;
  double original_positions = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
};

// Dimensions that turn more than beta_fast times over the original context keep their frequency, those that turn less
// than beta_slow times are stretched by `factor`, with a linear ramp between.
void ApplyYarn(std::vector<float>* frequencies, const Yarn& settings) {
  const double dim = 2.0 * static_cast<double>(frequencies->size());
  const auto dimension_of = [&](double rotations) {
    return dim * std::log(settings.original_positions / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(settings.theta));
  };
  double low = dimension_of(settings.beta_fast);
  double high = dimension_of(settings.beta_slow);
  if (settings.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies->size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double kept = (*frequencies)[i];
    (*frequencies)[i] = static_cast<float>(kept / settings.factor * ramp + kept * (1 - ramp));
  }
}

// The field from the scaling object, or from the top level, where some files have it.
double OriginalPositions(ConfigReader* scaling, ConfigReader* config, const RopeDefaults& defaults) {
  constexpr const char* kField = "original_max_position_embeddings";
  const double otherwise = config->FloatOr(kField, static_cast<double>(defaults.max_positions), 1, 1e12);
  return scaling->FloatOr(kField, otherwise, 1, 1e12);
}

double YarnAttentionFactor(ConfigReader* scaling, double factor) {
  const std::optional<double> given = scaling->OptionalFloat("attention_factor", kSmallest, 1e6);
  const double mscale = scaling->FloatOr("mscale", 0, 0, 1e6);
  const double mscale_all_dim = scaling->FloatOr("mscale_all_dim", 0, 0, 1e6);
  if (given) return *given;
  if (mscale != 0 && mscale_all_dim != 0) return YarnMagnitude(factor, mscale) / YarnMagnitude(factor, mscale_all_dim);
  return YarnMagnitude(factor, 1);
}

Yarn ReadYarn(ConfigReader* scaling, ConfigReader* config, const RopeDefaults& defaults, double theta) {
  Yarn yarn;
  yarn.theta = theta;
  yarn.original_positions = OriginalPositions(scaling, config, defaults);
  const double stretch = static_cast<double>(defaults.max_positions) / yarn.original_positions;
  yarn.factor = scaling->FloatOr("factor", std::max(stretch, 1.0), 1, 1e6);
  yarn.beta_fast = scaling->FloatOr("beta_fast", 32, kSmallest, 1e6);
  yarn.beta_slow = scaling->FloatOr("beta_slow", 1, kSmallest, 1e6);
  yarn.truncate = scaling->BoolOr("truncate", true);
  if (!(theta > 1)) config->Invalid("rope_theta", "yarn needs a value above 1");
  return yarn;
}

// Where the settings are: rope_parameters[layer_type], rope_parameters or rope_scaling.
ConfigReader FindSettings(ConfigReader* config, const RopeDefaults& defaults) {
  ConfigReader parameters = config->Object("rope_parameters");
  if (parameters.exists() && !defaults.layer_type.empty()) {
    ConfigReader own = parameters.Object(defaults.layer_type.c_str());
    if (own.exists()) return own;
  }
  return parameters.exists() ? parameters : config->Object("rope_scaling");
}

}  // namespace

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeSpec ReadRope(ConfigReader* config, const RopeDefaults& defaults) {
  RopeSpec rope;
  rope.layout = defaults.layout;
  ConfigReader settings = FindSettings(config, defaults);
  if (config->Has("rope_parameters") && config->Has("rope_scaling")) {
    ConfigReader old_style = config->Object("rope_scaling");
    const std::string fresh = settings.StringOr({"rope_type", "type"}, "default");
    const std::string old = old_style.StringOr({"rope_type", "type"}, "default");
    if (fresh != old) config->Invalid("rope_scaling", "says " + Quoted(old) + ", but rope_parameters " + Quoted(fresh));
  }

  std::optional<double> theta = settings.OptionalFloat("rope_theta", kSmallest, 1e30);
  const std::optional<double> top_theta =
      defaults.layer_type.empty() ? config->OptionalFloat("rope_theta", kSmallest, 1e30) : std::nullopt;
  if (theta && top_theta && *theta != *top_theta) {
    config->Invalid("rope_theta", Cat("is ", *top_theta, ", but in rope_parameters ", *theta));
  }
  if (!theta) theta = top_theta.value_or(defaults.theta);

  const double otherwise = config->FloatOr("partial_rotary_factor", defaults.partial_rotary_factor, kSmallest, 1);
  const double part = settings.FloatOr("partial_rotary_factor", otherwise, kSmallest, 1);
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(defaults.head_dim) * part);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    config->Invalid("head_dim", Cat("rotates ", rope.rotary_dim, " dimensions (head_dim ", defaults.head_dim,
                                    " × partial_rotary_factor ", part, "), expected an even number"));
    return rope;
  }

  // Both spellings may be present, with different values in old files ("type" kept for older readers).
  const std::string type = settings.StringOr({"rope_type"}, settings.StringOr({"type"}, "default"));
  if (!config->ok()) return rope;
  std::vector<float> frequencies = BaseFrequencies(*theta, rope.rotary_dim);
  if (type == "default" || type == "mrope") {
    // Nothing to scale; with text only, the sections of mrope all have the same position.
  } else if (type == "linear") {
    ApplyLinear(&frequencies, settings.Float("factor", kSmallest, 1e6));
  } else if (type == "llama3") {
    Llama3 llama3;
    llama3.factor = settings.Float("factor", 1, 1e6);
    llama3.low_freq_factor = settings.Float("low_freq_factor", kSmallest, 1e6);
    llama3.high_freq_factor = settings.Float("high_freq_factor", kSmallest, 1e6);
    llama3.original_positions = OriginalPositions(&settings, config, defaults);
    if (config->ok() && !(llama3.high_freq_factor > llama3.low_freq_factor)) {
      settings.Invalid("high_freq_factor", Cat("is ", llama3.high_freq_factor, ", expected more than low_freq_factor (",
                                               llama3.low_freq_factor, ")"));
    }
    if (config->ok()) ApplyLlama3(&frequencies, llama3);
  } else if (type == "yarn") {
    const Yarn yarn = ReadYarn(&settings, config, defaults, *theta);
    rope.cos_sin_scale = YarnAttentionFactor(&settings, yarn.factor);
    if (config->ok()) ApplyYarn(&frequencies, yarn);
  } else if (type == "dynamic" && settings.Has("alpha")) {
    // A fixed stretch of the base; without alpha the base would change with the length of the sequence.
    const double alpha = settings.Float("alpha", kSmallest, 1e9);
    if (rope.rotary_dim < 4) settings.Invalid("alpha", "needs more than 2 rotated dimensions");
    const double dim = static_cast<double>(rope.rotary_dim);
    if (config->ok()) frequencies = BaseFrequencies(*theta * std::pow(alpha, dim / (dim - 2)), rope.rotary_dim);
  } else {
    settings.Unsupported(settings.Has("rope_type") ? "rope_type" : "type",
                         Cat("is ", Quoted(type), type == "dynamic" ? " without alpha" : "",
                             "; supported: default, linear, llama3, yarn, dynamic with alpha"));
  }
  rope.inv_freq.assign(frequencies.begin(), frequencies.end());
  return rope;
}

}  // namespace moe
