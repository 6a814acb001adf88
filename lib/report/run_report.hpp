// SPDX-License-Identifier: Apache-2.0
#pragma once
/// report.json: what a stranger needs to repeat a run and to judge it. Also the run's last line.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/report/starts.hpp"
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

/// A rate measured in some windows of time, all ranks together.
struct MeasuredRate {
  double best = 0, median = 0, least = 0;  ///< of the windows
  int windows = 0;
  double window_s = 0;
};

/// Of windows of equal length; at least one.
MeasuredRate measured_rate(std::vector<double> windows, double window_s);

/// What the hardware gives at most, measured by all ranks together.
struct PeakReport {
  std::string operands;      ///< type of the numbers that are multiplied: "fp32"
  std::string instructions;  ///< that gave most: "AVX2 VFMADD231PS"
  std::string how;           ///< "a loop that touches registers alone, on all threads of all ranks"
  MeasuredRate start;        ///< FLOP/s before the first pass
  std::optional<MeasuredRate> end = {};  ///< and after the last one
  /// Better instructions that could not be measured, each with the reason.
  std::vector<std::pair<std::string, std::string>> not_measured = {};
  MeasuredRate bandwidth;     ///< B/s of memory, before the first pass
  std::string bandwidth_how;  ///< "reading 64 MiB per rank, all threads of all ranks"
};

struct Counts {
  int64_t done = 0, failed = 0;   ///< by this start of the run
  int64_t partial = 0, open = 0;  ///< that it leaves
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  std::optional<int64_t> arrived = {};  ///< of all turns; absent where all are there from the start
  int64_t truncated_turns = 0, truncated_tokens = 0;  ///< prompts that were cut to fit
  /// Answers without a stop, and those of them that the model's length ended before max_new_tokens.
  int64_t cut_by_length = 0, cut_by_model_length = 0;
};

/// "3 prompts truncated, 2 answers cut at max_new_tokens": what a run left out; "" if nothing.
std::string cut_text(const Counts& counts);

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
  double began_unix_s = 0;
  int64_t cores = 0;                      ///< of all ranks together
  int64_t gpus = 0;                       ///< 0: it computes on the cores
  std::vector<StartRecord> earlier = {};  ///< starts of this run
  /// Of all starts, as the results stand: a start that was killed may have done more than it told.
  std::optional<int64_t> all_done = {}, all_failed = {};
  std::vector<PhaseReport> phases;
  std::vector<StageReport> stages;
  std::vector<double> ttft_s,
      tbt_s;  ///< one value per turn, and per output token after a turn's first
  /// Turns with a first token, and those of them that got it in a pass with prompts of others.
  int64_t first_tokens = 0, shared_first_tokens = 0;
  std::vector<RankReport> ranks;
  std::vector<LinkReport> links;
  std::optional<PeakReport> peak = {};  ///< without it no share of peak
  nlohmann::ordered_json predicted;     ///< the planner's numbers, or null
  std::vector<std::string> errors;
};

/// FLOP/s of all ranks that shares of peak are of: the larger one of the two measurements, or what
/// a phase of the run reached, if that is more, as neighbours and clocks change between them. So no
/// share is above 1.
struct UsedPeak {
  double flops;
  std::string from;  ///< "start", "end", or the name of that phase
};
std::optional<UsedPeak> used_peak(const RunReport& report);

/// The document, `schema = "pecia.report/1"`, build information added. What is not known is null.
nlohmann::ordered_json to_json(const RunReport& report);

/// Writes it whole (as write_atomically does).
void write_report(const std::filesystem::path& path, const RunReport& report);

/// Whether the report at `path` is the last one that a run with these counts needs: it tells of so
/// many turns, and of none open. False where it is missing, damaged, or of an earlier start.
bool is_final_report(const std::filesystem::path& path, int64_t done, int64_t failed);

/// "kept the keys and values of 3 requests (1.2 GiB in 4.1 s); 2 requests are cheaper to read
/// again"; "" where there is nothing to say.
std::string kept_line(const KvReport& kv);

/// 64 done, 0 failed in 11 min 42 s (3.1 core-hours) · 4.1M tokens read, 3.8k written · 3 prompts
/// truncated, 2 answers cut at max_new_tokens · prefill 41.2k tok/s (58 % of peak) · decode 1.9k
/// tok/s · exposed communication 3.1 % · peak 1.0 TFLOP/s (AVX2 VFMADD231PS), 41.0 GB/s ·
/// runs/books/report.json
/// and, of a run that was continued, a second line with all its starts.
std::string last_line(const RunReport& report, const std::filesystem::path& path);

}  // namespace pecia::report
