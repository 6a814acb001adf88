// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A small machine on which computing and sending take about as long, and a replica on it.

#include "lib/work/cluster_files/cluster.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::simulation {

inline cluster_files::Cluster small_cluster() {
  cluster_files::Cluster made;
  made.ranks_per_server = 2;
  made.rank = {"small", false, {{DType::fp32, 2e9}}, 4, 0.25};
  made.links = {cluster_files::Link{1, 2, false}, cluster_files::Link{0.25, 20, false},
                cluster_files::Link{0.1, 40, false}};
  made.efficiency = {{0.5}, {0.4}, {0.8}, {0.9}, {0.7}};
  made.overhead = {.op_us = 1, .step_us = 50};
  return made;
}

inline resources::Resources ring_of(int cp, int64_t max_batch_tokens) {
  resources::Resources resources;
  resources.cp = cp;
  resources.prefill = cp > 1 ? parallel::PrefillMode::ring : parallel::PrefillMode::single;
  resources.decode = cp > 1 ? parallel::DecodeMode::pass_q : parallel::DecodeMode::single;
  resources.max_batch_tokens = max_batch_tokens;
  return resources;
}

}  // namespace pecia::simulation
