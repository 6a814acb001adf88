// SPDX-License-Identifier: Apache-2.0
#pragma once
/// `pecia run --validate`: everything that can be wrong before work starts, without starting it.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/job/job.hpp"

namespace pecia::run {

/// What a start would find.
struct Validation {
  struct Failure {
    std::string request;
    int32_t turn = 0, turns = 1;  ///< the first turn that fails, of so many
    std::string reason;
  };

  int num_ranks = 1;
  int64_t shards = 0, requests = 0;
  int64_t prompt_tokens = 0;         ///< of turns that can run
  int64_t cut_prompts = 0;           ///< by limits.over_length
  std::vector<Failure> failures;     ///< one for each request with a turn that is sure to fail
  bool any_can_run = true;           ///< or is done, on whatever ranks
  std::vector<std::string> remarks;  ///< on the results that are in the output folder
};

/// Reads the model's configuration, the shapes of its weights, the input shards with all tokens and
/// the results in the output folder (unless `fresh`), and resolves degrees and modes for a start on
/// `num_ranks` ranks. Writes nothing. InputError naming what is wrong, as the run would.
Validation validate(job::Job job, int num_ranks, bool fresh, bool retry_failed);

/// For people, several lines, without the job's name.
std::string to_text(const Validation& validation, const job::Job& job);

}  // namespace pecia::run
