// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A run may be stopped and continued any number of times: what each start of it did. The list
/// stands in progress.json, which is replaced every second, so that a start that was killed is in
/// it too, and in report.json.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace pecia::report {

struct StartRecord {
  double began_unix_s = 0;
  double seconds = 0;            ///< wall time, loading included
  int64_t done = 0, failed = 0;  ///< turns
  int64_t prompt_tokens = 0, output_tokens = 0;
  int64_t cores = 0;  ///< of all ranks together
  int64_t gpus = 0;   ///< 0: it computed on the cores
};

/// The sum of starts; `began_unix_s` is the first one's, cores and GPUs are the last one's.
StartRecord sum_of(const std::vector<StartRecord>& starts);

/// Seconds times cores, or times GPUs where there are some, of all starts.
double device_seconds(const std::vector<StartRecord>& starts);

nlohmann::ordered_json to_json(const StartRecord& start);

/// The list in progress.json; empty where the file is missing, damaged or of an earlier version.
std::vector<StartRecord> read_starts(const std::filesystem::path& progress_file);

/// "64 done, 0 failed in 11 min 42 s (9.4 core-hours) · 4.1M tokens read, 3.8k written";
/// `more` follows the first two counts. The hours are `device_seconds`.
std::string text_of(const StartRecord& start, double device_seconds, const std::string& more = "");

}  // namespace pecia::report
