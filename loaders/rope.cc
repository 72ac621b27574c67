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

// theta^(-2i/d) for 2i < d. In float32, as the reference implementation computes them: what a checkpoint was trained
// with are the rounded values, and at far positions the rounding is visible. An odd d rotates one dimension more than
// it says, at the frequencies of d.
std::vector<float> BaseFrequencies(double theta, int64_t rotary_dim) {
  std::vector<float> frequencies(static_cast<size_t>((rotary_dim + 1) / 2));
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

// Long wavelengths are stretched by `factor`, short ones kept, those between blended. With equal factors (Llama-4
// Scout) there is nothing between.
void ApplyLlama3(std::vector<float>* frequencies, const Llama3& settings) {
  const double longest_blended = settings.original_positions / settings.low_freq_factor;
  const double shortest_blended = settings.original_positions / settings.high_freq_factor;
  for (float& frequency : *frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    const double stretched = frequency / settings.factor;
    if (wavelength > longest_blended) {
      frequency = static_cast<float>(stretched);
    } else if (wavelength >= shortest_blended && settings.high_freq_factor > settings.low_freq_factor) {
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

// A frequency for each pair of the first `proportion` of the head, at exponents over the whole of it, and 0 for the
// rest: those pairs stay as they are, and the halves of a pair are half a head apart.
std::vector<float> ProportionalFrequencies(double theta, int64_t head_dim, double proportion, double factor) {
  const auto turning = static_cast<size_t>(std::floor(proportion * static_cast<double>(head_dim) / 2));
  std::vector<float> frequencies = BaseFrequencies(theta, head_dim);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = i < turning ? frequencies[i] / static_cast<float>(factor) : 0.0f;
  }
  return frequencies;
}

// The field from the scaling object, or from the top level, where some files have it. The latter wins: those files say
// max_position_embeddings of the stretched model, and have the field in both places only by chance.
double OriginalPositions(ConfigReader* scaling, ConfigReader* config, const RopeDefaults& defaults) {
  constexpr const char* kField = "original_max_position_embeddings";
  const double inside = scaling->FloatOr(kField, static_cast<double>(defaults.max_positions), 1, 1e12);
  return defaults.layer_type.empty() ? config->FloatOr(kField, inside, 1, 1e12) : inside;
}

std::vector<float> Divided(const std::vector<float>& frequencies, const std::vector<double>& divisors) {
  std::vector<float> out = frequencies;
  for (size_t i = 0; i < out.size(); ++i) out[i] /= static_cast<float>(divisors[i]);
  return out;
}

// LongRoPE: every frequency has its own divisor, one for short and one for long contexts. cos and sin grow with the
// stretch, the same in both, unless the file says how much.
void ApplyLongRope(ConfigReader* scaling, ConfigReader* config, const RopeDefaults& defaults,
                   std::vector<float>* frequencies, RopeSpec* rope) {
  const double original = OriginalPositions(scaling, config, defaults);
  const auto divisors = [&](const char* field) {
    std::vector<double> list = scaling->FloatList(field, kSmallest, 1e9);
    if (config->ok() && list.size() != frequencies->size()) {
      scaling->Invalid(
          field, Cat("has ", list.size(), " numbers, expected ", frequencies->size(), ", half the rotated dimensions"));
    }
    return list;
  };
  const std::vector<double> short_divisors = divisors("short_factor");
  const std::vector<double> long_divisors = divisors("long_factor");
  const double stretch = static_cast<double>(defaults.max_positions) / original;
  const double factor = scaling->FloatOr("factor", stretch, kSmallest, 1e6);
  const double derived = factor <= 1 || original <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  rope->cos_sin_scale = scaling->FloatOr("attention_factor", derived, kSmallest, 1e6);
  if (!config->ok()) return;
  const std::vector<float> stretched = Divided(*frequencies, long_divisors);
  *frequencies = Divided(*frequencies, short_divisors);
  rope->original_positions = static_cast<int64_t>(original);
  rope->long_inv_freq.assign(stretched.begin(), stretched.end());
  rope->long_cos_sin_scale = rope->cos_sin_scale;
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
  // Where rope_parameters has an object per layer type, transformers looks for this one field beside them.
  ConfigReader outer = config->Object("rope_parameters");
  yarn.truncate = (defaults.layer_type.empty() ? *scaling : outer).BoolOr("truncate", true);
  if (!(theta > 1)) config->Invalid("rope_theta", "yarn needs a value above 1");
  return yarn;
}

// From the settings, else from the field beside them.
double ReadTheta(ConfigReader* config, ConfigReader* settings, const RopeDefaults& defaults) {
  if (defaults.fixed_theta > 0) return defaults.fixed_theta;
  const std::optional<double> theta = settings->OptionalFloat("rope_theta", kSmallest, 1e30);
  const char* field = defaults.theta_field.c_str();
  const std::optional<double> beside =
      defaults.theta_field.empty() ? std::nullopt : config->OptionalFloat(field, kSmallest, 1e30);
  // One for all layers cannot contradict one for some.
  if (defaults.layer_type.empty() && theta && beside && *theta != *beside) {
    config->Invalid(field, Cat("is ", *beside, ", but in rope_parameters ", *theta));
  }
  return theta.value_or(beside.value_or(defaults.theta));
}

}  // namespace

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

ConfigReader RopeSettings(ConfigReader* config, const RopeDefaults& defaults) {
  ConfigReader parameters = config->Object("rope_parameters");
  if (!parameters.exists()) parameters = config->Object("rope_scaling");
  if (!parameters.exists() && defaults.settings.is_object()) {
    parameters = config->Over(&defaults.settings, "rope_parameters (assumed).");
  }
  if (!parameters.exists()) return parameters;
  // By layer type, or one for all. A family without layer types could not tell which to take.
  ConfigReader own = defaults.layer_type.empty() ? parameters : parameters.Object(defaults.layer_type.c_str());
  if (own.exists() && !defaults.layer_type.empty()) return own;
  for (const char* type : {"full_attention", "sliding_attention", "chunked_attention"}) {
    if (!parameters.Has(type)) continue;
    if (defaults.layer_type.empty()) {
      parameters.Unsupported(type, "settings by layer type are not supported for this architecture");
    } else {
      parameters.Invalid(defaults.layer_type.c_str(), Cat("absent, but there is ", type));
    }
  }
  return parameters;
}

void ExpectUnscaledRope(ConfigReader* config) {
  for (const char* field : {"rope_parameters", "rope_scaling"}) {
    ConfigReader settings = config->Object(field);
    const std::string type = settings.StringOr("rope_type", settings.StringOr("type", "default"));
    if (type == "default") continue;
    settings.Unsupported(settings.Has("rope_type") ? "rope_type" : "type",
                         Cat("is ", Quoted(type), ", but this model does not rotate; expected \"default\""));
  }
}

RopeSpec PlainRope(double theta, int64_t rotated, RopeSpec::Layout layout) {
  const std::vector<float> frequencies = BaseFrequencies(theta, rotated);
  RopeSpec rope;
  rope.layout = layout;
  rope.rotary_dim = rotated + rotated % 2;
  rope.inv_freq.assign(frequencies.begin(), frequencies.end());
  return rope;
}

RopeSpec ReadRope(ConfigReader* config, const RopeDefaults& defaults) {
  RopeSpec rope;
  rope.layout = defaults.layout;
  ConfigReader settings = RopeSettings(config, defaults);
  if (config->Has("rope_parameters") && config->Has("rope_scaling")) {
    ConfigReader old_style = config->Object("rope_scaling");
    const std::string fresh = settings.StringOr({"rope_type", "type"}, "default");
    const std::string old = old_style.StringOr({"rope_type", "type"}, "default");
    if (fresh != old) config->Invalid("rope_scaling", "says " + Quoted(old) + ", but rope_parameters " + Quoted(fresh));
  }

  const double theta = ReadTheta(config, &settings, defaults);
  const double part_by_default = config->IsNull("partial_rotary_factor") ? 1 : defaults.partial_rotary_factor;
  const double otherwise = config->FloatOr("partial_rotary_factor", part_by_default, kSmallest, 1);
  const double part = defaults.ignore_partial ? defaults.partial_rotary_factor
                                              : settings.FloatOr("partial_rotary_factor", otherwise, kSmallest, 1);
  if (defaults.whole_head && part != 1) {
    ConfigReader& where = settings.Has("partial_rotary_factor") ? settings : *config;
    where.Unsupported("partial_rotary_factor", Cat("is ", part, "; supported for this architecture: 1"));
  }
  // Both spellings may be present, with different values in old files ("type" kept for older readers).
  const std::string type = settings.StringOr({"rope_type"}, settings.StringOr({"type"}, "default"));
  const bool proportional = type == "proportional";
  const auto rotated =
      proportional ? defaults.head_dim : static_cast<int64_t>(static_cast<double>(defaults.head_dim) * part);
  if (rotated < 1 || rotated + rotated % 2 > defaults.head_dim) {
    config->Invalid("head_dim", Cat("rotates ", rotated, " dimensions (head_dim ", defaults.head_dim,
                                    " × partial_rotary_factor ", part, "), expected an even number"));
  }
  if (!config->ok()) return rope;
  rope.rotary_dim = rotated + rotated % 2;
  std::vector<float> frequencies = BaseFrequencies(theta, rotated);
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
    if (config->ok() && !(llama3.high_freq_factor >= llama3.low_freq_factor)) {
      settings.Invalid("high_freq_factor",
                       Cat("is ", llama3.high_freq_factor, ", expected no less than low_freq_factor (",
                           llama3.low_freq_factor, ")"));
    }
    if (config->ok()) ApplyLlama3(&frequencies, llama3);
  } else if (type == "yarn" || type == "deepseek_yarn") {
    if (rotated % 2 != 0) settings.Unsupported("rope_type", Cat("is \"yarn\" with ", rotated, " rotated dimensions"));
    const Yarn yarn = ReadYarn(&settings, config, defaults, theta);
    rope.cos_sin_scale = YarnAttentionFactor(&settings, yarn.factor);
    if (config->ok()) ApplyYarn(&frequencies, yarn);
  } else if (type == "longrope") {
    ApplyLongRope(&settings, config, defaults, &frequencies, &rope);
  } else if (proportional) {
    const double factor = settings.FloatOr("factor", 1, kSmallest, 1e6);
    frequencies = ProportionalFrequencies(theta, defaults.head_dim, part, factor);
  } else if (type == "dynamic" && settings.Has("alpha")) {
    // A fixed stretch of the base.
    const double alpha = settings.Float("alpha", kSmallest, 1e9);
    if (rotated < 4) settings.Invalid("alpha", "needs more than 2 rotated dimensions");
    const auto dim = static_cast<double>(rotated);
    if (config->ok()) frequencies = BaseFrequencies(theta * std::pow(alpha, dim / (dim - 2)), rotated);
  } else if (type == "dynamic") {
    // Without alpha the base grows with sequences longer than max_position_embeddings, which are not served.
    settings.Float("factor", kSmallest, 1e6);
  } else {
    settings.Unsupported(
        settings.Has("rope_type") ? "rope_type" : "type",
        Cat("is ", Quoted(type), "; supported: default, linear, llama3, yarn, longrope, proportional, dynamic"));
  }
  rope.inv_freq.assign(frequencies.begin(), frequencies.end());
  return rope;
}

}  // namespace moe
