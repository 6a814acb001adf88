// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/pecia/summaries.hpp"
#include "lib/base/report/format.hpp"
#include "lib/model/config/config.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::app {
namespace {

using model::ModelConfig;

std::string rope_words(const model::RopeConfig& rope) {
  std::string words = fmt::format("base {}", rope.theta);
  if (rope.scaling == model::RopeScaling::proportional)
    words += fmt::format(", {:.0f} % of all pairs", 100 * rope.turning_share);
  else if (rope.scaling != model::RopeScaling::none)
    words += fmt::format(", {} by {}", model::name_of(rope.scaling), rope.factor);
  return words;
}

std::string rotation_words(const ModelConfig& config, model::Rotation rotation) {
  switch (rotation) {
    case model::Rotation::none:
      return "not rotated";
    case model::Rotation::main:
      return rope_words(config.rope);
    case model::Rotation::local:
      return rope_words(config.local_rope.value());
  }
  return "";
}

std::string_view mixer_word(model::MixerKind mixer) {
  switch (mixer) {
    case model::MixerKind::attention:
      return "attention";
    case model::MixerKind::recurrence:
      return "recurrence";
    case model::MixerKind::none:
      break;
  }
  return "none";
}

std::string_view feed_forward_word(model::FeedForward feed_forward) {
  switch (feed_forward) {
    case model::FeedForward::dense:
      return "dense";
    case model::FeedForward::experts:
      return "experts";
    case model::FeedForward::none:
      break;
  }
  return "none";
}

/// Layers that are alike: their numbers, mixer, window, rotation and feed-forward, in the order of
/// their first layers.
nlohmann::ordered_json kinds_of_layers(const ModelConfig& config) {
  auto kinds = nlohmann::ordered_json::array();
  std::vector<model::LayerConfig> seen;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const model::LayerConfig& own = config.pattern[layer];
    const auto found = std::ranges::find(seen, own);
    const auto kind = static_cast<size_t>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(own);
      kinds.push_back({{"layers", nlohmann::json::array()},
                       {"mixer", mixer_word(own.mixer)},
                       {"window", own.window.chunked() ? 0 : own.window.tokens},
                       {"chunk", own.window.chunked() ? own.window.tokens : 0},
                       {"rotation", rotation_words(config, own.rotation)},
                       {"feed_forward", feed_forward_word(own.feed_forward)}});
    }
    kinds[kind]["layers"].push_back(layer);
  }
  return kinds;
}

std::string norm_words(const ModelConfig& config) {
  std::string words = config.norm_before && config.norm_after ? "norms before and after blocks"
                      : config.norm_before                    ? "norms before blocks"
                                                              : "norms after blocks";
  if (config.qk_norm == model::QkNorm::each_head) words += ", norms of each head's q and k";
  if (config.qk_norm == model::QkNorm::all_heads) words += ", norms of q and k over all heads";
  if (config.qk_norm == model::QkNorm::rotated_heads)
    words += ", norms of each rotated head's q and k";
  if (config.unrotated_temperature)
    words += fmt::format(", queries without rotation scaled by their position (each {} tokens)",
                         config.unrotated_temperature->floor);
  if (config.attention_sinks) words += ", attention sinks";
  if (config.attention_gate) words += ", gates of attention";
  if (config.norms_values) words += ", norms of each head's v";
  return words;
}

std::string_view activation_word(const kernels::Activation& activation) {
  switch (activation.kind) {
    case kernels::Activation::Kind::silu:
      return "silu";
    case kernels::Activation::Kind::gelu_tanh:
      return "gelu_tanh";
    case kernels::Activation::Kind::clamped:
      return "clamped swiglu";
    case kernels::Activation::Kind::sigmoid:
      return "sigmoid";
    case kernels::Activation::Kind::relu:
      return "squared relu";
  }
  return "";
}

std::string weights_word(const model::ExpertsConfig& experts) {
  switch (experts.routing) {
    case kernels::Routing::of_all:
      return "softmax over all";
    case kernels::Routing::of_chosen:
      return "softmax over the chosen";
    case kernels::Routing::sigmoid:
      break;
  }
  const auto& [groups, kept, normed, scale, by_logits] = experts.sigmoid;
  std::string words = experts.choice_bias ? "sigmoid, chosen with a bias" : "sigmoid";
  if (groups > 1) words += fmt::format(", from {} of {} groups", kept, groups);
  if (normed) words += ", over their sum";
  if (scale != 1) words += fmt::format(", times {}", scale);
  if (experts.weighed == kernels::Weighed::inputs) words += ", of their inputs";
  return words;
}

/// Null for a dense model.
nlohmann::ordered_json json_of_experts(const ModelConfig& config) {
  if (!config.experts) return nullptr;
  return {{"count", config.experts->count},
          {"per_token", config.experts->per_token},
          {"ffn", config.experts->ffn},
          {"shared_ffn", config.experts->shared_ffn},
          {"shared_gate", config.experts->shared_gate},
          {"weights", weights_word(*config.experts)}};
}

