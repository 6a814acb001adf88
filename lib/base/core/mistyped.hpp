// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Compares words that people type with the known words.

#include <cstddef>
#include <string_view>

namespace pecia {

/// The number of letters to insert, delete, change, or swap with their neighbour (optimal string
/// alignment). The case of ASCII letters is ignored.
size_t edit_distance(std::string_view a, std::string_view b);

/// Whether `typed` may have been meant as `known`: their distance is at most a third of the longer
/// word's length; a distance of 2 also counts if it is at most half of that length.
bool may_mean(std::string_view typed, std::string_view known);

}  // namespace pecia
