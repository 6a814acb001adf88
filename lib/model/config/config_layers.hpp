// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads from config.json what differs between layers: windows, and which layers rotate.

#include "lib/model/config/config.hpp"
#include "lib/model/config/config_json.hpp"
#include "lib/model/config/family.hpp"

namespace pecia::model {

/// What each of the `layers` layers is. Throws InputError for lists of another length and for keys
/// that contradict each other, and Unsupported for other types of layers.
std::vector<LayerConfig> read_pattern(const JsonSection& file, const FamilyTraits& traits,
                                      int64_t layers, int64_t max_positions);

}  // namespace pecia::model
