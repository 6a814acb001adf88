// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The run's output folder. It holds one run at a time, which only a start of the same run
/// continues.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lib/files/disk/run_lock.hpp"
#include "lib/files/results/results.hpp"
#include "lib/work/batch/carry_over.hpp"

namespace pecia::batch {

class Output {
 public:
  /// Makes or takes over the folder and its results.h5; one rank of the job does this. Throws
  /// InputError when another run holds the folder or the results belong to another run. With
  /// `fresh`, older results are renamed, never removed, after journals of a killed run have been
  /// brought in (journals.hpp). `say` is told of this, and how settings and inputs differ from the
  /// earlier start (carry_over.hpp, which has `depends_on`).
  Output(const std::filesystem::path& folder, const io::ResultsLayout& layout, bool fresh,
         bool retry_failed, const std::function<void(const std::string&)>& say,
         const DependsOn& depends_on = {});

  /// Whether the results were made by an earlier start.
  bool continues() const { return continues_; }

  /// What cannot be known of the earlier start, and matters.
  const std::vector<std::string>& warnings() const { return warnings_; }

  const std::filesystem::path& results_path() const { return results_path_; }

 private:
  io::RunLock lock_;
  std::filesystem::path results_path_;
  bool continues_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace pecia::batch
