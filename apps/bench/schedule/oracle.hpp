// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How well prompts could be read by one who knows all that will come. Instances are alike, and have
/// all slots that are needed.

#include <cstdint>
#include <vector>

#include "lib/engine/schedule/simulate.hpp"
#include "lib/engine/schedule/team_times.hpp"

namespace pecia::bench {

/// Instances that read prompts in passes of at most this number of tokens each.
struct Readers {
  const schedule::TeamTimes& times;
  int instances = 1;
  int64_t rows_per_instance = 1;
};

/// Returns the least mean of seconds from a prompt's arrival until it is read, by trying all ways:
/// which prompts make a batch, how many instances read it, and in which order batches begin. A batch
/// is read from its begin to its end. For at most six prompts, as their number of ways grows fast.
double best_mean_ttft_s(const Readers& readers,
                        const std::vector<schedule::SimulatedRequest>& requests);

/// Returns a mean that no schedule falls below, with batches or without: rows and pairs alone cost
/// something, all instances share every prompt evenly, and the prompt with the least left is always
/// read (SRPT, the best order on one machine); or, if that is more, every prompt is read by itself.
double least_mean_ttft_s(const Readers& readers,
                         const std::vector<schedule::SimulatedRequest>& requests);

/// Returns seconds that no schedule of the batch falls below, with all requests there from the start:
/// the rows and pairs of prompts and answers, shared evenly by all instances; or the longest request
/// by itself, whose answer needs a pass for each token.
double least_makespan_s(const Readers& readers,
                        const std::vector<schedule::SimulatedRequest>& requests);

}  // namespace pecia::bench
