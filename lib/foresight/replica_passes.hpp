// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Passes of a replica that is not here, as programs of its ranks.

#include <functional>
#include <optional>
#include <vector>

#include "lib/execute/trial_passes.hpp"
#include "lib/foresight/program.hpp"
#include "lib/job/job.hpp"
#include "lib/machines/cluster.hpp"
#include "lib/resources/resources.hpp"

namespace pecia::foresight {

/// A replica: the job's, on some of a cluster's ranks.
struct Replica {
  const job::Job& job;
  const model::ModelConfig& config;
  /// With degrees and kv_dtype, and with max_batch_tokens where micro-partitions are to be chosen.
  const resources::Resources& resources;
  DType weights;                       ///< type of tensors that are not codes
  kernels::BackendTraits traits = {};  ///< of the backend of the ranks

  int ranks() const { return resources.cp * resources.sp * resources.tp; }
};

/// The replica's passes with these modes, as its scheduler makes them. `tokens_per_pass`: as in
/// TrialPasses.
execute::TrialPasses passes_of(const Replica& replica, const parallel::PassModes& modes,
                               parallel::AttentionExchange prefill_ring,
                               std::optional<int64_t> tokens_per_pass);

/// What a phantom of the replica's rank needs to execute passes that reserve `kv_tokens` slots on
/// it, and in layers that keep recent tokens `kv_recent_tokens`.
execute::PhantomSettings settings_of(const Replica& replica, const machines::Cluster& cluster,
                                     int rank, int64_t kv_tokens, int64_t memory_bytes,
                                     int64_t kv_recent_tokens = 0);

/// The program of a rank in a pass that begins all of its sequences.
Program program_of(const Replica& replica, const machines::Cluster& cluster, schedule::Plan pass,
                   int rank);
/// Those of all the replica's ranks.
std::vector<Program> programs_of(const Replica& replica, const machines::Cluster& cluster,
                                 schedule::Plan pass);

}  // namespace pecia::foresight
