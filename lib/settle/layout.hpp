// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides, by foreseen times, what a job leaves open of its layout.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/settle/chosen_layout.hpp"
#include "lib/work/resources/compute_place.hpp"
#include "lib/work/resources/threads.hpp"

namespace pecia::settle {

/// What was decided. The default leaves all to the rules.
struct LayoutChoice {
  std::optional<ChosenLayout> layout;  ///< absent: by rule
  std::string why;                     ///< for people; may say why the rules decide
  /// For report.json: {"by", "aim", "chosen", "by_rule", "alternatives", …}; null: by rule.
  nlohmann::ordered_json expected;
};

/// What a layout is chosen for.
struct LayoutQuestion {
  const job::Job& job;
  const model::ModelConfig& config;
  /// What an earlier start measured (measure::to_json), so that a continued run has the layout in
  /// which it began; "": the run begins.
  const std::string& kept;
  const resources::ComputePlace& place;
  const resources::Threads& threads;
  const std::vector<comm::RackServerGpu>& places;  ///< by rank of the world
};

/// Chooses among all legal layouts of these ranks by simulation::choose, on the cluster that `pecia
/// topology` measured with ranks like these. Where none is kept, a job that leaves parallel.dp, sp or
/// tp open has it measured now, which takes some seconds, and kept; any other goes by rule. So do
/// jobs that let ranks share a GPU, those with a tuned file, and those on more than 1024 ranks. Of a
/// large batch a part is played, and of many layouts those that promise most (simulation::sweep).
/// Collective over `world`; the same on every rank.
LayoutChoice choose_layout(const LayoutQuestion& question, comm::Communicator& world);

}  // namespace pecia::settle
