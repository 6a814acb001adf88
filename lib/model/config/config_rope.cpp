// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/config_rope.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace pecia::model {
namespace {

constexpr double max_factor = 1e6;

struct RopeKind {
  std::string_view name;
  RopeScaling scaling;
  std::vector<std::string_view> keys;  ///< keys with an effect, and keys that transformers ignores
};

const std::array<RopeKind, 7>& rope_kinds() {
  static const std::array<RopeKind, 7> all = {{
      {"default", RopeScaling::none, {}},
      {"linear", RopeScaling::linear, {"factor", "original_max_position_embeddings"}},
      {"dynamic", RopeScaling::dynamic, {"factor", "original_max_position_embeddings"}},
      {"llama3",
       RopeScaling::llama3,
       {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"}},
      {"yarn",
       RopeScaling::yarn,
       {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
        "mscale", "mscale_all_dim", "truncate"}},
      {"longrope",
       RopeScaling::longrope,
       {"short_factor", "long_factor", "factor", "original_max_position_embeddings",
        "attention_factor"}},
      {"proportional", RopeScaling::proportional, {"factor"}},
  }};
  return all;
}

const RopeKind& rope_kind_of(const JsonSection& rope, const FamilyTraits& traits) {
  const auto old_style = rope.text("type"), new_style = rope.text("rope_type");
  if (old_style && new_style && *old_style != *new_style)
    rope.refuse("type", fmt::format("but {} is \"{}\"; remove one of them",
                                    rope.name_of("rope_type"), *new_style));
  std::string name = new_style ? *new_style : old_style.value_or("default");
  if (name == "su") name = "longrope";  // as it was once called
  for (const RopeKind& kind : rope_kinds())
    if (kind.name == name &&
        (kind.scaling != RopeScaling::proportional || traits.proportional_rope))
      return kind;
  rope.refuse<Unsupported>(new_style ? "rope_type" : "type",
                           "which is not implemented; known are default, linear, dynamic, llama3, "
                           "yarn and longrope");
}

constexpr std::string_view temperature_key = "llama_4_scaling_beta";

/// Throws for unknown keys, because they would change the frequencies.
void refuse_unknown_keys(const JsonSection& rope, const RopeKind& kind,
                         const FamilyTraits& traits) {
  constexpr std::array<std::string_view, 5> always = {"type", "rope_type", "rope_theta",
                                                      "partial_rotary_factor", "finetuned"};
  for (const auto& [key, value] : rope.object().items()) {
    const auto among = [&key](const auto& keys) {
      return std::find(keys.begin(), keys.end(), key) != keys.end();
    };
    if (value.is_null() || among(always) || among(kind.keys)) continue;
    // Files with a temperature also name the longest length once more, which has no effect.
    constexpr std::array<std::string_view, 2> of_temperature = {temperature_key,
                                                                "max_position_embeddings"};
    if (traits.query_temperature && among(of_temperature)) continue;
    constexpr std::array<std::string_view, 2> of_axes = {"mrope_section", "mrope_interleaved"};
    if (traits.image_axes && among(of_axes)) continue;
    rope.refuse<Unsupported>(
        key, fmt::format("and is not implemented with rope type {}; remove it if it is a leftover",
                         kind.name));
  }
}

/// The number at `key` of the file or of its rope section. Throws when the two contradict each
/// other.
std::optional<double> number_of_either(const JsonSection& file, const JsonSection* rope,
                                       std::string_view key, double min, double max) {
  const auto outer = file.number(key, min, max);
  const auto inner = rope ? rope->number(key, min, max) : std::nullopt;
  if (outer && inner && *outer != *inner)
    file.refuse(key, fmt::format("but {} is {}; remove one of them", rope->name_of(key), *inner));
  return inner ? inner : outer;
}

/// The rope sections of a file: for all layers or for those without a window, and, if the file says
/// so, for those with one.
struct RopeSections {
  std::optional<JsonSection> main, local;
};

RopeSections rope_sections(const JsonSection& file, const FamilyTraits& traits) {
  const auto scaling = file.section("rope_scaling"), parameters = file.section("rope_parameters");
  if (scaling && parameters && scaling->object() != parameters->object())
    file.refuse("rope_scaling", "and rope_parameters says something else; remove one of them");
  if (!parameters) return {scaling, {}};
  constexpr auto full = "full_attention", sliding = "sliding_attention";
  if (!traits.local_rope || (!parameters->find(full) && !parameters->find(sliding)))
    return {parameters, {}};
  for (const auto& [key, value] : parameters->object().items())
    if (key != full && key != sliding)
      parameters->refuse(key, fmt::format("beside {} and {}; remove it", full, sliding));
  RopeSections sections{parameters->section(full), parameters->section(sliding)};
  if (!sections.main) parameters->missing(full);
  if (!sections.local) parameters->missing(sliding);
  return sections;
}

int64_t original_length(const JsonSection& file, const JsonSection& rope, int64_t fallback) {
  constexpr auto key = "original_max_position_embeddings";
  const auto outer = file.integer(key, 1, max_model_positions);
  const auto inner = rope.integer(key, 1, max_model_positions);
  if (outer && inner && *outer != *inner)
    file.refuse(key, fmt::format("but {} is {}; remove one of them", rope.name_of(key), *inner));
  return inner ? *inner : outer.value_or(fallback);
}

void read_llama3(const JsonSection& file, const JsonSection& rope, RopeConfig& config) {
  config.factor = rope.required_number("factor", 1.0, max_factor);
  config.low_freq_factor = rope.required_number("low_freq_factor", 1e-6, max_factor);
  config.high_freq_factor = rope.required_number("high_freq_factor", 1e-6, max_factor);
  if (config.high_freq_factor < config.low_freq_factor)
    rope.refuse("high_freq_factor",
                fmt::format("but must not be below {} = {}; correct it",
                            rope.name_of("low_freq_factor"), config.low_freq_factor));
  config.original_max_positions = original_length(file, rope, 0);
  if (config.original_max_positions == 0) rope.missing("original_max_position_embeddings");
}

/// Treats zero as "not given", as transformers does.
std::optional<double> positive(std::optional<double> value) {
  return value && *value > 0 ? value : std::nullopt;
}

void read_yarn(const JsonSection& file, const JsonSection& rope, int64_t max_positions,
               RopeConfig& config) {
  config.original_max_positions = original_length(file, rope, max_positions);
  const double ratio =
      static_cast<double>(max_positions) / static_cast<double>(config.original_max_positions);
  const auto factor = rope.number("factor", 1.0, max_factor);
  if (!factor && ratio <= 1.0) rope.missing("factor");
  config.factor = factor.value_or(ratio);
  config.attention_factor = rope.number("attention_factor", 1e-6, max_factor);
  config.mscale = positive(rope.number("mscale", 0.0, max_factor));
  config.mscale_all_dim = positive(rope.number("mscale_all_dim", 0.0, max_factor));
  config.beta_fast = positive(rope.number("beta_fast", 0.0, max_factor)).value_or(32.0);
  config.beta_slow = positive(rope.number("beta_slow", 0.0, max_factor)).value_or(1.0);
  if (config.beta_fast <= config.beta_slow)
    rope.refuse("beta_fast",
                fmt::format("but must be above beta_slow = {}; correct it", config.beta_slow));
  config.truncate = rope.flag("truncate").value_or(true);
}

void read_longrope(const JsonSection& file, const JsonSection& rope, const FamilyTraits& traits,
                   int64_t max_positions, RopeConfig& config) {
  const auto factors = [&](std::string_view key) {
    const auto listed = rope.numbers(key, 1e-6, max_factor);
    if (!listed) rope.missing(key);
    if (2 * static_cast<int64_t>(listed->size()) != config.rotary_dim)
      rope.refuse(key,
                  fmt::format("with {} entries, but {} dimensions of each head rotate in pairs",
                              listed->size(), config.rotary_dim));
    return *listed;
  };
  config.short_factors = factors("short_factor");
  config.long_factors = factors("long_factor");
  const int64_t known = traits.original_length > 0 ? traits.original_length : max_positions;
  config.original_max_positions = original_length(file, rope, known);
  // transformers takes the ratio of the lengths, whatever `factor` says.
  config.factor =
      static_cast<double>(max_positions) / static_cast<double>(config.original_max_positions);
  config.attention_factor = rope.number("attention_factor", 1e-6, max_factor);
}

void read_temperature(const JsonSection& rope, RopeConfig& config) {
  if (config.scaling != RopeScaling::yarn)
    rope.refuse<Unsupported>(rope.names("rope_type") ? "rope_type" : "type",
                             "and only yarn is implemented for this family");
  config.temperature_beta = rope.required_number(temperature_key, 0.0, max_factor);
}

/// `length` multiplied by `factor`, bounded so that positions stay far from overflow.
int64_t scaled_length(int64_t length, double factor) {
  const double scaled = static_cast<double>(length) * factor;
  return scaled < static_cast<double>(max_model_positions) ? std::llround(scaled)
                                                           : max_model_positions;
}

/// Reads the scaling in `rope`, if there is one. `max_positions` becomes the scaled length.
void read_scaling(const JsonSection& file, const JsonSection* rope, const FamilyTraits& traits,
                  int64_t& max_positions, RopeConfig& config) {
  if (!rope) return;
  const RopeKind& kind = rope_kind_of(*rope, traits);
  refuse_unknown_keys(*rope, kind, traits);
  config.scaling = kind.scaling;
  switch (kind.scaling) {
    case RopeScaling::none:
      break;
    case RopeScaling::linear:
    case RopeScaling::dynamic:
      config.factor = rope->required_number("factor", 1.0, max_factor);
      config.original_max_positions = max_positions;
      if (!traits.length_is_scaled) max_positions = scaled_length(max_positions, config.factor);
      break;
    case RopeScaling::llama3:
      read_llama3(file, *rope, config);
      break;
    case RopeScaling::yarn:
      read_yarn(file, *rope, max_positions, config);
      max_positions =
          std::max(max_positions, scaled_length(config.original_max_positions, config.factor));
      break;
    case RopeScaling::proportional:
      config.factor = rope->number("factor", 1e-6, max_factor).value_or(1.0);
      break;
    case RopeScaling::longrope:
      read_longrope(file, *rope, traits, max_positions, config);
      break;
  }
  if (traits.query_temperature) read_temperature(*rope, config);
  if (kind.scaling == RopeScaling::dynamic && config.rotary_dim == 2)
    rope->refuse("factor", "but dynamic scaling needs more than 2 rotated dimensions");
}

/// partial_rotary_factor is not read: qk_rope_head_dim says what rotates.
void read_latent_rope(const JsonSection& file, ModelConfig& config) {
  config.rope.rotary_dim = config.latent->rope_dim;
  config.rope.pairs = file.flag("rope_interleave").value_or(true) ? kernels::RopePairs::interleaved
                                                                  : kernels::RopePairs::halves;
}

/// YaRN scales cos and sin of the rotated part, and with mscale_all_dim also all scores, by its
/// square.
void read_latent_scaling(const JsonSection& file, const JsonSection* rope,
                         const FamilyTraits& traits, ModelConfig& config) {
  read_scaling(file, rope, traits, config.max_positions, config.rope);
  double scale = 1 / std::sqrt(static_cast<double>(config.latent->query_dim()));
  if (config.rope.scaling == RopeScaling::yarn && config.rope.mscale_all_dim) {
    const double by = yarn_mscale(config.rope.factor, *config.rope.mscale_all_dim);
    scale *= by * by;
  }
  config.attention_scale = static_cast<float>(scale);
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void read_rope(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  constexpr double least_theta = 1.0 + 1e-6, most_theta = 1e18;
  const auto [main, local] = rope_sections(file, traits);
  const JsonSection* rope = main ? &*main : nullptr;
  config.rope.pairs = traits.pairs;
  config.rope.theta = number_of_either(file, rope, "rope_theta", least_theta, most_theta)
                          .value_or(traits.rope_theta);

  if (config.latent) {
    read_latent_rope(file, config);
    return read_latent_scaling(file, rope, traits, config);
  }
  const auto partial = number_of_either(file, rope, "partial_rotary_factor", 0.0, 1.0);
  if (partial && !traits.partial_rotation && *partial != 1.0)
    file.refuse<Unsupported>(
        "partial_rotary_factor",
        fmt::format("but {} rotates whole heads; remove it if it is a leftover",
                    traits.model_type));
  const int64_t head_dim = config.widest_heads().dim;
  const auto turning = [](int64_t dim, double share) {
    return static_cast<int64_t>(static_cast<double>(dim) * share);
  };
  const bool proportional =
      traits.proportional_rope &&
      (rope == nullptr || rope_kind_of(*rope, traits).scaling == RopeScaling::proportional);
  const bool says_nothing = !traits.proportional_rope || rope == nullptr;
  const double share = partial.value_or(says_nothing ? traits.partial_rotary_factor : 1.0);
  config.rope.rotary_dim = proportional ? head_dim : turning(head_dim, share);
  if (!traits.rotary_dim_key.empty())
    config.rope.rotary_dim =
        file.integer(traits.rotary_dim_key, 2, head_dim).value_or(config.rope.rotary_dim);
  const auto check = [&](int64_t rotary_dim, int64_t of) {
    if (rotary_dim < 2 || rotary_dim % 2 != 0)
      fail<InputError>(
          "{}: {} of a head's {} dimensions rotate, which is not an even number above 0; "
          "correct head_dim or partial_rotary_factor",
          file.file(), rotary_dim, of);
  };
  check(config.rope.rotary_dim, head_dim);

  if (traits.local_rope) {
    config.local_rope = config.rope;
    if (traits.local_theta > 0) config.local_rope->theta = traits.local_theta;
    if (!traits.local_theta_key.empty())
      config.local_rope->theta = file.number(traits.local_theta_key, least_theta, most_theta)
                                     .value_or(config.local_rope->theta);
    if (traits.proportional_rope) {
      config.local_rope->rotary_dim =
          turning(config.head_dim,
                  local ? local->number("partial_rotary_factor", 0.0, 1.0).value_or(1.0) : 1.0);
      check(config.local_rope->rotary_dim, config.head_dim);
    }
    if (local) {
      config.local_rope->theta =
          local->number("rope_theta", least_theta, most_theta).value_or(config.local_rope->theta);
      int64_t ignored = config.max_positions;
      read_scaling(file, &*local, traits, ignored, *config.local_rope);
    }
  }
  if (proportional)
    config.rope.scaling = RopeScaling::proportional, config.rope.turning_share = share;
  read_scaling(file, rope, traits, config.max_positions, config.rope);
  // A factor of cos and sin goes in the norms after the rotation.
  if (config.qk_norm == QkNorm::rotated_heads) config.rope.attention_factor = 1;
}

void extend_context(ModelConfig& config, RopeScaling kind, double factor) {
  if (kind != RopeScaling::linear && kind != RopeScaling::dynamic && kind != RopeScaling::yarn)
    fail<InputError>("a context is extended by linear, dynamic or yarn scaling, not by {}",
                     name_of(kind));
  if (!(factor > 1.0 && factor <= max_factor))
    fail<InputError>(
        "a context cannot be extended by a factor of {}; choose one above 1, at most {}", factor,
        max_factor);
  if (config.rope.scaling != RopeScaling::none)
    fail<InputError>(
        "the model's config.json scales its positions already ({} by {}); to scale them "
        "otherwise, remove rope_scaling or rope_parameters.rope_type there",
        name_of(config.rope.scaling), config.rope.factor);
  if (kind == RopeScaling::dynamic && config.rope.rotary_dim == 2)
    fail<InputError>("dynamic scaling needs more than 2 rotated dimensions; choose linear or yarn");
  config.rope.scaling = kind;
  config.rope.factor = factor;
  config.rope.original_max_positions = config.max_positions;
  config.max_positions = scaled_length(config.max_positions, factor);
}

std::string_view name_of(RopeScaling scaling) {
  for (const RopeKind& kind : rope_kinds())
    if (kind.scaling == scaling) return kind.name;
  return "unknown";
}

}  // namespace pecia::model
