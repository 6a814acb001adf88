// SPDX-License-Identifier: Apache-2.0
#pragma once
/// `pecia run --validate` checks everything that can be wrong before work starts, without starting.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/work/job/job.hpp"

namespace pecia::run {

/// What a start would find.
struct Validation {
  struct Failure {
    std::string request;
    int32_t turn = 0, turns = 1;  ///< the first turn that fails, and the number of turns
    std::string reason;
  };

  int num_ranks = 1;
  int64_t shards = 0, requests = 0;
  int64_t prompt_tokens = 0;         ///< prompt tokens of turns that can run
  int64_t cut_prompts = 0;           ///< prompts cut by limits.over_length
  std::vector<Failure> failures;     ///< one for each request with a turn sure to fail
  bool any_can_run = true;           ///< some turn can run or is done, on any ranks
  std::vector<std::string> remarks;  ///< remarks on existing results in the output folder
};

/// Reads the model's configuration, the shapes of its weights, the input shards with all tokens and
/// the results in the output folder (unless `fresh`). Resolves degrees and modes for a start on
/// `num_ranks` ranks. It writes nothing. Throws InputError naming what is wrong, as the run would.
Validation validate(job::Job job, int num_ranks, bool fresh, bool retry_failed);

/// Several lines for people, without the job's name.
std::string to_text(const Validation& validation, const job::Job& job);

}  // namespace pecia::run
