// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run's automatic choices depend on, measured at its start and kept with its results: a run
/// that is continued chooses as it began, so that its text does not depend on when it was stopped.

#include <spdlog/logger.h>

#include <optional>
#include <string>

#include "lib/parallel/ring_rule.hpp"
#include "lib/runtime/resources.hpp"
#include "lib/runtime/worker.hpp"

namespace pecia::runtime {

struct Measured {
  parallel::RingRates ring;                ///< with cp above 1 and ring auto
  std::optional<int64_t> shift_threshold;  ///< with decode shift: the job's, or by rule
};

/// As an attribute of the results. Parsing gives nothing back for other degrees of parallelism, and
/// for what is no such text.
std::string to_json(const Measured& measured, const Resources& resources);
std::optional<Measured> parse_measured(const std::string& text, const Resources& resources);

/// Collective over `world`; every rank gets the same.
Measured measure(const Job& job, const model::ModelConfig& config, const Resources& resources,
                 comm::Communicator& world, Worker& worker, const context::Compute& compute,
                 spdlog::logger& log);

}  // namespace pecia::runtime
