// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides, by foreseen times, what a job leaves open of its layout.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/compute_place.hpp"
#include "lib/work/resources/threads.hpp"

namespace pecia::run {

/// Degrees, modes and tokens of a pass that replace what a job leaves open.
struct ChosenLayout {
  job::Job::Parallel parallel;
  std::optional<int64_t> max_batch_tokens = {};  ///< absent: as the job has it

  void apply_to(job::Job& job) const;
  /// In the words of the job, as "parallel.dp=2"; what a run keeps of its layout.
  std::vector<std::string> to_settings() const;
  static ChosenLayout of_settings(const job::Job& job, const std::vector<std::string>& settings);
};

/// What was decided. The default leaves all to the rules.
struct LayoutChoice {
  std::optional<ChosenLayout> layout;  ///< absent: by rule
  std::string why;                     ///< for people; may say why the rules decide
  /// For report.json: {"by", "aim", "chosen", "by_rule", "alternatives", …}; null: by rule.
  nlohmann::ordered_json expected;
};

/// What a run's measurements are kept with (measure::to_json), so that a continued run has the layout
/// in which it began. `kept` is that text; "": the run begins.
struct LayoutQuestion {
  const job::Job& job;
  const model::ModelConfig& config;
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

}  // namespace pecia::run
