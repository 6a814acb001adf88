#pragma once
/// report.json: what a stranger needs to repeat a run and to judge it. Also the run's last line.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/report/startup.hpp"

namespace pecia::report {

/// Of a list of seconds; each is one of the list's values or lies between two neighbours.
struct Percentiles {
  double p50, p90, p99;
};

/// Linear between neighbouring ranks (numpy's default). Absent for an empty list. NaN is refused.
std::optional<Percentiles> percentiles(std::vector<double> values);

/// A part of the run that is timed by itself: "prefill", "decode", "load".
struct PhaseReport {
  std::string name;
  double seconds = 0;  ///< wall-clock time in which the phase ran
  int64_t tokens = 0;  ///< 0: the phase makes none
  double flops = 0;    ///< of all ranks
};

/// Spans of one name over all ranks (see Stage).
struct StageReport {
  std::string name, kind;
  int64_t count = 0;
  double seconds = 0, flops = 0;
  int64_t bytes = 0;
};

struct RankReport {
  int rank = 0;
  std::string host;
  double compute_s = 0, exposed_comm_s = 0, idle_s = 0;
  int64_t peak_rss_bytes = 0;
};

/// What one kind of group ("ring", "sp", "tp", "block") sent over one level of links ("server":
/// inside one, "rack": between servers of one, "system": between racks), all ranks together.
struct LinkReport {
  std::string pattern, level;
  int64_t messages = 0, bytes = 0;
};

struct Counts {
  int64_t done = 0, failed = 0;   ///< by this start of the run
  int64_t partial = 0, open = 0;  ///< that it leaves
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  std::optional<int64_t> arrived = {};  ///< of all turns; absent where all are there from the start
};

/// Keys and values that this start of the run read from an earlier one's, and kept for a later one.
struct KvReport {
  int64_t restored_requests = 0, restored_tokens = 0;
  double restore_s = 0;
  int64_t kept_requests = 0, kept_tokens = 0, kept_bytes = 0;
  double keep_s = 0;
  int64_t not_worth_keeping = 0;  ///< requests: reading them again is cheaper
};

struct RunReport {
  // The run as it was, in the words of whoever knows it.
  nlohmann::ordered_json job, model, machine, topology, grid, modes;

  Counts counts;
  KvReport kv;
  double seconds = 0;                   ///< of this start of the run
  std::optional<Startup> startup = {};  ///< of rank 0, up to the first pass
  std::vector<PhaseReport> phases;
  std::vector<StageReport> stages;
  std::vector<double> ttft_s,
      tbt_s;  ///< one value per turn, and per output token after a turn's first
  std::vector<RankReport> ranks;
  std::vector<LinkReport> links;
  std::optional<double> peak_flops;  ///< measured FLOP/s of all ranks; without it no share of peak
  nlohmann::ordered_json predicted;  ///< the planner's numbers, or null
  std::vector<std::string> errors;
};

/// The document, `schema = "pecia.report/1"`, build information added. What is not known is null.
nlohmann::ordered_json to_json(const RunReport& report);

/// Writes it whole (as write_atomically does).
void write_report(const std::filesystem::path& path, const RunReport& report);

/// 64 done, 0 failed in 11 min 42 s · prefill 41.2k tok/s (58 % of peak) · decode 1.9k tok/s ·
/// exposed communication 3.1 % · runs/books/report.json
/// "kept the keys and values of 3 requests (1.2 GiB in 4.1 s); 2 requests are cheaper to
/// read again"; ""
/// where there is nothing to say.
std::string kept_line(const KvReport& kv);

std::string last_line(const RunReport& report, const std::filesystem::path& path);

}  // namespace pecia::report
