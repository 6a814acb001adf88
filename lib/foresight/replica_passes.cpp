// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/replica_passes.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/context/recent_slots.hpp"
#include "lib/foresight/settled_levels.hpp"
#include "lib/parallel/virtual_ranks.hpp"

namespace pecia::foresight {

namespace {

/// Slots that the sequences that begin in a pass reserve on a rank of the instance with most.
int64_t reserved_slots(const schedule::Plan& pass, int instances) {
  std::vector<int64_t> slots(instances);
  for (const schedule::NewSequence& added : pass.added)
    for (int instance = 0; instance < instances; ++instance)
      slots[instance] += added.state.reserved.at(instance);
  return std::ranges::max(slots);
}

/// As many, and the blocks of a sequence that are not full.
int64_t recent_slots(int64_t slots, const schedule::Plan& pass) {
  constexpr int64_t block = context::RecentSlots::block;
  return (slots / block + 1 + 2 * std::ssize(pass.added)) * block;
}

/// Of a pass that begins all of its sequences.
Recording recording_of(const Replica& replica, const machines::Cluster& cluster,
                       schedule::Plan pass, int rank) {
  constexpr int64_t any_memory = std::numeric_limits<int64_t>::max();
  const int64_t kv_tokens = reserved_slots(pass, replica.resources.cp);
  const int64_t recent = replica.resources.kv_recent_tokens > 0 ? recent_slots(kv_tokens, pass) : 0;
  return {settings_of(replica, cluster, rank, kv_tokens, any_memory, recent), {}, std::move(pass)};
}

bool is_layout(const Replica& replica) {
  return replica.job.reproducible == parallel::Reproducible::layout;
}

}  // namespace

execute::TrialPasses passes_of(const Replica& replica, const parallel::PassModes& modes,
                               parallel::Ring prefill_ring,
                               std::optional<int64_t> tokens_per_pass) {
  const resources::Resources& resources = replica.resources;
  return {.instances = resources.cp,
          .virtual_ranks = is_layout(replica) ? parallel::layout_ranks : resources.cp,
          .modes = modes,
          .prefill_ring = prefill_ring,
          .levels_from = resources.levels_from(),
          .tokens_per_pass = tokens_per_pass};
}

execute::PhantomSettings settings_of(const Replica& replica, const machines::Cluster& cluster,
                                     int rank, int64_t kv_tokens, int64_t memory_bytes,
                                     int64_t kv_recent_tokens) {
  const resources::Resources& resources = replica.resources;
  const model::CodeUse codes =
      resources::code_use(replica.job, replica.config, 1, 1, resources.gpus);
  return {.ranks = replica.ranks(),
          .rank = rank,
          .weights = replica.weights,
          .quantize = resources::quantize_of(replica.job),
          .keeps_codes = codes.kept,
          .gpus = resources.gpus,
          .device = {cluster.rank.name, 0, 1, "", ""},
          .memory_bytes = memory_bytes,
          .traits = replica.traits,
          .replica = {.sp = resources.sp,
                      .tp = resources.tp,
                      .kv_dtype = resources.kv_dtype,
                      .kv_tokens = kv_tokens,
                      .kv_recent_tokens = kv_recent_tokens,
                      .logprobs = replica.job.generation.logprobs,
                      .prompt_logprobs = 0,
                      .places = cluster.places(replica.ranks()),
                      .layout_invariant = is_layout(replica),
                      .sparse = settled_levels(replica, cluster),
                      .ep = resources.ep}};
}

Program program_of(const Replica& replica, const machines::Cluster& cluster, schedule::Plan pass,
                   int rank) {
  return record(replica.config, recording_of(replica, cluster, std::move(pass), rank),
                Layers::folded);
}

std::vector<Program> programs_of(const Replica& replica, const machines::Cluster& cluster,
                                 schedule::Plan pass) {
  std::vector<Program> programs;
  Recording recording = recording_of(replica, cluster, std::move(pass), 0);
  for (int& rank = recording.rank.rank; rank < replica.ranks(); ++rank)
    programs.push_back(record(replica.config, recording, Layers::folded));
  return programs;
}

}  // namespace pecia::foresight
