// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run settles before it reads anything large: the job, on which all ranks agree, degrees
/// and modes, the place where each rank computes, and the order of the ranks.

#include <spdlog/logger.h>

#include <memory>
#include <optional>
#include <vector>

#include "lib/model/config/config.hpp"
#include "lib/model/config/fingerprint.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/run/run.hpp"
#include "lib/settle/facts.hpp"
#include "lib/settle/layout.hpp"
#include "lib/settle/measure/product_choice.hpp"
#include "lib/simulation/tune/tuned_setting.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/compute_place.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::run {

struct Setup {
  RunOptions options;
  job::Job asked;  ///< as its author has it
  /// With the layout that was chosen. The order of its inputs changes when they are read.
  job::Job job;
  model::ModelConfig config;       ///< of the whole model
  model::ModelConfig stage;        ///< of the layers of this rank's stage
  model::Fingerprint model;        ///< of the folder, the same on all ranks
  resources::Resources resources;  ///< memory and measured choices are settled later
  std::optional<tune::TunedQuestion> tuned;
  std::string kept;  ///< measurement of an earlier start with the same results; "": there is none
  settle::LayoutChoice layout;      ///< by foreseen times
  std::optional<double> drain_s;    ///< seconds from the run's begin; absent: no stated limit
  measure::ProductChoice products;  ///< of CPUs
  resources::ComputePlace place;
  settle::Ranks ranks;
  std::shared_ptr<spdlog::logger> log;
  settle::Settled before_inputs;  ///< every round begins with it
  int round = 1;  ///< 1, 2, …; from the second on, ranks and weights are those of the round before

  comm::Communicator& world() const { return ranks.world; }
  bool is_root() const { return ranks.is_root(); }
  bool planning() const { return ranks.planning(); }
  /// The rank's stage; absent where there is one.
  std::optional<int> stage_index() const {
    return resources.pp > 1 ? std::optional(ranks.stage) : std::nullopt;
  }
};

/// Collective over `world`; fails on all ranks together.
Setup set_up(const RunOptions& options, comm::Communicator& world);

/// Makes the setup one of another round of the same run: the job has the inputs and the output of
/// `round`, and the same layout. `end_s`: until the run has to drain, from now. Collective over all
/// ranks; fails on all together.
void set_up_round(const job::Job& round, std::optional<double> end_s, Setup& setup);

/// Whether requests' keys and values are kept for a later start. This is useful only where the job
/// asks for no log-probabilities of prompts.
bool keeps_kv(const Setup& setup);

}  // namespace pecia::run
