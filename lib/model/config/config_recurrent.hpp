// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which layers are a recurrence, and its sizes.

#include "lib/model/config/config_json.hpp"
#include "lib/model/config/family.hpp"

namespace pecia::model {

/// How many layers a file lists that need not say it otherwise (RecurrentTraits::one_block).
int64_t count_blocks(const JsonSection& file, const FamilyTraits& traits);

/// The layers of a family that has RecurrentTraits. With one_block their feed-forwards, too.
std::vector<LayerConfig> read_mixers(const JsonSection& file, const FamilyTraits& traits,
                                     int64_t layers);

/// Reads ModelConfig::recurrent, which is absent where no layer is a recurrence. Needs the pattern.
void read_recurrent(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config);

}  // namespace pecia::model