/// Null where heads have keys and values.
nlohmann::ordered_json json_of_latents(const ModelConfig& config) {
  if (!config.latent) return nullptr;
  const model::LatentConfig& latent = *config.latent;
  return {{"q_rank", latent.q_rank},
          {"kv_rank", latent.kv_rank},
          {"nope_dim", latent.nope_dim},
          {"rope_dim", latent.rope_dim},
          {"value_dim", latent.value_dim}};
}

/// Null where all layers have attention.
nlohmann::ordered_json json_of_recurrence(const ModelConfig& config) {
  if (!config.recurrent) return nullptr;
  const model::RecurrentConfig& recurrent = *config.recurrent;
  return {{"kind", recurrent.corrects ? "gated delta net" : "Mamba-2"},
          {"key_heads", recurrent.key_heads},
          {"key_dim", recurrent.key_dim},
          {"heads", recurrent.heads},
          {"value_dim", recurrent.value_dim},
          {"conv_rows", recurrent.conv_rows},
          {"layers", config.num_layers(model::MixerKind::recurrence)},
          {"state_bytes", config.state_bytes()}};
}

/// Null where layers without a window have the heads of the others.
nlohmann::ordered_json json_of_full_heads(const ModelConfig& config) {
  if (!config.full_heads) return nullptr;
  return {{"num_kv_heads", config.full_heads->count},
          {"head_dim", config.full_heads->dim},
          {"keys_give_values", config.keys_give_values}};
}

/// What is stored as codes, and what becomes of it on CPUs with one rank. Null where nothing is.
nlohmann::ordered_json json_of_codes(const ModelConfig& config) {
  if (!config.quantization) return nullptr;
  const auto code = config.quantization->code();
  return {
      {"stored", config.quantization->name()},
      {"matrices", config.quantization->form == model::StoredForm::mxfp4 ? "experts" : "layers"},
      {"group", config.quantization->group},
      {"resident", code ? std::string(name_of(*code)) : ""}};
}

/// The grids on which a replica of this number of ranks may run the model.
std::vector<std::string> legal_grids(const ModelConfig& config, int ranks) {
  std::vector<std::string> grids;
  for (const parallel::ModePair& pair : parallel::legal_modes(ranks, resources::shape_of(config))) {
    const std::string grid = parallel::to_string(pair.degrees);
    if (std::ranges::find(grids, grid) == grids.end()) grids.push_back(grid);
  }
  return grids;
}

}  // namespace

nlohmann::ordered_json summarize_model(const std::filesystem::path& folder) {
  const ModelConfig config = model::read_config(folder);
  nlohmann::ordered_json kv, window_kv, grids;
  const int64_t with_window = config.layers_with_window();
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp8}) {
    kv[std::string(name_of(dtype))] = config.kv_bytes_per_token(dtype);
    window_kv[std::string(name_of(dtype))] = config.window_bytes_per_token(dtype);
  }
  for (const int ranks : {2, 4, 8}) grids[std::to_string(ranks)] = legal_grids(config, ranks);
  return {{"kind", "model"},
          {"path", folder.string()},
          {"model_type", model::name_of(config.family)},
          {"parameters", config.parameters()},
          {"active_parameters", config.active_parameters()},
          {"stored_dtype", config.stored_dtype ? std::string(name_of(*config.stored_dtype)) : ""},
          {"codes", json_of_codes(config)},
          {"max_positions", config.max_positions},
          {"vocab", config.vocab},
          {"tied_embeddings", config.tied_embeddings},
          {"hidden", config.hidden},
          {"ffn", config.ffn},
          {"experts", json_of_experts(config)},
          {"activation", config.xielu ? "xielu" : activation_word(config.activation)},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"full_heads", json_of_full_heads(config)},
          {"latents", json_of_latents(config)},
          {"recurrence", json_of_recurrence(config)},
          {"norms", norm_words(config)},
          {"layers", config.layers},
          {"layers_sharing_keys", config.sharing_layers},
          {"second_embedding", config.second.width},
          {"kinds_of_layers", kinds_of_layers(config)},
          {"kv_bytes_per_token", kv},
          {"kv_bytes_of_windows", with_window > 0 ? window_kv : nlohmann::ordered_json()},
          {"legal_grids", grids}};
}

