// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The run's output folder: one run at a time, continued only as the same run.

#include <filesystem>
#include <functional>
#include <string>

#include "lib/io/results.hpp"
#include "lib/io/run_lock.hpp"

namespace pecia::batch {

class Output {
 public:
  /// Makes or takes the folder and its results.h5; one rank of the job. InputError when another run
  /// holds it or its results belong to another run. With `fresh`, older results are renamed, never
  /// removed. `say` is told the new name, and what of the settings and inputs is other than at the
  /// earlier start (carry_over.hpp).
  Output(const std::filesystem::path& folder, const io::ResultsLayout& layout, bool fresh,
         bool retry_failed, const std::function<void(const std::string&)>& say);

  /// Whether an earlier start has made the results.
  bool continues() const { return continues_; }

  const std::filesystem::path& results_path() const { return results_path_; }

 private:
  io::RunLock lock_;
  std::filesystem::path results_path_;
  bool continues_ = false;
};

}  // namespace pecia::batch
