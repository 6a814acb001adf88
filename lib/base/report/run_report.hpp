// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes report.json, which contains what a stranger needs to repeat a run and to judge it. Also
/// makes the last line of a run.

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/report/starts.hpp"
#include "lib/base/report/startup.hpp"

namespace pecia::report {

/// Percentiles of a list of seconds. Each is a value of the list or lies between two neighbouring
/// values.
struct Percentiles {
  double p50, p90, p99;
};

/// Interpolates linearly between neighbouring ranks (numpy's default). Absent for an empty list;
/// InvalidArgument for NaN.
std::optional<Percentiles> percentiles(std::vector<double> values);

/// A part of the run with a timing of its own: "prefill", "decode", "load".
struct PhaseReport {
  std::string name;
  double seconds = 0;  ///< wall-clock time in which the phase ran
  int64_t tokens = 0;  ///< 0: the phase makes no tokens
  double flops = 0;    ///< sum over all ranks
};

/// Sum of the spans with one name over all ranks (see Stage).
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

/// What all groups of one kind ("ring", "sp", "tp", "block") sent over one level of links, all
/// ranks together. Level "server" is inside a server, "rack" between servers of a rack, "system"
/// between racks.
struct LinkReport {
  std::string pattern, level;
  int64_t messages = 0, bytes = 0;
};

/// A rate of all ranks together, measured in several windows of time.
struct MeasuredRate {
  double best = 0, median = 0, least = 0;  ///< best, median and least of the windows
  int windows = 0;
  double window_s = 0;
};

/// The rate from the values of at least one window; all windows have equal length.
MeasuredRate measured_rate(std::vector<double> windows, double window_s);

/// The peak rates of the hardware, measured by all ranks together.
struct PeakReport {
  std::string operands;      ///< type of the numbers that are multiplied: "fp32"
  std::string instructions;  ///< the fastest instructions: "AVX2 VFMADD231PS"
  std::string how;           ///< "a loop that touches registers alone, on all threads of all ranks"
  MeasuredRate start;        ///< FLOP/s before the first pass
  std::optional<MeasuredRate> end = {};  ///< FLOP/s after the last pass
  /// Faster instructions that could not be measured, each with the reason.
  std::vector<std::pair<std::string, std::string>> not_measured = {};
  MeasuredRate bandwidth;     ///< memory bandwidth in B/s, before the first pass
  std::string bandwidth_how;  ///< "reading 64 MiB per rank, all threads of all ranks"
  bool kept = false;          ///< measured by an earlier run of ranks like these
};

/// What the devices of the run took, all together, whoever else used them meanwhile.
struct EnergyReport {
  std::optional<double> cpu_joules = {};  ///< of all hosts' processors and, where counted, memory
  std::optional<double> gpu_joules = {};  ///< of all GPUs of the run
  std::string why_no_cpus = {}, why_no_gpus = {};  ///< why they are absent; "" for GPUs without any
};

struct Counts {
  int64_t done = 0, failed = 0;   ///< turns finished by this start of the run
  int64_t partial = 0, open = 0;  ///< turns that this start leaves unfinished
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  int64_t vectors = 0, scores = 0, score_tokens = 0;  ///< of turns that are done
  std::optional<int64_t> arrived = {};  ///< arrived turns; absent when all are there from the start
  int64_t truncated_turns = 0, truncated_tokens = 0;  ///< prompts that were cut to fit
  /// Answers that ended at a length limit, and how many of them the model's length ended before
  /// max_new_tokens.
  int64_t cut_by_length = 0, cut_by_model_length = 0;
};

/// "3 prompts truncated, 2 answers cut at max_new_tokens": what a run left out; "" if nothing was.
std::string cut_text(const Counts& counts);

/// What became of tokens that were drafted from texts, in this start of the run.
struct DraftReport {
  struct Tokens {
    int64_t tried = 0, accepted = 0;
  };
  /// By how many tokens before the draft had stood in the text from which it came.
  struct Match {
    std::optional<int64_t> up_to;  ///< absent: longer ones
    Tokens tokens;
  };
  struct Instruction {
    std::optional<int64_t> row;  ///< the first of its answers; absent: of all other instructions
    Tokens tokens;
  };
  int64_t passes = 0;  ///< times that an answer had drafted tokens in a pass
  Tokens tokens;
  int64_t computed_again = 0;  ///< rows, since states of recurrent layers went back
  /// As estimated from measured passes without drafts; absent: there were none.
  std::optional<double> saved_s;
  std::vector<Match> by_match;
  std::vector<Instruction> by_instruction;
};

/// Keys and values that this start of the run restored from an earlier one, and kept for a later
/// one.
struct KvReport {
  int64_t restored_requests = 0, restored_tokens = 0;
  double restore_s = 0;
  int64_t kept_requests = 0, kept_tokens = 0, kept_bytes = 0;
  double keep_s = 0;
  int64_t not_worth_keeping = 0;  ///< requests that are cheaper to read again
  /// Memory on demand; absent where sequences reserve what their longest answers need.
  struct Demand {
    int64_t most_at_once = 0;  ///< sequences of a replica
    int64_t blocks = 0;        ///< that sequences have grown by
    int64_t parked = 0;        ///< how often keys left the cache to come back later
    int64_t parked_tokens = 0;
    int64_t moved = 0;  ///< how often keys moved to another instance to make room
    int64_t moved_tokens = 0;
    int64_t scale_ups = 0;  ///< how often a sequence grew on a further instance
    int64_t forgotten = 0;  ///< how often a sequence had to read its tokens again
    int64_t reread_tokens = 0;
    double park_s = 0;  ///< moving keys, of the replica where that took longest
  };
  std::optional<Demand> demand;
  /// Tokens of answers: a tenth, a half, nine tenths; of the replica where they are most.
  std::array<int64_t, 3> answer_quantiles = {};
};

/// What all ranks sent round rings in layers with a sliding window, and what they would have sent
/// without windows in the same passes and modes.
struct WindowReport {
  int64_t sent_bytes = 0, whole_ring_bytes = 0;  ///< the latter is positive

