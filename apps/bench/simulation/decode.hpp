// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Attention of decode steps as published and as foreseen. Source: Context Parallelism for Scalable
/// Million-Token Inference (decode attention on 1, 2 and 4 servers).

#include <string>

#include "apps/bench/support/results.hpp"
#include "lib/model/config/config.hpp"
#include "lib/work/cluster_files/cluster.hpp"

namespace pecia::bench {

constexpr int gpus_per_server = 8;

/// Prints both beside each other. Returns what is wrong with what is foreseen; empty: nothing.
///
/// Two numbers are fitted to the row marked *: the latency of a link, and a constant of an
/// all-to-all, which no op explains. The paper's ring pads a batch with queries that nobody asked
/// for, so that each rank attends once for every server, also in a batch of one. Pecia's does not, so
/// parts are compared and not their sums: the op, the way of the queries, and that of the outputs.
/// It is wrong if another part than the published one is the largest.
std::string foresee_decode(const model::ModelConfig& config, cluster_files::Cluster cluster,
                           Results& results);

}  // namespace pecia::bench
