// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads from config.json what layers have of their own: heads of layers without a window, last
/// layers that share keys, and second embeddings, as Gemma 4 has them.

#include "lib/model/config/config_json.hpp"
#include "lib/model/config/family.hpp"

namespace pecia::model {

/// The most dimensions of a head.
constexpr int64_t max_head_dim = 1 << 12;

/// Sets these values of `config`, whose sizes and pattern are read. Does nothing for families that
/// have nothing of this. Throws InputError and Unsupported as read_config does.
void read_own_layers(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config);

}  // namespace pecia::model
