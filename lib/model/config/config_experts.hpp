// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads from config.json which layers are mixtures of experts, and of which.

#include "lib/model/config/config.hpp"
#include "lib/model/config/config_json.hpp"
#include "lib/model/config/family.hpp"

namespace pecia::model {

/// Sets `config.experts` and the feed-forwards of `config.pattern`, which has all layers. Families
/// without experts are left as they are. Throws InputError for more experts of a token than there
/// are, and for keys that contradict each other.
void read_experts(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config);

}  // namespace pecia::model
