// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keeps, in the output folder, the layouts that a run's starts had: where numbers are rounded
/// coarsely, text depends on them. It also keeps how fast passes were, as the next start expects
/// them.

#include <filesystem>
#include <optional>
#include <string>

#include "lib/engine/schedule/team_times.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::run {

/// What the rounding of a start depends on. The layout is the grid, the modes, and what computes.
struct Start {
  std::string layout;            ///< "dp 1, cp 2, sp 1, tp 1, ring/pass_kv+pass_q, CPUs"
  DType products = DType::fp32;  ///< type of the operands of matrix products
  DType keys_and_values = DType::fp32;
};
Start start_of(const resources::Resources& resources, DType products);

/// Adds the start to FOLDER/starts.json, which keeps one start of each kind. `has_answers`: whether
/// the results have answers of earlier starts; if not, earlier starts are forgotten. Returns a
/// warning where an earlier start had another layout and this one's text may differ for that
/// reason. This is never so where all is fp32. With reproducible: layout it is so where the products
/// have another type. Throws InputError where the file is damaged.
std::optional<std::string> record_start(const std::filesystem::path& folder, const Start& start,
                                        bool has_answers, parallel::Reproducible reproducible);

/// Keeps the measured rates for later starts like this one. `teams`: absent unless teams change.
/// Call it after record_start.
void keep_times(const std::filesystem::path& folder, const Start& start,
                const schedule::PassTimes& times, const std::optional<schedule::TeamTimes>& teams);

/// The rates kept by starts like this one, to begin with; `estimate` where there are none.
schedule::PassTimes kept_times(const std::filesystem::path& folder, const Start& start,
                               const schedule::PassTimes& estimate);

/// Lets teams begin with the rates that starts like this one have kept, if there are any.
void begin_as_kept(const std::filesystem::path& folder, const Start& start,
                   schedule::TeamTimes& teams);

}  // namespace pecia::run
