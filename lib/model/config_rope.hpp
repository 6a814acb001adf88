// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The rotary part of config.json: transformers 4's rope_theta and rope_scaling, or transformers
/// 5's rope_parameters.

#include "lib/model/config.hpp"
#include "lib/model/config_json.hpp"
#include "lib/model/family.hpp"

namespace pecia::model {

/// Sets config.rope, and config.max_positions to the scaled length. Needs head_dim and
/// max_positions (max_position_embeddings) to be set.
void read_rope(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config);

}  // namespace pecia::model
