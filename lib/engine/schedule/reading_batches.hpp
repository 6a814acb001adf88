// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which prompts are read together, and by how many instances: a dynamic program over prompts in the
/// order of their lengths and over instances. Source: LoongServe (batching).

#include <cstdint>
#include <vector>

#include "lib/engine/schedule/team_times.hpp"

namespace pecia::schedule {

struct PromptToRead {
  int64_t tokens = 1;
  int64_t slots = 0;  ///< KV slots of the prompt and of its answer
  double weight = 1;  ///< of its seconds in a mean
};

/// What is made small: the sum over prompts of weight × seconds until it is read; or the makespan of a
/// batch that goes on after these prompts, to which they add the seconds of all their instances
/// together.
enum class ReadingGoal { mean, makespan };

struct BatchLimits {
  int64_t rows_per_instance = 1;  ///< new tokens of an instance in a pass, at most
  int least = 1, most = 1 << 20;  ///< instances of a batch
};

/// Prompts that are read in the same passes, by instances that do nothing else meanwhile.
struct ReadingBatch {
  std::vector<size_t> prompts;    ///< the longest first
  std::vector<size_t> instances;  ///< those with the most free slots first
  double seconds = 0;
};

/// Seconds in which `degree` instances read the prompts together.
double reading_s(const TeamTimes& times, const std::vector<PromptToRead>& prompts, int degree,
                 int64_t rows_per_instance);

/// Cuts the prompts, sorted by length, into batches, and the instances, sorted by free slots, into
/// as many teams, so that each team has the slots of its batch. All batches are read side by side.
/// Of all such cuts the result is the one with the least cost; it leaves instances out that would
/// not make the cost less.
///
/// f[i, k] is the least cost of the first i prompts on the first k instances:
///
///     f[i, k] = min over j < i, l < k of f[j, l] + cost of prompts j … i − 1 on instances l … k − 1
///
/// So there are n² · m² / 4 costs for n prompts and m instances. Short neighbours among many prompts
/// count as one. More than 16 instances are cut into parts of 8, to which prompts are dealt by their
/// work, or more for a prompt that needs their slots.
/// Prompts for which there is no place are left out: the last ones, or, where instances are cut into
/// parts, some that no part has the slots for. Throws InvalidArgument if there are no prompts, or more
/// instances than times.degrees().
std::vector<ReadingBatch> read_in_batches(const TeamTimes& times,
                                          const std::vector<PromptToRead>& prompts,
                                          const std::vector<int64_t>& free_slots, ReadingGoal goal,
                                          const BatchLimits& limits);

}  // namespace pecia::schedule
