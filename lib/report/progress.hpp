// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How far a run is: one line on a terminal that is drawn over, plain lines in a batch log, and
/// progress.json for other programs. Used by rank 0 only; one thread.

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lib/report/starts.hpp"

namespace pecia::report {

/// All there is to do. `work` is in the caller's unit (estimated seconds, say) and includes
/// attention, whose cost grows with the square of the length: tokens alone would make a book look
/// done too early.
struct ProgressTotals {
  int64_t requests = 0;
  int64_t turns = 0;  ///< of all requests; what is counted
  int64_t prompt_tokens = 0;
  double work = 0;
  double last_arrival_s = 0;              ///< after the start; before it the run does not end
  std::vector<StartRecord> earlier = {};  ///< starts of this run
  /// This start as it begins: when, on what, and the seconds that have passed already.
  StartRecord own = {};
};

/// What is done of it, finished turns of earlier starts of this run included. Prompt tokens count
/// while a pass reads them, layer by layer.
struct ProgressState {
  int64_t turns_done = 0, turns_failed = 0;
  int64_t prompt_tokens = 0;  ///< in the KV cache now or earlier
  int64_t output_tokens = 0;
  double work = 0;
  std::optional<int64_t> turns_arrived = {};  ///< where they are not all there from the start
  int64_t decode_tokens = 0;  ///< output tokens after a turn's first, which prefill makes
  /// In which prefill and decode ran, of the replica with the most: what speeds are of.
  double prefill_s = 0, decode_s = 0;
};

enum class ProgressStyle { bar, lines, off };

struct ProgressOptions {
  ProgressStyle style = ProgressStyle::lines;
  bool colour = false;
  int columns = 80;  ///< of the terminal; the bar never wraps
  std::chrono::nanoseconds line_interval = std::chrono::seconds(10);  ///< of style lines
  std::filesystem::path file;  ///< progress.json; empty: none
};

/// What file descriptor `fd` and the environment ask for: a bar on a terminal that is not "dumb",
/// as wide as it is, in colour unless NO_COLOR is set; lines everywhere else.
ProgressOptions progress_options_of(int fd);

/// Time since any fixed moment.
using MonotonicClock = std::function<std::chrono::nanoseconds()>;
std::chrono::nanoseconds steady_time();

class Progress {
 public:
  /// Tokens per second of a phase are over the time in which it ran, within this much of the past;
  /// in the end, within this start of the run: then they are those of the run's last line.
  static constexpr std::chrono::nanoseconds rate_window = std::chrono::seconds(30);
  /// The first line of style lines comes this early, or after line_interval if that is less.
  static constexpr std::chrono::nanoseconds first_line = std::chrono::seconds(1);
  static constexpr std::chrono::nanoseconds bar_interval = std::chrono::milliseconds(200);
  static constexpr std::chrono::nanoseconds file_interval = std::chrono::seconds(1);

  /// `start` is where this start of the run begins, so that resumed work counts as done but not as
  /// speed. `out` must outlive this object.
  Progress(const ProgressTotals& totals, const ProgressState& start, ProgressOptions options,
           std::ostream& out, MonotonicClock clock = steady_time);

  /// Cheap unless something is due to be drawn or written. Throws SystemError if progress.json
  /// cannot be written.
  void update(const ProgressState& state);

  /// Draws and writes the last state, whatever is due, and leaves the terminal on a new line.
  void finish(const ProgressState& state);

  /// Seconds that the rest takes at the mean speed of this start of the run, but never less than
  /// until the last arrival; absent before any work is done.
  std::optional<double> remaining_s() const;
  /// Absent where the phase did not run.
  std::optional<double> prefill_tokens_per_s() const;
  std::optional<double> decode_tokens_per_s() const;
  /// This start so far.
  StartRecord own_start() const;

 private:
  struct Sample {
    std::chrono::nanoseconds time;
    ProgressState state;
  };

  void take_sample(const ProgressState& state);
  int64_t prompt_tokens_read() const;
  std::string summary() const;
  void draw_bar();
  void write_line();
  void write_file(bool finished) const;

  ProgressTotals totals_;
  ProgressOptions options_;
  std::ostream& out_;
  MonotonicClock clock_;
  Sample start_, now_;
  std::deque<Sample> window_;  ///< oldest first; the first one is as old as rate_window, or older
  std::optional<std::chrono::nanoseconds> last_output_, last_file_;
};

}  // namespace pecia::report