std::string model_text(const nlohmann::ordered_json& summary) {
  const auto number = [&](const char* key) { return summary[key].get<int64_t>(); };
  const auto word = [&](const char* key) { return summary[key].get<std::string>(); };
  const std::string stored = word("stored_dtype");
  const bool mixture = !summary["experts"].is_null();
  std::string text = fmt::format(
      "{}: {}, {} parameters{}{}, {} positions, vocabulary {}{}\n", word("path"),
      word("model_type"), report::format_count(summary["parameters"].get<double>()),
      mixture ? fmt::format(" ({} of them active)",
                            report::format_count(summary["active_parameters"].get<double>()))
              : "",
      stored.empty() ? "" : " in " + stored, number("max_positions"), number("vocab"),
      summary["tied_embeddings"].get<bool>() ? " (tied)" : "");
  text +=
      fmt::format("  {} layers: hidden {}, {} heads over {} KV heads of {}, FFN {} ({})\n  {}\n",
                  number("layers"), number("hidden"), number("num_heads"), number("num_kv_heads"),
                  number("head_dim"), number("ffn"), word("activation"), word("norms"));
  if (const auto& latents = summary["latents"]; !latents.is_null()) {
    const auto size = [&](const char* key) { return latents[key].get<int64_t>(); };
    text += fmt::format(
        "  latent attention: {} + {} numbers of a token for all heads, whose queries have {} + {} "
        "and values {}{}\n",
        size("kv_rank"), size("rope_dim"), size("nope_dim"), size("rope_dim"), size("value_dim"),
        size("q_rank") > 0 ? fmt::format("; queries made of {}", size("q_rank")) : "");
  }
  const auto& recurrence = summary["recurrence"];
  if (!recurrence.is_null()) {
    const auto size = [&](const char* key) { return recurrence[key].get<int64_t>(); };
    text += fmt::format(
        "  recurrence ({}): {} heads of {} over {} key heads of {}, convolutions of {} rows; "
        "{} of a sequence in {} layers\n",
        recurrence["kind"].get<std::string>(), size("heads"), size("value_dim"), size("key_heads"),
        size("key_dim"), size("conv_rows"), report::format_bytes(size("state_bytes")),
        size("layers"));
  }
  if (const auto& full = summary["full_heads"]; !full.is_null())
    text += fmt::format(
        "  layers without a window: {} KV heads of {}{}\n", full["num_kv_heads"].get<int64_t>(),
        full["head_dim"].get<int64_t>(),
        full["keys_give_values"].get<bool>() ? ", whose product gives values, too" : "");
  if (const int64_t sharing = number("layers_sharing_keys"); sharing > 0)
    text += fmt::format("  the last {} layers attend keys of layers before them\n", sharing);
  if (const int64_t width = number("second_embedding"); width > 0)
    text += fmt::format("  second embeddings: {} numbers of a token for each layer\n", width);
  if (const auto& codes = summary["codes"]; !codes.is_null()) {
    const auto resident = codes["resident"].get<std::string>();
    const int64_t group = codes["group"].get<int64_t>();
    text += fmt::format("  codes: {} in {}{}; {}\n", codes["matrices"].get<std::string>(),
                        codes["stored"].get<std::string>(),
                        group > 0 ? fmt::format(" in groups of {}", group) : "",
                        resident.empty() ? "widened when they are loaded"
                                         : fmt::format("CPUs multiply them as {}", resident));
  }
  if (mixture) {
    const auto& experts = summary["experts"];
    text += fmt::format("  experts: {} of {} for each token, each with {} FFN columns, {}\n",
                        experts["per_token"].get<int64_t>(), experts["count"].get<int64_t>(),
                        experts["ffn"].get<int64_t>(), experts["weights"].get<std::string>());
    if (const auto shared = experts["shared_ffn"].get<int64_t>(); shared > 0)
      text += fmt::format("  shared expert: {} FFN columns, for every token{}\n", shared,
                          experts["shared_gate"].get<bool>() ? ", with a gate" : "");
  }
  for (const auto& kind : summary["kinds_of_layers"]) {
    const auto window = kind["window"].get<int64_t>(), chunk = kind["chunk"].get<int64_t>();
    const auto layers = kind["layers"].get<std::vector<int64_t>>();
    const auto mixer = kind["mixer"].get<std::string>();
    const bool attends = mixer == "attention";
    text += fmt::format("  {} × {}{}{}{}\n", layers.size(),
                        !attends     ? mixer
                        : window > 0 ? fmt::format("a window of {}", window)
                        : chunk > 0  ? fmt::format("chunks of {}", chunk)
                                     : "all tokens",
                        attends ? ", " + kind["rotation"].get<std::string>() : "",
                        mixture ? ", " + kind["feed_forward"].get<std::string>() : "",
                        std::ssize(layers) == number("layers")
                            ? ""
                            : fmt::format(": layers {}", fmt::join(layers, " ")));
  }
  text += "  KV cache per token:";
  for (const auto& [dtype, bytes] : summary["kv_bytes_per_token"].items())
    text += fmt::format(" {} {}", report::format_bytes(bytes.get<int64_t>()), dtype);
  if (const auto& windows = summary["kv_bytes_of_windows"]; !windows.is_null()) {
    text += "\n  of these in layers with a window, for recent tokens alone:";
    for (const auto& [dtype, bytes] : windows.items())
      text += fmt::format(" {} {}", report::format_bytes(bytes.get<int64_t>()), dtype);
  }
  text += "\n";
  for (const auto& [ranks, grids] : summary["legal_grids"].items())
    text += fmt::format("  grids of {} ranks: {}\n", ranks,
                        fmt::join(grids.get<std::vector<std::string>>(), ", "));
  return text;
}

}  // namespace pecia::app
