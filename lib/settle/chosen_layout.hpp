// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A layout as a value.

#include <optional>
#include <string>
#include <vector>

#include "lib/work/job/job.hpp"

namespace pecia::settle {

/// Degrees, modes and tokens of a pass that replace what a job leaves open.
struct ChosenLayout {
  job::Job::Parallel parallel;
  std::optional<int64_t> max_batch_tokens = {};  ///< absent: as the job has it

  void apply_to(job::Job& job) const;
  /// In the words of the job, as "parallel.dp=2"; what a run keeps of its layout.
  std::vector<std::string> to_settings() const;
  static ChosenLayout of_settings(const job::Job& job, const std::vector<std::string>& settings);
};

}  // namespace pecia::settle
