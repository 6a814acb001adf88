// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A run may be stopped and continued any number of times. The list of its starts records what each
/// one did. It stands in report.json and in progress.json. The latter is replaced every second, so
/// it also has starts that were killed.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace pecia::report {

struct StartRecord {
  double began_unix_s = 0;
  double seconds = 0;            ///< wall time, loading included
  int64_t done = 0, failed = 0;  ///< number of turns
  int64_t prompt_tokens = 0, output_tokens = 0;
  int64_t cores = 0;  ///< cores of all ranks together
  int64_t gpus = 0;   ///< 0: the start computed on the cores
  int64_t hosts = 0;  ///< 0: of an earlier version, which did not count them
};

/// The sum of starts. `began_unix_s` is from the first start, cores and GPUs are from the last one.
StartRecord sum_of(const std::vector<StartRecord>& starts);

/// Sum over all starts of seconds times GPUs, or times cores where there are no GPUs.
double device_seconds(const std::vector<StartRecord>& starts);

/// Sum over all starts of seconds times hosts; absent where an earlier version did not count them.
std::optional<double> host_seconds(const std::vector<StartRecord>& starts);

nlohmann::ordered_json to_json(const StartRecord& start);

/// The list in progress.json; empty if the file is missing, damaged or from an earlier version.
std::vector<StartRecord> read_starts(const std::filesystem::path& progress_file);

/// "64 done, 0 failed in 11 min 42 s (9.4 core-hours) · 4.1M tokens read, 3.8k written". `more` is
/// inserted after the first two counts. The hours are `device_seconds`.
std::string text_of(const StartRecord& start, double device_seconds, const std::string& more = "");

}  // namespace pecia::report
