// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/stage.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/stages.hpp"

namespace pecia::model {
namespace {

using parallel::RowRange;

/// Whether a stage may have these layers.
bool may_be_stage(const ModelConfig& config, const RowRange& layers) {
  bool attends = false, recurs = false;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const int64_t source = config.keys_of(layer);
    if (source >= 0 && source < layers.begin) return false;
    attends = attends || config.has_keys(layer);
    recurs = recurs || config.mixer(layer) == MixerKind::recurrence;
  }
  return attends && (recurs || config.num_layers(MixerKind::recurrence) == 0);
}

StoringLayers storing(const ModelConfig& config, int64_t begin, int64_t end) {
  StoringLayers found;
  for (int64_t layer = begin; layer < end; ++layer) {
    if (config.has_keys(layer))
      ++(config.pattern[layer].window > 0 ? found.with_window : found.without_window);
    found.recurrent += config.mixer(layer) == MixerKind::recurrence;
  }
  return found;
}

/// Rows whose output is asked for, of the rows that go through the layers: prompts are long, and of
/// theirs it is one. A stage with all of the head's FLOPs for every row would wait for the others while
/// prompts are read.
constexpr double rows_with_outputs = 0.125;

std::optional<std::vector<RowRange>> cut_into(const ModelConfig& config, int stages) {
  std::vector<double> costs;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    costs.push_back(config.flops_of_layer(layer));
  return parallel::balanced_stages(
      costs, stages, 0, rows_with_outputs * config.flops_of_head(),
      [&](const RowRange& layers) { return may_be_stage(config, layers); });
}

}  // namespace

std::vector<RowRange> layers_of_stages(const ModelConfig& config, int stages) {
  PECIA_CHECK(stages >= 1 && config.stage.count == 1, "{} stages of stage {} of {}", stages,
              config.stage.index, config.stage.count);
  if (stages == 1) return {{0, config.layers}};
  if (config.second.width > 0)
    fail<Unsupported>(
        "parallel.pp: {} with the second embedding of {}, which every layer reads, is not in this "
        "version; use pp 1",
        stages, name_of(config.family));
  if (auto found = cut_into(config, stages)) return *found;
  fail<InputError>(
      "parallel.pp: {} stages of a model with {} layers: each stage needs a layer with keys{}{}; "
      "use pp {} or less",
      stages, config.layers, config.recurrent ? " and a recurrent layer" : "",
      config.sharing_layers > 0 ? ", and layers that share keys are in one stage with these" : "",
      most_stages(config));
}

int most_stages(const ModelConfig& config) {
  if (config.second.width > 0) return 1;
  int most = static_cast<int>(config.layers);
  while (most > 1 && !cut_into(config, most)) --most;
  return most;
}

ModelConfig stage_of(const ModelConfig& config, int stages, int index) {
  PECIA_CHECK(0 <= index && index < stages, "stage {} of {}", index, stages);
  if (stages == 1) return config;
  const RowRange layers = layers_of_stages(config, stages)[index];
  ModelConfig own = config;
  own.stage = {index,
               stages,
               layers.begin,
               layers.end,
               storing(config, 0, layers.begin),
               storing(config, layers.end, config.layers)};
  own.layers = layers.size();
  own.pattern.assign(config.pattern.begin() + layers.begin, config.pattern.begin() + layers.end);
  // Layers that share keys are the last ones, and all in the last stage.
  if (!own.stage.ends()) own.sharing_layers = 0;
  return own;
}

std::string to_text(const ModelStage& stage) {
  if (stage.count == 1) return "";
  return fmt::format("stage {} (layers {} to {})", stage.index, stage.begin, stage.end - 1);
}

}  // namespace pecia::model
