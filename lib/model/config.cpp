// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config.hpp"

#include <algorithm>
#include <array>

#include "lib/core/fp8_vector.hpp"
#include "lib/io/safetensors.hpp"
#include "lib/io/sha256.hpp"
#include "lib/model/config_json.hpp"
#include "lib/model/config_rope.hpp"
#include "lib/model/family.hpp"

namespace pecia::model {
namespace {

// Limits are several times the largest published models. They keep all counts of parameters and
// bytes within 63 bits.
constexpr int64_t max_vocab = INT32_MAX;
constexpr int64_t max_width = 1 << 20;
constexpr int64_t max_ffn = 1 << 22;
constexpr int64_t max_layers = 1 << 14;
constexpr int64_t max_heads = 1 << 14;
constexpr int64_t max_head_dim = 1 << 12;

const FamilyTraits& family_of(const JsonSection& file) {
  const auto type = file.text("model_type");
  if (!type) file.missing("model_type");
  std::string known;
  for (const FamilyTraits& traits : all_families()) {
    known += (known.empty() ? "" : ", ") + std::string(traits.model_type);
    if (traits.model_type != *type) continue;
    const auto architectures = file.texts("architectures");
    if (!architectures || architectures->empty()) return traits;
    for (const std::string& name : *architectures)
      if (std::find(traits.architectures.begin(), traits.architectures.end(), name) !=
          traits.architectures.end())
        return traits;
    file.refuse<Unsupported>("architectures", fmt::format("but model type {} is known as {} only",
                                                          *type, traits.architectures.front()));
  }
  file.refuse<Unsupported>(
      "model_type",
      fmt::format("an unknown architecture; known are {}: use a model of one", known));
}

/// Throws for options that change what a model computes and that are not implemented here.
void refuse_unimplemented(const JsonSection& file) {
  struct Option {
    std::string_view key;
    double neutral;  ///< value with which the option changes nothing
    std::string_view what;
  };
  constexpr std::array<Option, 19> options = {{
      {"quantization_config", 0, "quantized weights"},
      {"compression_config", 0, "compressed weights"},
      {"attn_logit_softcapping", 0, "capped attention scores"},
      {"final_logit_softcapping", 0, "capped logits"},
      {"num_experts", 0, "a mixture of experts"},
      {"num_local_experts", 0, "a mixture of experts"},
      {"n_routed_experts", 0, "a mixture of experts"},
      {"moe_intermediate_size", 0, "a mixture of experts"},
      {"kv_lora_rank", 0, "latent attention"},
      {"query_pre_attn_scalar", 0, "another attention scale"},
      {"attention_multiplier", 0, "another attention scale"},
      {"embedding_multiplier", 1, "scaled embeddings"},
      {"residual_multiplier", 1, "scaled residuals"},
      {"logits_scaling", 1, "scaled logits"},
      {"logit_scale", 1, "scaled logits"},
      {"attention_chunk_size", 0, "chunked attention"},
      {"clip_qkv", 0, "clipped projections"},
      {"alibi", 0, "linear attention biases"},
      {"no_rope_layers", 0, "layers without rotation"},
  }};
  for (const Option& option : options) {
    const nlohmann::json* value = file.find(option.key);
    if (!value || *value == false || *value == option.neutral) continue;
    file.refuse<Unsupported>(option.key, fmt::format("and {} is not implemented; use a model "
                                                     "without it",
                                                     option.what));
  }
  for (const std::string_view key : {"hidden_act", "hidden_activation"}) {
    const auto name = file.text(key);
    if (name && *name != "silu" && *name != "swish")
      file.refuse<Unsupported>(key, "and only silu is implemented; use a model with it");
  }
}

void read_sizes(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  config.vocab = file.required_integer("vocab_size", 1, max_vocab);
  config.hidden = file.required_integer("hidden_size", 1, max_width);
  config.ffn = file.required_integer("intermediate_size", 1, max_ffn);
  config.layers = file.required_integer("num_hidden_layers", 1, max_layers);
  config.num_heads = file.required_integer("num_attention_heads", 1, max_heads);
  config.num_kv_heads =
      file.integer("num_key_value_heads", 1, max_heads).value_or(config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0)
    file.refuse("num_attention_heads",
                fmt::format("which num_key_value_heads = {} does not divide; correct one of them",
                            config.num_kv_heads));

  const int64_t by_default = file.names("head_dim") ? 0 : traits.head_dim;
  const auto head_dim = file.integer("head_dim", 1, max_head_dim);
  if (!head_dim && by_default == 0 && config.hidden % config.num_heads != 0)
    file.refuse("hidden_size",
                fmt::format("which num_attention_heads = {} does not divide; correct "
                            "one of them or give head_dim",
                            config.num_heads));
  config.head_dim =
      head_dim.value_or(by_default > 0 ? by_default : config.hidden / config.num_heads);
  if (config.head_dim % 2 != 0 || config.head_dim > max_head_dim)
    fail<InputError>(
        "{}: heads have {} dimensions, but must have an even number of at most {}; "
        "correct head_dim, or hidden_size and num_attention_heads",
        file.file(), config.head_dim, max_head_dim);
}

void read_biases(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  config.attention_bias = traits.bias_default;
  if (!traits.bias_key.empty())
    config.attention_bias = file.flag(traits.bias_key).value_or(traits.bias_default);
  config.attention_output_bias = config.attention_bias && traits.bias_on_output;
  config.mlp_bias = traits.mlp_bias_configurable && file.flag("mlp_bias").value_or(false);
  config.qk_norm = traits.qk_norm;
}

/// The window of layers that have one; 0: no window.
int64_t read_window(const JsonSection& file, const FamilyTraits& traits, int64_t max_positions) {
  auto window = file.integer("sliding_window", 1, max_model_positions);
  switch (traits.windows) {
    case WindowRule::never:
      if (window && *window < max_positions)
        file.refuse("sliding_window",
                    fmt::format("but model type {} has none; set it to null if it is a leftover",
                                traits.model_type));
      return 0;
    case WindowRule::by_layer:
      if (!file.flag("use_sliding_window").value_or(false)) return 0;
      break;
    case WindowRule::every_layer:
      break;
  }
  return window.value_or(file.names("sliding_window") ? 0 : traits.window_default);
}

std::vector<LayerConfig> read_pattern(const JsonSection& file, const FamilyTraits& traits,
                                      int64_t layers, int64_t max_positions) {
  const int64_t window = read_window(file, traits, max_positions);
  std::vector<LayerConfig> pattern(layers, {.window = window});
  const auto types = file.texts("layer_types");
  if (!types) {
    const int64_t full_layers = traits.windows == WindowRule::by_layer
                                    ? file.integer("max_window_layers", 0, max_layers).value_or(28)
                                    : 0;
    std::fill_n(pattern.begin(), std::min(full_layers, layers), LayerConfig{});
    return pattern;
  }
  if (static_cast<int64_t>(types->size()) != layers)
    file.refuse("layer_types", fmt::format("with {} entries, but num_hidden_layers is {}; correct "
                                           "one of them",
                                           types->size(), layers));
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string& type = (*types)[layer];
    const bool sliding = type == "sliding_attention";
    if (!sliding && type != "full_attention")
      file.refuse<Unsupported>("layer_types",
                               fmt::format("and {} (layer {}) is not implemented; known are "
                                           "full_attention and sliding_attention",
                                           type, layer));
    if (sliding && window == 0)
      file.refuse("layer_types", fmt::format("but no sliding window is in use for layer {}; set "
                                             "sliding_window (and use_sliding_window)",
                                             layer));
    if (!sliding && window > 0 && traits.windows == WindowRule::every_layer)
      file.refuse<Unsupported>("layer_types",
                               "but this model type has one window for all layers; "
                               "remove layer_types or sliding_window");
    if (!sliding) pattern[layer].window = 0;
  }
  return pattern;
}

/// Dual chunk attention (Qwen2.5-1M) equals plain attention only within one chunk.
void limit_to_first_chunk(const JsonSection& file, ModelConfig& config) {
  const auto dual = file.section("dual_chunk_attention_config");
  if (!dual) return;
  const int64_t chunk = dual->required_integer("chunk_size", 1, max_model_positions);
  const int64_t local = dual->required_integer("local_size", 0, chunk - 1);
  config.max_positions = std::min(config.max_positions, chunk - local);
}

/// `generation`: generation_config.json, where there is one.
std::vector<int32_t> read_stop_tokens(const JsonSection& file, const FamilyTraits& traits,
                                      const JsonSection* generation, int64_t vocab) {
  constexpr auto key = "eos_token_id";
  std::optional<std::vector<int64_t>> given;
  if (generation != nullptr) given = generation->integers(key, 0, vocab - 1);
  if (!given) given = file.integers(key, 0, vocab - 1);
  if (given) return {given->begin(), given->end()};

  std::vector<int32_t> defaults;
  if (!file.names(key))
    std::copy_if(traits.eos_token_ids.begin(), traits.eos_token_ids.end(),
                 std::back_inserter(defaults), [vocab](int32_t id) { return id < vocab; });
  return defaults;
}

std::optional<DType> read_stored_dtype(const JsonSection& file) {
  const auto name = file.names("dtype") ? file.text("dtype") : file.text("torch_dtype");
  if (name == "float32") return DType::fp32;
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::fp16;
  return {};
}

/// Number of elements in one layer's matrices.
int64_t layer_matrix_elements(const ModelConfig& config) {
  const int64_t query_width = config.num_heads * config.head_dim;
  const int64_t kv_width = config.num_kv_heads * config.head_dim;
  return config.hidden * (2 * query_width + 2 * kv_width + 3 * config.ffn);
}

ModelConfig config_of(const JsonSection& file, const JsonSection* generation) {
  const FamilyTraits& traits = family_of(file);
  refuse_unimplemented(file);

  ModelConfig config;
  config.family = traits.family;
  read_sizes(file, traits, config);
  config.rms_norm_eps = file.number("rms_norm_eps", 0.0, 1.0).value_or(traits.rms_norm_eps);
  read_biases(file, traits, config);
  config.tied_embeddings = file.flag("tie_word_embeddings").value_or(false);
  config.max_positions = file.required_integer("max_position_embeddings", 1, max_model_positions);
  config.pattern = read_pattern(file, traits, config.layers, config.max_positions);
  read_rope(file, traits, config);
  limit_to_first_chunk(file, config);
  config.stored_dtype = read_stored_dtype(file);
  config.stop_token_ids = read_stop_tokens(file, traits, generation, config.vocab);
  return config;
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const std::filesystem::path beside = folder / "generation_config.json";
  const JsonSection file = JsonSection::read(path);
  std::optional<JsonSection> generation;
  std::error_code ignored;
  if (std::filesystem::exists(beside, ignored)) generation = JsonSection::read(beside);
  ModelConfig config = config_of(file, generation ? &*generation : nullptr);
  config.sha256 = io::sha256_of_file(path);
  return config;
}

ModelConfig parse_config(const std::string& text, const std::string& name) {
  ModelConfig config = config_of(JsonSection::parse(text, name), nullptr);
  io::Sha256 sha256;
  sha256.update(text);
  config.sha256 = sha256.hex();
  return config;
}

std::vector<int64_t> ModelConfig::windows() const {
  std::vector<int64_t> windows;
  for (const LayerConfig& layer : pattern) windows.push_back(layer.window);
  return windows;
}

int64_t ModelConfig::parameters() const {
  const int64_t query_width = num_heads * head_dim, kv_width = num_kv_heads * head_dim;
  int64_t layer = layer_matrix_elements(*this) + 2 * hidden;
  if (attention_bias) layer += query_width + 2 * kv_width;
  if (attention_output_bias) layer += hidden;
  if (mlp_bias) layer += 2 * ffn + hidden;
  if (qk_norm) layer += 2 * head_dim;
  return layers * layer + hidden + (tied_embeddings ? 1 : 2) * vocab * hidden;
}

double ModelConfig::flops_per_token() const {
  return 2.0 * (static_cast<double>(layers) * static_cast<double>(layer_matrix_elements(*this)) +
                static_cast<double>(vocab) * static_cast<double>(hidden));
}

int64_t ModelConfig::kv_bytes_per_token(DType dtype) const {
  return 2 * layers * num_kv_heads * vector_bytes(dtype, head_dim);
}

}  // namespace pecia::model
