// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/config.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/files/disk/sha256.hpp"
#include "lib/model/config/config_experts.hpp"
#include "lib/model/config/config_json.hpp"
#include "lib/model/config/config_layers.hpp"
#include "lib/model/config/config_own_layers.hpp"
#include "lib/model/config/config_recurrent.hpp"
#include "lib/model/config/config_rope.hpp"
#include "lib/model/config/family.hpp"

namespace pecia::model {
namespace {

// Limits are several times the largest published models. They keep all counts of parameters and
// bytes within 63 bits.
constexpr int64_t max_vocab = INT32_MAX;
constexpr int64_t max_width = 1 << 20;
constexpr int64_t max_heads = 1 << 14;

const FamilyTraits& family_of(const JsonSection& file) {
  const auto type = file.text("model_type");
  if (!type) file.missing("model_type");
  std::string known;
  for (const FamilyTraits& traits : all_families()) {
    known += (known.empty() ? "" : ", ") + std::string(traits.model_type);
    const auto& also = traits.other_types;
    if (traits.model_type != *type && std::ranges::find(also, *type) == also.end()) continue;
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

/// The family's activation, with the limit and the slope that the file gives it.
kernels::Activation read_activation(const JsonSection& file, const FamilyTraits& traits) {
  kernels::Activation activation = traits.activation;
  if (activation.kind != kernels::Activation::Kind::clamped) return activation;
  const auto read = [&](std::string_view key, float& to) {
    if (const auto value = file.number(key, 1e-6, 1e6)) to = static_cast<float>(*value);
  };
  read("swiglu_limit", activation.limit), read("swiglu_alpha", activation.slope);
  return activation;
}

/// Throws for options that change what a model computes and that are not implemented here.
void refuse_unimplemented(const JsonSection& file, const FamilyTraits& traits) {
  struct Option {
    std::string_view key;
    double neutral;  ///< value with which the option changes nothing
    std::string_view what;
    bool FamilyTraits::*read_by = nullptr;  ///< of families that have the option
  };
  const auto reads = [&](std::string_view key) {
    const std::array keys{traits.expert_count_key, traits.shared_count_key, traits.shared_ffn_key,
                          traits.route_scale_key};
    return std::ranges::find(keys, key) != keys.end() ||
           (traits.windows == WindowRule::chunks && key == "attention_chunk_size");
  };
  constexpr std::array<Option, 24> options = {{
      {"attn_logit_softcapping", 0, "capped attention scores"},
      {"final_logit_softcapping", 0, "capped logits", &FamilyTraits::caps_logits},
      {"num_experts", 0, "such a mixture of experts", &FamilyTraits::has_experts},
      {"num_local_experts", 0, "such a mixture of experts", &FamilyTraits::has_experts},
      {"n_routed_experts", 0, "such a mixture of experts"},
      {"moe_layer_freq", 1, "another pattern of experts"},
      {"moe_latent_size", 0, "experts of latents", &FamilyTraits::expert_latents},
      {"moe_intermediate_size", 0, "such a mixture of experts", &FamilyTraits::has_experts},
      {"shared_expert_intermediate_size", 0, "an expert that all tokens share"},
      {"n_shared_experts", 0, "an expert that all tokens share"},
      {"num_shared_experts", 0, "an expert that all tokens share"},
      {"n_group", 1, "a choice among groups of experts", &FamilyTraits::expert_groups},
      {"routed_scaling_factor", 1, "scaled experts"},
      {"kv_lora_rank", 0, "latent attention", &FamilyTraits::is_latent},
      {"query_pre_attn_scalar", 0, "another attention scale", &FamilyTraits::query_scalar},
      {"attention_multiplier", 0, "another attention scale", &FamilyTraits::multipliers},
      {"embedding_multiplier", 1, "scaled embeddings", &FamilyTraits::multipliers},
      {"residual_multiplier", 1, "scaled residuals", &FamilyTraits::multipliers},
      {"logits_scaling", 1, "scaled logits", &FamilyTraits::multipliers},
      {"logit_scale", 1, "scaled logits"},
      {"attention_chunk_size", 0, "chunked attention"},
      {"clip_qkv", 0, "clipped projections"},
      {"alibi", 0, "linear attention biases"},
      {"use_bidirectional_attention", 0, "attention to later tokens", &FamilyTraits::sees_images},
  }};
  for (const Option& option : options) {
    const nlohmann::json* value = file.find(option.key);
    if (!value || *value == false || *value == option.neutral) continue;
    if ((option.read_by != nullptr && traits.*option.read_by) || reads(option.key)) continue;
    file.refuse<Unsupported>(option.key, fmt::format("and {} is not implemented; use a model "
                                                     "without it",
                                                     option.what));
  }
  for (const auto& [key, known] : traits.known_values)
    if (const nlohmann::json* value = file.find(key);
        value && *value != nlohmann::json::parse(known))
      file.refuse<Unsupported>(
          key, fmt::format("and only {} is implemented; use a model with it", known));
  if (const auto kinds = file.integers("attn_type_list", 0, INT32_MAX))
    for (const int64_t kind : *kinds)
      if (kind != 1)
        file.refuse<Unsupported>("attn_type_list",
                                 "and only attention, kind 1, is implemented; use a model with it");
  if (file.find("no_rope_layers") && traits.unrotated_period == 0)
    file.refuse<Unsupported>(
        "no_rope_layers",
        fmt::format("but all layers of {} rotate; use a model without it", traits.model_type));
}

void refuse_other_activations(const JsonSection& file, const FamilyTraits& traits) {
  using Names = std::array<std::string_view, 2>;
  const kernels::Activation activation = traits.activation;
  const Names known = traits.names.xielu != ""                  ? Names{"xielu", "xielu"}
                      : activation == kernels::Activation::relu ? Names{"relu2", "relu2"}
                      : activation == kernels::Activation::gelu_tanh
                          ? Names{"gelu_pytorch_tanh", "gelu_pytorch_tanh"}
                          : Names{"silu", "swish"};
  for (const std::string_view key : {"hidden_act", "hidden_activation", "mlp_hidden_act"}) {
    const auto name = file.text(key);
    if (name && *name != known[0] && *name != known[1])
      file.refuse<Unsupported>(key, fmt::format("and only {} is implemented for {}; use a model "
                                                "with it",
                                                known[0], traits.model_type));
  }
}

/// The size at `key`, which may be absent if the family has a default.
int64_t size_of(const JsonSection& file, std::string_view key, int64_t max, int64_t by_default) {
  if (by_default > 0) return file.integer(key, 1, max).value_or(by_default);
  return file.required_integer(key, 1, max);
}

/// `head_dim` and `qk_head_dim` are not read: files give it several meanings.
void read_latent(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  if (config.num_kv_heads != config.num_heads)
    file.refuse("num_key_value_heads",
                fmt::format("but all {} heads have keys and values of their own, made of latents; "
                            "correct it or remove it",
                            config.num_heads));
  const auto size = [&](std::string_view key, int64_t by_default) {
    return file.integer(key, 1, max_head_dim).value_or(by_default);
  };
  const LatentConfig& usual = traits.latent;
  LatentConfig latent;
  if (!file.names("q_lora_rank") || file.find("q_lora_rank") != nullptr)
    latent.q_rank = file.integer("q_lora_rank", 1, max_width).value_or(usual.q_rank);
  latent.kv_rank = size("kv_lora_rank", usual.kv_rank);
  latent.nope_dim = size("qk_nope_head_dim", usual.nope_dim);
  latent.rope_dim = size("qk_rope_head_dim", usual.rope_dim);
  latent.value_dim = size("v_head_dim", usual.value_dim);
  if (latent.rope_dim % 2 != 0)
    file.refuse("qk_rope_head_dim", "but dimensions turn in pairs; correct it");
  if (latent.key_dim() > max_head_dim || latent.key_dim() % 2 != 0)
    file.refuse("kv_lora_rank",
                fmt::format("so {} numbers are kept of a token with qk_rope_head_dim, which must "
                            "be an even number of at most {}; correct one of them",
                            latent.key_dim(), max_head_dim));
  config.latent = latent;
  config.num_kv_heads = 1;
  config.head_dim = latent.key_dim();
}

void read_sizes(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  config.vocab = size_of(file, "vocab_size", max_vocab, traits.vocab);
  config.hidden = file.required_integer("hidden_size", 1, max_width);
  config.ffn = traits.dense_ffn_key.empty()
                   ? file.required_integer("intermediate_size", 1, max_ffn_columns)
                   : size_of(file, traits.dense_ffn_key, max_ffn_columns, traits.dense_ffn);
  config.layers = traits.recurrent && traits.recurrent->one_block
                      ? count_blocks(file, traits)
                      : file.required_integer("num_hidden_layers", 1, max_model_layers);
  config.num_heads = size_of(file, "num_attention_heads", max_heads, traits.num_heads);
  const bool absent = !file.names("num_key_value_heads") && traits.num_kv_heads > 0;
  config.num_kv_heads = file.integer("num_key_value_heads", 1, max_heads)
                            .value_or(absent ? traits.num_kv_heads : config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0)
    file.refuse("num_attention_heads",
                fmt::format("which num_key_value_heads = {} does not divide; correct one of them",
                            config.num_kv_heads));

  if (traits.is_latent) return read_latent(file, traits, config);
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
}

void read_norms(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  config.rms_norm_eps = file.number(traits.eps_key, 0.0, 1.0).value_or(traits.rms_norm_eps);
  const bool norms_heads =
      traits.qk_norm_key.empty() || file.flag(traits.qk_norm_key).value_or(traits.qk_norm_default);
  config.qk_norm = norms_heads ? traits.qk_norm : QkNorm::none;
  config.norm_before = !traits.names.attention_norm.empty();
  config.norm_after = !traits.names.post_attention_norm.empty();
  config.norm_weight_offset = traits.norm_weight_offset;
}

void read_scales(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  const auto factor = [&](std::string_view key, double by_default) {
    return file.number(key, 1e-6, 1e6).value_or(by_default);
  };
  if (traits.query_scalar)
    config.attention_scale =
        static_cast<float>(1 / std::sqrt(factor("query_pre_attn_scalar", 256)));
  if (traits.unit_scores) config.attention_scale = 1.0f;
  if (traits.caps_logits)
    config.logit_cap = file.number("final_logit_softcapping", 0, 1e6).value_or(0);
  // Not rounded to the type of the weights, as transformers does in that type.
  if (traits.scales_embeddings &&
      (traits.scales_key.empty() || file.flag(traits.scales_key).value_or(false)))
    config.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  if (!traits.multipliers) return;
  config.attention_scale = static_cast<float>(factor("attention_multiplier", 1));
  config.embedding_scale = factor("embedding_multiplier", 1);
  config.residual_scale = factor("residual_multiplier", 1);
  config.logits_divisor = factor("logits_scaling", 1);
}

/// Published files have a number for the flag.
void read_unrotated_temperature(const JsonSection& file, const FamilyTraits& traits,
                                ModelConfig& config) {
  if (!traits.unrotated_temperature) return;
  constexpr auto key = "attn_temperature_tuning";
  const nlohmann::json* value = file.find(key);
  const bool is_on = value == nullptr     ? !file.names(key)
                     : value->is_number() ? file.number(key, 0, 1e6).value_or(0) != 0
                                          : file.flag(key).value_or(false);
  if (!is_on) return;
  QueryTemperature& temperature = config.unrotated_temperature.emplace();
  temperature.scale = file.number("attn_scale", 0, 1e6).value_or(0.1);
  temperature.floor = file.integer("floor_scale", 1, max_model_positions).value_or(8192);
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

/// What the file says of a language model. A model with other parts has it in text_config, and some
/// keys beside that.
JsonSection of_language_model(const JsonSection& file) {
  const auto type = file.text("model_type");
  for (const FamilyTraits& traits : all_families()) {
    if (!type || traits.outer_type.empty() || *type != traits.outer_type) continue;
    auto inner = file.section("text_config");
    if (!inner) file.missing("text_config");
    inner->adopt(file, {"architectures", "compression_config", "dtype", "eos_token_id",
                        "quantization_config", "tie_word_embeddings", "torch_dtype"});
    return *inner;
  }
  return file;
}

/// Other files of the checkpoint's folder; null: there is none.
struct FilesBeside {
  const JsonSection* generation = nullptr;    ///< generation_config.json
  const JsonSection* quantization = nullptr;  ///< hf_quant_config.json
};

ModelConfig config_of(const JsonSection& all, const FilesBeside& beside) {
  const JsonSection file = of_language_model(all);
  const FamilyTraits& traits = family_of(file);
  refuse_unimplemented(file, traits);
  refuse_other_activations(file, traits);

  ModelConfig config;
  config.family = traits.family;
  read_sizes(file, traits, config);
  config.activation = read_activation(file, traits);
  config.xielu = !traits.names.xielu.empty();
  config.ffn_has_gate = traits.ffn_has_gate;
  config.expert_bias = traits.expert_bias;
  config.attention_sinks = traits.attention_sinks;
  config.attention_gate = traits.gate_in_queries || !traits.names.attention_gate.empty();
  if (!traits.draft_layers_key.empty())
    config.draft_layers = file.integer(traits.draft_layers_key, 0, max_model_layers).value_or(0);
  if (traits.always_scaled && !file.find("rope_scaling") && !file.find("rope_parameters"))
    file.missing("rope_scaling");
  read_norms(file, traits, config);
  read_scales(file, traits, config);
  read_biases(file, traits, config);
  config.tied_embeddings = file.flag("tie_word_embeddings").value_or(traits.tied_embeddings);
  config.max_positions =
      size_of(file, "max_position_embeddings", max_model_positions, traits.max_positions);
  config.pattern = read_pattern(file, traits, config.layers, config.max_positions);
  read_recurrent(file, traits, config);
  read_own_layers(file, traits, config);
  read_experts(file, traits, config);
  read_rope(file, traits, config);
  read_unrotated_temperature(file, traits, config);
  limit_to_first_chunk(file, config);
  config.stored_dtype = read_stored_dtype(file);
  config.quantization = read_quantization(file, beside.quantization, traits.gate_up_rows_alternate);
  if (config.quantization && traits.packed_experts && !traits.gate_up_rows_alternate)
    file.refuse<Unsupported>("quantization_config",
                             "and codes with all experts in one tensor are not implemented; use a "
                             "checkpoint in bf16, with model.dtype to round it");
  if (traits.full_head_dim > 0 && config.quantization)
    file.refuse<Unsupported>("quantization_config",
                             "and codes of layers with heads of their own are not implemented; use "
                             "a checkpoint in bf16, with model.dtype to round it");
  config.stop_token_ids = read_stop_tokens(file, traits, beside.generation, config.vocab);
  return config;
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const JsonSection file = JsonSection::read(path);
  const auto beside = [&](const char* name) -> std::optional<JsonSection> {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / name, ignored)) return {};
    return JsonSection::read(folder / name);
  };
  const auto generation = beside("generation_config.json");
  const auto quantization = beside("hf_quant_config.json");
  ModelConfig config = config_of(
      file, {generation ? &*generation : nullptr, quantization ? &*quantization : nullptr});
  config.sha256 = io::sha256_of_file(path);
  return config;
}

ModelConfig parse_config(const std::string& text, const std::string& name) {
  ModelConfig config = config_of(JsonSection::parse(text, name), {});
  io::Sha256 sha256;
  sha256.update(text);
  config.sha256 = sha256.hex();
  return config;
}

}  // namespace pecia::model
