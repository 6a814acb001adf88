// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/config_layers.hpp"

#include <algorithm>

#include "lib/model/config/config_recurrent.hpp"

namespace pecia::model {
namespace {

/// Where layers are attended in chunks.
kernels::Window read_chunk(const JsonSection& file, const FamilyTraits& traits) {
  constexpr auto key = "attention_chunk_size";
  const auto chunk = file.integer(key, 1, max_model_positions);
  if (!chunk && file.names(key)) return {};
  return kernels::Window::chunks_of(chunk.value_or(traits.window_default));
}

/// The window of layers that have one; 0: no window.
int64_t read_window(const JsonSection& file, const FamilyTraits& traits, int64_t max_positions) {
  auto window = file.integer("sliding_window", 1, max_model_positions);
  switch (traits.windows) {
    case WindowRule::never:
    case WindowRule::chunks:
      if (window && *window < max_positions)
        file.refuse("sliding_window",
                    fmt::format("but model type {} has none; set it to null if it is a leftover",
                                traits.model_type));
      return 0;
    case WindowRule::by_layer:
    case WindowRule::by_list:
      if (!file.flag("use_sliding_window").value_or(false)) return 0;
      break;
    case WindowRule::every_layer:
    case WindowRule::by_list_or_every_layer:
    case WindowRule::by_type:
      break;
  }
  return window.value_or(file.names("sliding_window") ? 0 : traits.window_default);
}

/// p where the file says that each p-th layer has no window.
std::optional<int64_t> full_period(const JsonSection& file, const FamilyTraits& traits) {
  if (traits.period_key.empty()) return {};
  return file.integer(traits.period_key, 1, max_model_layers);
}

/// The windows of layers that config.json does not list.
std::vector<int64_t> windows_by_rule(const JsonSection& file, const FamilyTraits& traits,
                                     int64_t layers, int64_t window) {
  std::vector<int64_t> windows(layers, window);
  switch (traits.windows) {
    case WindowRule::never:
    case WindowRule::every_layer:
    case WindowRule::by_list_or_every_layer:
    case WindowRule::chunks:
      break;
    case WindowRule::by_layer:
      std::fill_n(
          windows.begin(),
          std::min(layers, file.integer("max_window_layers", 0, max_model_layers).value_or(28)), 0);
      break;
    case WindowRule::by_list:
      if (window > 0)
        file.refuse("use_sliding_window", "but layer_types does not say which layers have it");
      break;
    case WindowRule::by_type: {
      const int64_t period = full_period(file, traits).value_or(traits.full_period);
      for (int64_t layer = period - 1; layer < layers; layer += period) windows[layer] = 0;
      break;
    }
  }
  return windows;
}

/// The windows of the layers that layer_types lists.
std::vector<int64_t> windows_of_types(const JsonSection& file, const FamilyTraits& traits,
                                      const std::vector<std::string>& types, int64_t layers,
                                      int64_t window) {
  if (static_cast<int64_t>(types.size()) != layers)
    file.refuse("layer_types", fmt::format("with {} entries, but num_hidden_layers is {}; correct "
                                           "one of them",
                                           types.size(), layers));
  const std::optional<int64_t> period = full_period(file, traits);
  std::vector<int64_t> windows(layers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string& type = types[layer];
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
    if (period && sliding == ((layer + 1) % *period == 0))
      file.refuse(traits.period_key, fmt::format("but layer_types says {} of layer {}; remove one "
                                                 "of them",
                                                 type, layer));
    if (sliding) windows[layer] = window;
  }
  return windows;
}

/// Whether each layer rotates. no_rope_layers has 1 for a layer that does.
std::vector<bool> read_rotated(const JsonSection& file, const FamilyTraits& traits,
                               int64_t layers) {
  std::vector<bool> rotated(layers, true);
  if (traits.unrotated_period == 0) return rotated;
  const int64_t period =
      file.integer("no_rope_layer_interval", 1, max_model_layers).value_or(traits.unrotated_period);
  for (int64_t layer = period - 1; layer < layers; layer += period) rotated[layer] = false;
  const auto listed = file.integers("no_rope_layers", 0, 1);
  if (!listed || listed->empty()) return rotated;
  if (static_cast<int64_t>(listed->size()) != layers)
    file.refuse("no_rope_layers", fmt::format("with {} entries, but num_hidden_layers is {}; "
                                              "correct one of them",
                                              listed->size(), layers));
  return {listed->begin(), listed->end()};
}

/// Layers in chunks are those that layer_types lists, or those that rotate.
std::vector<LayerConfig> pattern_of_chunks(const JsonSection& file, const FamilyTraits& traits,
                                           int64_t layers, const std::vector<bool>& rotated) {
  const kernels::Window chunk = read_chunk(file, traits);
  const auto types = file.texts("layer_types");
  if (types && std::ssize(*types) != layers)
    file.refuse("layer_types", fmt::format("with {} entries, but num_hidden_layers is {}; correct "
                                           "one of them",
                                           types->size(), layers));
  std::vector<LayerConfig> pattern(layers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool chunked = types ? (*types)[layer] == "chunked_attention" : rotated[layer];
    if (types && !chunked && (*types)[layer] != "full_attention")
      file.refuse<Unsupported>("layer_types",
                               fmt::format("and {} (layer {}) is not implemented; known are "
                                           "full_attention and chunked_attention",
                                           (*types)[layer], layer));
    if (chunked && !chunk)
      file.refuse("attention_chunk_size",
                  fmt::format("but layer {} is attended in chunks; give their length", layer));
    pattern[layer] = {.window = chunked ? chunk : kernels::Window{},
                      .rotation = rotated[layer] ? Rotation::main : Rotation::none};
  }
  return pattern;
}

}  // namespace

std::vector<LayerConfig> read_pattern(const JsonSection& file, const FamilyTraits& traits,
                                      int64_t layers, int64_t max_positions) {
  const int64_t window = read_window(file, traits, max_positions);
  if (traits.recurrent) return read_mixers(file, traits, layers);
  if (traits.rotates_windows_only && window == 0)
    file.refuse("sliding_window",
                "but only layers with a window rotate in this model type; give it");
  const std::vector<bool> rotated = read_rotated(file, traits, layers);
  if (traits.windows == WindowRule::chunks) return pattern_of_chunks(file, traits, layers, rotated);
  const auto types = file.texts("layer_types");
  std::vector<int64_t> windows = types ? windows_of_types(file, traits, *types, layers, window)
                                       : windows_by_rule(file, traits, layers, window);
  if (traits.last_layer_is_full) windows.back() = 0;
  std::vector<LayerConfig> pattern(layers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool local = traits.local_rope && windows[layer] > 0;
    const bool rotates = rotated[layer] && (windows[layer] > 0 || !traits.rotates_windows_only);
    pattern[layer] = {.window = windows[layer],
                      .rotation = !rotates ? Rotation::none
                                  : local  ? Rotation::local
                                           : Rotation::main};
  }
  return pattern;
}

}  // namespace pecia::model
