// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Words that people type, against those that exist.

#include <cstddef>
#include <string_view>

namespace pecia {

/// Letters to put in, leave out, change, or swap with their neighbour (optimal string alignment),
/// without regard to the case of ASCII letters.
size_t edit_distance(std::string_view a, std::string_view b);

/// Whether `typed` may have been meant as `known`: their distance is at most a third of the longer
/// one's length, or 2 where that is at most half of it.
bool may_mean(std::string_view typed, std::string_view known);

}  // namespace pecia