  double saved_share() const {
    return 1 - static_cast<double>(sent_bytes) / static_cast<double>(whole_ring_bytes);
  }
};

/// Rank 0's host.
struct MachineReport {
  std::string cpu;
  int64_t cores_of_a_rank = 0, memory_bytes_of_a_host = 0;
  std::string gpu = {};  ///< "": the run computes on the cores
  std::string isa = {};  ///< by which the cores compute (core/isa.hpp); "": it computes on a GPU
};

struct GridReport {
  int dp = 1, cp = 1, sp = 1, tp = 1;
  std::optional<int> ep = {};  ///< absent: the model has no experts
  std::optional<int> pp = {};  ///< absent: one stage
};

/// What became of the graphs of a GPU's work (device::GraphCounts).
struct GraphReport {
  int64_t launched = 0, made = 0, piecemeal = 0, joint = 0, disagreed = 0;
  std::string why_not, why_not_joint;
};

/// How the run worked, in the words of job files and of results.
struct ModesReport {
  std::string mode, prefill, ring, decode;  ///< ring "": there is none
  std::optional<int64_t> shift_threshold = {};
  std::optional<int64_t> gather_threshold = {};
  std::string why;  ///< reasons for what was auto
  int threads = 1;
  std::string compute;
  std::string attention_library, expert_library;  ///< "": the program's own, or no mixture
  std::string kv_dtype;
  std::string wire;  ///< type in which activations travel between ranks; "": none travel
  int64_t kv_tokens_per_rank = 0;
  int64_t kv_recent_tokens_per_rank = 0;  ///< 0: all layers keep all tokens
  int64_t weight_bytes = 0, max_sequences = 0, max_batch_tokens = 0;
  std::optional<GraphReport> graphs = {};
  nlohmann::ordered_json expected = {};  ///< of the layout that was chosen (settle/layout.hpp)
};

/// What a run expected of itself, in the places where the report has what it took.
struct Prediction {
  std::string none = {};  ///< why nothing is foreseen; "": the rest is
  double seconds = 0;
  struct Phase {
    std::string name;
    double seconds = 0, tokens_per_s = 0;
  };
  std::vector<Phase> phases = {};
  std::optional<double> ttft_p50_s = {};
  std::string without = {};  ///< what it leaves out; "": nothing that is known of
  std::string by = {};       ///< what it rests on
  std::string ranks = {};    ///< the key of ranks like these (measure::ranks_key)
};

struct RunReport {
  // The modules that know the facts write these sections, each from values of its own.
  nlohmann::ordered_json job, model;
  nlohmann::ordered_json elastic;         ///< what teams that change did, or null
  nlohmann::ordered_json prefix_sharing;  ///< what requests that begin alike were spared
  nlohmann::ordered_json sparse;          ///< what attention by levels did, or null

