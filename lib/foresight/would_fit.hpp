// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The least change with which a batch fits, found by trying.

#include <optional>
#include <string>

#include "lib/foresight/sweep.hpp"

namespace pecia::foresight {

/// Tries changes one by one, those first that change no result: fewer tokens in a pass, degrees that
/// the job gave, more ranks (up to 64 times as many), fp8 keys and values, and these with more ranks.
/// Returns the first with which some layout fits, as "--set kv.dtype=fp8" or "--ranks 32"; absent if
/// there is none.
std::optional<std::string> would_fit(const PassSetting& setting, Batches& batches,
                                     const SweepQuestion& question, int ranks);

/// Whether the batch fits in some layout of so many ranks.
bool fits_somewhere(const PassSetting& setting, Batches& batches, const KeptDegrees& kept,
                    int ranks);

}  // namespace pecia::foresight
