// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run's automatic choices depend on. It is measured at the run's start and kept with its
/// results. A continued run then chooses as it did at first, so its text does not depend on when it
/// was stopped.

#include <spdlog/logger.h>

#include <optional>
#include <string>

#include "lib/context/compute.hpp"
#include "lib/context/kv_cache.hpp"
#include "lib/context/replica_groups.hpp"
#include "lib/parallel/ring_rule.hpp"
#include "lib/parallel/shift_rule.hpp"
#include "lib/resources/resources.hpp"

namespace pecia::measure {

struct Measured {
  parallel::RingRates ring;                ///< used with cp above 1 and ring auto, or elastic
  std::optional<int64_t> shift_threshold;  ///< used with decode shift: the job's, or by rule
};

/// Text for an attribute of the results. Parsing returns nothing for other degrees of parallelism,
/// and for text of another form.
std::string to_json(const Measured& measured, const resources::Resources& resources);
std::optional<Measured> parse_measured(const std::string& text,
                                       const resources::Resources& resources);

/// Whether the run that wrote the text was elastic. Absent as for parse_measured.
std::optional<bool> kept_elastic(const std::string& text, const resources::Resources& resources);

/// Measures between the ranks of `groups`, with the heads of `cache`, as this rank has them. `sent`
/// is called where the shift rule needs it. Collective over `world`; every rank gets the same.
Measured measure_choices(const job::Job& job, const model::ModelConfig& config,
                         const resources::Resources& resources,
                         const std::function<parallel::SentPerToken()>& sent,
                         comm::Communicator& world, const context::ReplicaGroups& groups,
                         const context::KvShape& cache, const context::Compute& compute,
                         spdlog::logger& log);

}  // namespace pecia::measure
