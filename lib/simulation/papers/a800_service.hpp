// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The machine of LoongServe's evaluation, as a model of passes: two servers with eight A800-80GB each,
/// and LWM-1M-Text (Llama-2-7B: 32 layers, 32 heads of 128) in bf16. It shows ratios between grids
/// and policies of this program, and is no measurement of any machine.

#include "lib/engine/schedule/simulate.hpp"

namespace pecia::simulation::papers {

constexpr int num_gpus = 16;

/// How the GPUs are used: replicas of instances, which are blocks of TP.
struct ServiceGrid {
  const char* name;
  int replicas, instances, tp;
  bool elastic = false;
  job::Policy policy = job::Policy::prefill_first;
  job::TeamScheduler scheduler = job::TeamScheduler::greedy;
  int answering = 0;  ///< instances that answer what the others read; 0: all do both
  schedule::ElasticParts parts = {};
};

/// How long passes take.
schedule::TeamTimes times_of(const ServiceGrid& grid);
/// Of a replica's scheduler.
schedule::SchedulerLimits limits_of(const ServiceGrid& grid,
                                    job::Objective objective = job::Objective::ttft);

}  // namespace pecia::simulation::papers
