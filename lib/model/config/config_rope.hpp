// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads the rotary part of config.json: rope_theta and rope_scaling of transformers 4, or
/// rope_parameters of transformers 5.

#include "lib/model/config/config.hpp"
#include "lib/model/config/config_json.hpp"
#include "lib/model/config/family.hpp"

namespace pecia::model {

/// Sets config.rope, and sets config.max_positions to the scaled length. Before the call, head_dim
/// and max_positions (max_position_embeddings) must be set.
void read_rope(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config);

}  // namespace pecia::model
