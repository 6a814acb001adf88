// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A stage of a pipeline as a model of its own layers. Caches, weights, work and memory of a stage's
/// ranks follow from its configuration as from any other.

#include <vector>

#include "lib/model/config/config.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::model {

/// The layers of each stage, balanced by the FLOPs of rows that go through all layers, of which one in
/// eight goes through the head (ranks/parallel/stages.hpp). Layers that share keys are in the stage of the keys. Each stage
/// has a layer of attention and, if the model has recurrent layers, one of these.
/// Throws Unsupported for a model with a second embedding and several stages, and InputError naming
/// the most stages that are possible where the layers do not allow this number.
std::vector<parallel::RowRange> layers_of_stages(const ModelConfig& config, int stages);

/// The most stages that the layers of a model allow; any number up to it is possible. 1 for a model
/// with a second embedding.
int most_stages(const ModelConfig& config);

/// The configuration of one of these stages. Its layers count from 0; ModelConfig::stage says which
/// they are in the model. With one stage it is `config`.
ModelConfig stage_of(const ModelConfig& config, int stages, int index);

/// "stage 1 (layers 8 to 15)", the first being stage 0; "" for the whole model.
std::string to_text(const ModelStage& stage);

}  // namespace pecia::model
