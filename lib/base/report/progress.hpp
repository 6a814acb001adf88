// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shows the progress of a run: one redrawn line on a terminal, plain lines in a batch log, and
/// progress.json for other programs. Used by rank 0 only, by one thread.

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/report/starts.hpp"

namespace pecia::report {

/// The total work of a run. `work` is in the caller's unit (for example estimated seconds) and
/// includes attention, whose cost grows with the square of the length. By tokens alone, a long book
/// would seem nearly done too early.
struct ProgressTotals {
  int64_t requests = 0;
  int64_t turns = 0;  ///< turns of all requests; progress counts these
  int64_t prompt_tokens = 0;
  double work = 0;
  double last_arrival_s = 0;              ///< seconds after the start; the run does not end before
  std::vector<StartRecord> earlier = {};  ///< earlier starts of this run
  /// This start at its beginning: its time, its devices, and the seconds that have already passed.
  StartRecord own = {};
};

/// The part of the totals that is done, including turns that earlier starts of this run finished.
/// Prompt tokens count while a pass reads them, layer by layer.
struct ProgressState {
  int64_t turns_done = 0, turns_failed = 0;
  int64_t prompt_tokens = 0;  ///< tokens that were computed into the KV cache
  int64_t output_tokens = 0;
  double work = 0;
  std::optional<int64_t> turns_arrived = {};  ///< absent when all turns are there from the start
  int64_t decode_tokens = 0;  ///< output tokens after a turn's first, which prefill makes
  /// Seconds that prefill and decode ran, on the replica with the most. Speeds are relative to
  /// them.
  double prefill_s = 0, decode_s = 0;
  /// Tokens whose keys and values this start read from a save, and their work: they are done, but
  /// say nothing about the speed of what is left.
  int64_t restored_tokens = 0;
  double restored_work = 0;
};

enum class ProgressStyle { bar, lines, off };

struct ProgressOptions {
  ProgressStyle style = ProgressStyle::lines;
  bool colour = false;
  int columns = 80;  ///< width of the terminal; the bar never wraps
  std::chrono::nanoseconds line_interval = std::chrono::seconds(10);  ///< used by style lines
  std::filesystem::path file;  ///< path of progress.json; empty: none is written
};

/// Options for file descriptor `fd` and the environment. On a terminal that is not "dumb" the style
/// is a bar as wide as the terminal, in colour unless NO_COLOR is set. Elsewhere it is lines.
ProgressOptions progress_options_of(int fd);

/// Returns the time since a fixed moment.
using MonotonicClock = std::function<std::chrono::nanoseconds()>;
std::chrono::nanoseconds steady_time();

class Progress {
 public:
  /// Tokens per second of a phase are measured over the time in which it ran within this window. At
  /// the end the window is the whole start, so the speeds equal those in the run's last line.
  static constexpr std::chrono::nanoseconds rate_window = std::chrono::seconds(30);
  /// With style lines, the first line comes after this time, or after line_interval if that is
  /// shorter.
  static constexpr std::chrono::nanoseconds first_line = std::chrono::seconds(1);
  static constexpr std::chrono::nanoseconds bar_interval = std::chrono::milliseconds(200);
  static constexpr std::chrono::nanoseconds file_interval = std::chrono::seconds(1);

  /// `start` is the state in which this start of the run begins, so that resumed work counts as
  /// done but not for speed. `out` must outlive this object.
  Progress(const ProgressTotals& totals, const ProgressState& start, ProgressOptions options,
           std::ostream& out, MonotonicClock clock = steady_time);

  /// Draws and writes what is due; cheap when nothing is. Throws SystemError if progress.json
  /// cannot be written.
  void update(const ProgressState& state);

  /// Draws and writes the last state in any case, and leaves the terminal on a new line.
  void finish(const ProgressState& state);

  /// Seconds that the remaining work takes at the mean speed of this start, but at least the time
  /// until the last arrival. Absent before any work is done.
  std::optional<double> remaining_s() const;
  /// Current speeds; absent where the phase did not run.
  std::optional<double> prefill_tokens_per_s() const;
  std::optional<double> decode_tokens_per_s() const;
  /// The record of this start so far.
  StartRecord own_start() const;

 private:
  struct Sample {
    std::chrono::nanoseconds time;
    ProgressState state;
  };

  void take_sample(const ProgressState& state);
  int64_t prompt_tokens_read() const;
  double work_done() const;
  std::string summary() const;
  void draw_bar();
  void write_line();
  void write_file(bool finished) const;

  ProgressTotals totals_;
  ProgressOptions options_;
  std::ostream& out_;
  MonotonicClock clock_;
  Sample start_, now_;
  std::deque<Sample> window_;  ///< oldest first; begins rate_window ago or earlier, or at the start
  std::optional<std::chrono::nanoseconds> last_output_, last_file_;
};

}  // namespace pecia::report
