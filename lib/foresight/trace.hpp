// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What was foreseen, as the trace of a run: one track for each rank, with the run's own names.

#include <filesystem>

#include "lib/foresight/replay.hpp"

namespace pecia::foresight {

/// Replays the programs and writes their trace into `folder`, as report::tidy_traces leaves it.
/// `phase` names the pass: "prefill" or "decode", a string literal. Returns the time of the pass.
/// Throws SystemError where a file cannot be written.
PassTime write_trace(const std::vector<Program>& programs, const machines::Cluster& cluster,
                     const char* phase, const std::filesystem::path& folder);

}  // namespace pecia::foresight
