// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run's automatic choices depend on. It is measured at the run's start and kept with its
/// results. A continued run then chooses as it did at first, so its text does not depend on when it
/// was stopped.

#include <spdlog/logger.h>

#include <optional>
#include <string>
#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/fitted_rule.hpp"
#include "lib/ranks/parallel/link_costs.hpp"
#include "lib/ranks/parallel/ring_rule.hpp"
#include "lib/ranks/parallel/shift_rule.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::measure {

struct Measured {
  parallel::RingRates ring;                ///< used with cp above 1 and ring auto, or elastic
  std::optional<int64_t> shift_threshold;  ///< used with decode shift: the job's, or by rule
  std::string products;                    ///< of CPUs, as products_text writes them; "": GPUs
  /// Settings of the job that were chosen by foreseen times, as "parallel.dp=2"; none: by rule.
  std::vector<std::string> layout = {};
  /// Chooses keys or queries in place of `ring`'s rates; absent: it was not measured.
  std::optional<parallel::FittedRule> fitted_rule = {};
  parallel::LinkCosts links = {};  ///< used where routes between servers are chosen by them
};

/// Text for an attribute of the results. Parsing returns nothing for other degrees of parallelism,
/// and for text of another form. The layout is not parsed; kept_layout has it.
std::string to_json(const Measured& measured, const resources::Resources& resources);
std::optional<Measured> parse_measured(const std::string& text,
                                       const resources::Resources& resources);

/// The products of the run that wrote the text, whatever its degrees were; "" where none are said.
std::string kept_products_of_run(const std::string& text);

/// The settings of the layout in which a run on `ranks` ranks began. Absent for another number of
/// ranks, and for text of another form.
std::optional<std::vector<std::string>> kept_layout(const std::string& text, int ranks);

/// Whether the run that wrote the text was elastic. Absent as for parse_measured.
std::optional<bool> kept_elastic(const std::string& text, const resources::Resources& resources);

/// How many instances answered in the run that wrote the text; 0: all. Absent as for parse_measured.
std::optional<int> kept_answering(const std::string& text, const resources::Resources& resources);

/// Rates of attention and of the replica's rings, where a choice depends on them; else zeros.
/// `replica`: its ranks, for tensors where `compute` is. Collective over `world`; every rank gets the
/// same.
parallel::RingRates measure_ring(const model::ModelConfig& config,
                                 const resources::Resources& resources, comm::Communicator& world,
                                 comm::Communicator& replica, const attention::Compute& compute,
                                 spdlog::logger& log);

/// Measures what else is needed, between the ranks of `block`, this rank's SP × TP block. `sent` is
/// called where the shift rule needs it. Collective over `world`; every rank gets the same.
Measured measure_choices(const job::Job& job, const model::ModelConfig& config,
                         const resources::Resources& resources,
                         const std::function<parallel::SentPerToken()>& sent,
                         const parallel::RingRates& ring, comm::Communicator& world,
                         comm::Communicator& block, const attention::Compute& compute);

}  // namespace pecia::measure
