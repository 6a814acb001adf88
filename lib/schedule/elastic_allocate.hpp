// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Second step of elastic sequence parallelism: which instances read the dispatched prompts.
/// Source: LoongServe (elastic instance allocation).

#include <cstdint>
#include <vector>

#include "lib/schedule/elastic_scaling.hpp"
#include "lib/schedule/team_times.hpp"

namespace pecia::schedule {

/// Instances that generate answers together.
struct DecodeGroup {
  int64_t rows = 0;            ///< answers under way
  int64_t context_tokens = 0;  ///< sum of their contexts
  double passes_left = 0;      ///< expected number of passes until they have ended
};

/// An instance that a prefill could use. Those that read prompts already are not among them.
struct Candidate {
  int32_t instance = 0;
  int32_t group = -1;           ///< place of its decode group; −1: it is idle
  int64_t free_slots = 0;       ///< that nothing holds and no answer keeps free
  int64_t kv_tokens = 0;        ///< that it holds of the group's sequences
  int64_t reserved_tokens = 0;  ///< slots that it keeps free for the group's answers
};

/// What is to be read.
struct PrefillDemand {
  int64_t requests = 0;
  int64_t slots = 0;  ///< of their prompts and answers
  /// [k − 1]: seconds that a request waits for its first token on k instances, as by_instances of
  /// batches. Beyond the last entry more instances do not help.
  std::vector<double> seconds;
  double wait_s = 0;  ///< expected seconds until an instance is idle if none is taken now
};

enum class InstanceSource {
  idle,
  shrunk,     ///< its decode group goes on without it
  preempted,  ///< its decode group waits until the prompts are read
};

struct InstanceChoice {
  int32_t instance = 0;
  InstanceSource source = InstanceSource::idle;
  /// Seconds times requests and delayed answers.
  double gain_s = 0, cost_s = 0;
  bool for_slots = false;      ///< taken although it costs more, as the others had too few slots
  std::vector<KvShare> moves;  ///< shrunk: where its tokens and reserved slots go
};

enum class AllocationEnd {
  taken,
  too_few_slots,  ///< all candidates together have too few
  costs_more,     ///< idle instances alone do not do, and the others cost more than waiting
};

struct Allocation {
  AllocationEnd end = AllocationEnd::taken;
  std::vector<InstanceChoice> taken;  ///< in the order of the decision; empty unless `taken`
  /// The first instance of each source that was tried and not taken. Where `end` is not `taken`,
  /// what would have been taken comes before them.
  std::vector<InstanceChoice> rejected;
  double seconds = 0;     ///< demand.seconds on the instances taken; with wait_s if none is
  double rejected_s = 0;  ///< taken: by waiting. Otherwise: on the instances that were not taken.
};

/// Takes instances from three sources, one after the other.
///
/// 1. Idle instances, those with most free slots first. It takes as many as make the seconds least,
///    and no more.
/// 2. Instances of decode groups that can shrink, those with the fewest tokens to move first. The
///    rest of the group must have room for what the instance holds and keeps free. The cost is rows
///    times the seconds in which its tokens move (bytes over bandwidth) and by which all passes
///    left become slower.
/// 3. Instances whose decodes are delayed, those with most free slots first. The cost is the
///    group's rows times the seconds of the prefill. Further instances of a delayed group cost
///    nothing.
///
/// Of two equal instances the one with the lower number comes first. One instance more lets the
/// requests, and the answers that are delayed already, wait less: that is its gain. An instance of
/// source 2 or 3 is taken if its gain exceeds its cost. As long as the instances taken have too few
/// slots for the demand, the next one with free slots is taken whatever it costs. If then not all
/// are idle and all costs together reach all gains, nothing is taken.
///
/// It is greedy: an instance that helps only together with the next one is not found, except among
/// idle ones. Errors: throws InvalidArgument if a number is negative, demand.seconds or
/// demand.requests is empty or 0, an instance stands twice or a group does not exist.
Allocation allocate(const TeamTimes& times, const std::vector<Candidate>& candidates,
                    const std::vector<DecodeGroup>& groups, const PrefillDemand& demand);

}  // namespace pecia::schedule
