// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The passes of a replica that is not here, as programs of its ranks.

#include <optional>
#include <vector>

#include "lib/engine/execute/trial_passes.hpp"
#include "lib/simulation/program.hpp"
#include "lib/work/cluster_files/cluster.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::simulation {

/// What is simulated: a job on a described cluster. All referred to outlives its users.
struct Scenario {
  const job::Job& job;
  const model::ModelConfig& config;
  const cluster_files::Cluster& cluster;
  DType weights = DType::bf16;  ///< type of tensors that are not codes
  DType kv = DType::bf16;
  kernels::BackendTraits traits = {};  ///< of the backend of the ranks
  int threads = 1;                     ///< that replay passes, beside each other

  bool is_layout() const { return job.reproducible == parallel::Reproducible::layout; }
};

/// Of the backend on the cluster's ranks. Products take bf16 where the ranks have a peak for it and
/// the job does not ask for fp32.
kernels::BackendTraits traits_of(const cluster_files::Cluster& cluster, const job::Job& job);

/// The type in which activations travel.
DType wire_of(const Scenario& scenario);

/// What each of `ranks` ranks sends to others, in B/s, when all of them do so.
double all_to_all_bandwidth(const cluster_files::Cluster& cluster, int ranks);

/// What messages of keys and values cost one of `ranks` ranks while all send long ones: by the widest
/// links between them, and inside a server.
parallel::LinkCosts link_costs(const cluster_files::Cluster& cluster, int ranks);

/// The rings of a replica with these degrees and kv_dtype, for which a cluster's ring_rule may be.
cluster_files::RingRule ring_of(const model::ModelConfig& config,
                                const resources::Resources& resources);

/// In the functions below, `resources` has degrees and kv_dtype, and max_batch_tokens where
/// micro-partitions are to be chosen.

/// The setting of sparse attention. Where it leaves the number of micro-partitions open, it is the
/// one that a run would choose by rule with this cluster's rates. Absent without sparse attention.
std::optional<parallel::SparseSetting> settled_levels(const Scenario& scenario,
                                                      const resources::Resources& resources);

/// The replica's passes with these modes, as its scheduler makes them. `tokens_per_pass`: as in
/// TrialPasses.
execute::TrialPasses passes_of(const Scenario& scenario, const resources::Resources& resources,
                               const parallel::PassModes& modes,
                               parallel::AttentionExchange prefill_ring,
                               std::optional<int64_t> tokens_per_pass);

/// A pass of a team that changes (`parallel.cp: elastic`), as its scheduler plans it. `passes` are
/// those of a replica that has the team's instances alone. All instances read `tokens` new tokens of
/// a prompt after `cached` ones. The first instance has the cached tokens' keys, and keeps those of
/// the new ones.
schedule::Plan prefill_of_team(const execute::TrialPasses& passes, int64_t tokens, int64_t cached);

/// A step of `sequences` sequences of `tokens` tokens each, which lie evenly on all instances. The
/// first `masters` instances have rows, dealt evenly to them.
schedule::Plan decode_step_of_team(const execute::TrialPasses& passes, int masters,
                                   int64_t sequences, int64_t tokens);

/// What a phantom of the replica's rank needs to execute passes that reserve `kv_tokens` slots on
/// it, and in layers that keep recent tokens `kv_recent_tokens`.
execute::PhantomSettings settings_of(const Scenario& scenario,
                                     const resources::Resources& resources, int rank,
                                     int64_t kv_tokens, int64_t memory_bytes,
                                     int64_t kv_recent_tokens = 0);

/// The program of a rank in a pass that begins all of its sequences.
Program program_of(const Scenario& scenario, const resources::Resources& resources,
                   schedule::Plan pass, int rank);
/// The programs of all ranks of the replica.
std::vector<Program> programs_of(const Scenario& scenario, const resources::Resources& resources,
                                 schedule::Plan pass);

}  // namespace pecia::simulation
