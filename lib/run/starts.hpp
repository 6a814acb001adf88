// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The layouts that a run's starts had, kept in its output folder: where numbers are rounded
/// coarsely, text depends on them. And how fast passes were, for what the next start expects.

#include <filesystem>
#include <optional>
#include <string>

#include "lib/resources/resources.hpp"
#include "lib/schedule/pass_times.hpp"

namespace pecia::run {

/// What a start's rounding follows from. The layout is the grid, the modes, and what computes.
struct Start {
  std::string layout;            ///< "dp 1, cp 2, sp 1, tp 1, ring/pass_kv+pass_q, CPUs"
  DType products = DType::fp32;  ///< of the operands of matrix products
  DType keys_and_values = DType::fp32;
};
Start start_of(const resources::Resources& resources, DType products);

/// Adds the start to FOLDER/starts.json, which keeps one of each kind. `has_answers`: whether the
/// results have any of earlier starts; without them, earlier starts are forgotten. Gives back a
/// warning where an earlier start had another layout and this one's text may differ by that: never
/// where all is fp32, nor with reproducible: layout. InputError where the file is damaged.
std::optional<std::string> record_start(const std::filesystem::path& folder, const Start& start,
                                        bool has_answers, parallel::Reproducible reproducible);

/// Keeps the rates that have been measured for later starts like this one. After record_start.
void keep_times(const std::filesystem::path& folder, const Start& start,
                const schedule::PassTimes& times);

/// What was kept of starts like this one, to begin with; `estimate` where nothing was.
schedule::PassTimes kept_times(const std::filesystem::path& folder, const Start& start,
                               const schedule::PassTimes& estimate);

}  // namespace pecia::run
