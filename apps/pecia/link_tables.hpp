// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results of `pecia topology --measure`, as a value and as text for people.

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "lib/ranks/cluster/link_measure.hpp"

namespace pecia::app {

/// {"large_bytes", "levels": the pairs of each level with latency and bandwidth, "rings": each with
/// the time of a step and the bandwidth of its links}. `places` are by rank.
nlohmann::ordered_json links_json(std::span<const comm::RackServerGpu> places,
                                  std::span<const cluster::PairFigures> pairs,
                                  std::span<const cluster::RingFigures> rings,
                                  const cluster::MeasureOptions& options);

/// One line per level: median and worst of its pairs, then of the links of all rings, and the ring
/// with the slowest link.
std::string links_text(const nlohmann::ordered_json& links);

}  // namespace pecia::app