  MachineReport machine = {};
  std::vector<std::string> topology = {};  ///< the place of each rank
  GridReport grid = {};
  ModesReport modes = {};
  std::optional<WindowReport> windows = {};  ///< absent: nothing was sent, with windows or without

  Counts counts;
  KvReport kv;
  std::optional<DraftReport> drafts = {};  ///< absent: generation.drafts is off
  double seconds = 0;                      ///< wall time of this start of the run
  std::optional<Startup> startup = {};     ///< of rank 0, up to the first pass
  double began_unix_s = 0;
  int64_t cores = 0;  ///< cores of all ranks together
  int64_t gpus = 0;   ///< 0: the run computes on the cores
  int64_t hosts = 0;
  std::vector<std::string> command = {};  ///< this process's command line; empty: not known
  std::optional<EnergyReport> energy = {};
  std::optional<double> node_hour_price = {};  ///< absent: no costs
  std::vector<StartRecord> earlier = {};       ///< earlier starts of this run
  /// Sums over all starts, counted from the results. A start that was killed may have done more
  /// turns than its record says.
  std::optional<int64_t> all_done = {}, all_failed = {};
  std::vector<PhaseReport> phases;
  std::vector<StageReport> stages;
  std::vector<double> ttft_s,
      tbt_s;                              ///< per turn; per output token after a turn's first
  std::optional<double> tbt_goal_s = {};  ///< batch.objective: {tbt: …}
  /// Turns with a first token, and how many of them got it in a pass with prompts of other turns.
  int64_t first_tokens = 0, shared_first_tokens = 0;
  std::vector<RankReport> ranks;
  std::vector<LinkReport> links;
  std::optional<PeakReport> peak = {};       ///< absent: the report gives no shares of peak
  std::optional<Prediction> predicted = {};  ///< made at the start
  std::vector<std::string> errors;
};

/// The FLOP/s of all ranks that shares of peak refer to. It is the larger one of the two
/// measurements. If a phase of the run was faster, because neighbours and clocks change over time,
/// its rate is used, so no share is above 1.
struct UsedPeak {
  double flops;
  std::string from;  ///< "start", "end", or the name of the phase
};
std::optional<UsedPeak> used_peak(const RunReport& report);

/// The report as JSON, `schema = "pecia.report/1"`, with build information. Unknown values are
/// null.
nlohmann::ordered_json to_json(const RunReport& report);

/// Writes the report as write_atomically does.
void write_report(const std::filesystem::path& path, const RunReport& report);

/// Whether the report at `path` is the final one for a run with these counts: it records as many
/// turns, and none open. False when it is missing, damaged, or written by an earlier start.
bool is_final_report(const std::filesystem::path& path, int64_t done, int64_t failed);

/// "kept the keys and values of 3 requests (1.2 GiB in 4.1 s); 2 requests are cheaper to read
/// again"; "" when both counts are zero.
std::string kept_line(const KvReport& kv);

/// 64 done, 0 failed in 11 min 42 s (3.1 core-hours) · 4.1M tokens read, 3.8k written · 3 prompts
/// truncated, 2 answers cut at max_new_tokens · prefill 41.2k tok/s (58 % of peak) · decode 1.9k
/// tok/s · exposed communication 3.1 % · peak 1.0 TFLOP/s (AVX2 VFMADD231PS), 41.0 GB/s ·
/// runs/books/report.json
/// For a run that was continued, a second line follows with the sums of all its starts.
std::string last_line(const RunReport& report, const std::filesystem::path& path);

}  // namespace pecia::report
