// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Spans record what a rank did and when. Opening and closing one costs tens of nanoseconds. A
/// report, the trace and a request's phase times are all read from the same spans.
///
/// A profiler shows open spans as ranges (profiler_ranges.hpp).
///
/// Spans use the host's clock. On a GPU that would measure only the time to enqueue work. So there
/// a recorder gets a SpanClock, and spans of ops and transfers use the device's clock. Such a span
/// lasts from when the stream reaches its work until the work is done; its times are read later.
///
/// By estimate a pair of marks takes 2 µs of the host and some hundred ns of the GPU, and reading
/// it takes 3 µs. That is as long as launching an op, and half as long as starting a transfer. So
/// each op has its own pair only in a full trace (13 ops and 80 layers: 5 ms a pass). Otherwise a
/// pass has one pair for all ops of its layers (ScopedGroup), and one for each wait for a transfer.
/// A transfer that is launched with the ops around it has none (comm::Transfer::is_held_back).

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/core/activity.hpp"

namespace pecia::report {

enum class Kind : uint8_t {
  compute,  ///< an op
  comm,     ///< waiting for a transfer or a collective: exposed communication
  idle,     ///< waiting for work
  phase     ///< groups other spans (a pass, a layer); adds no time to the totals
};

/// `name` must be a string literal (or live as long as the recorder).
struct Span {
  const char* name;
  Kind kind;
  int32_t layer;             ///< −1: none
  int64_t pass;              ///< sequence number of the pass
  int64_t begin_ns, end_ns;  ///< since the recorder was made
  int64_t bytes;             ///< bytes moved
  double flops;
};

/// The clock of a device's stream. It tells when the stream reaches points in its work, on the time
/// axis of Recorder::now_ns(). One thread uses it. Only `synchronize` makes the host wait.
class SpanClock {
 public:
  using Pair = int64_t;
  struct Times {
    int64_t begin_ns, end_ns;
  };

  virtual ~SpanClock() = default;

  /// Starts a pair of marks; the first one comes after the work that the stream has been given so
  /// far.
  virtual Pair begin() = 0;
  /// Sets the second mark. An error is thrown by the next call of `begin` or `times`.
  virtual void end(Pair pair) noexcept = 0;
  /// The times of a pair; absent while the stream has not passed both marks. A pair is forgotten
  /// once its times are returned. Ask for pairs in the order of their ends.
  virtual std::optional<Times> times(Pair pair) = 0;
  /// Waits until the stream has passed all marks.
  virtual void synchronize() = 0;
};

/// A decision made during a pass, with the numbers it was based on. Names are string literals.
struct Note {
  const char* name;
  int64_t pass;
  int64_t at_ns;  ///< since the recorder was made
  std::vector<std::pair<const char*, double>> values;
  const char* outcome;
};

/// Numbers that hold from a time on, which trace viewers draw as curves. Names are string literals.
struct Curves {
  const char* name;
  int64_t at_ns;  ///< since the recorder was made
  std::vector<std::pair<const char*, double>> values;
};

/// Seconds by kind since the recorder was made.
struct Totals {
  double compute_s = 0, comm_s = 0, idle_s = 0;
  double flops = 0;
  int64_t bytes = 0;
};

/// Sum of all spans with one name: a phase, an op, a transfer.
struct Stage {
  const char* name;
  Kind kind;
  int64_t count = 0;
  double seconds = 0, flops = 0;
  int64_t bytes = 0;
};

/// Which spans are kept for the trace: none, only phases, or all (the job's report.trace).
enum class TraceDetail : uint8_t { off, summary, full };

/// Records one rank's spans; one thread uses it. Totals and stages are always kept. Spans are kept
/// as `detail` says, and notes and curves unless `detail` is off. At most `capacity` of each are
/// kept; further ones are dropped and counted.
///
/// With a SpanClock, spans of kind compute and comm add their flops and bytes when they are closed.
/// Their seconds are added, and they are kept for the trace, when take_times finds their work done.
/// While a host waits and its GPU computes, both idle and compute time count, so the sums of the
/// kinds may exceed the elapsed time.
class Recorder {
 public:
  explicit Recorder(TraceDetail detail = TraceDetail::off, int64_t capacity = 4'000'000);

  int64_t now_ns() const;
  void add(const Span& span);
  /// Counts a transfer among a group's ops whose wait cannot be told from them: its seconds are
  /// those of the group (ScopedGroup), of kind compute.
  void count_in_group(const char* name, Kind kind, int64_t bytes);

  /// Sets the clock; call it before the first span.
  void time_by(std::unique_ptr<SpanClock> clock) { clock_ = std::move(clock); }
  /// Adds up the times of spans whose work is done; never waits.
  void take_times();
  /// Waits for all pending times and adds them. Without this call, times at the end of a run are
  /// lost.
  void wait_for_times();
  /// Whether each op is kept for the trace.
  bool keeps_ops() const { return detail_ == TraceDetail::full; }

  /// Records a decision in the current pass, at the current time.
  void note(const char* name, std::vector<std::pair<const char*, double>> values,
            const char* outcome);
  /// Records numbers that hold from now on.
  void draw(const char* name, std::vector<std::pair<const char*, double>> values);
  const Totals& totals() const { return totals_; }
  /// Stages in the order in which their first spans ended.
  const std::vector<Stage>& stages() const { return stages_; }
  /// Spans in the order in which they ended, so a phase follows the spans inside it. Spans with
  /// device times stand where take_times added them.
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<Note>& notes() const { return notes_; }
  const std::vector<Curves>& curves() const { return curves_; }
  /// Number of spans, notes and curve points that were dropped.
  int64_t dropped() const { return dropped_; }
  const Span& last() const { return last_; }

  /// Shows spans that are opened from now on in `activity`: the outermost phase, and the last of
  /// all other spans. `activity` outlives the recorder. Span names must then be string literals.
  void publish_to(Activity& activity) { activity_ = &activity; }

  /// Sets the pass and the layer of spans that are opened from now on.
  void set_pass(int64_t pass) { pass_ = pass; }
  void set_layer(int32_t layer) { layer_ = layer; }
  /// Shows as which instance the rank works in which of the pass's teams; −1: there is only one.
  void set_team(int32_t team, int32_t instance) const;
  int64_t pass() const { return pass_; }
  int32_t layer() const { return layer_; }

 private:
  friend class ScopedSpan;
  friend class ScopedGroup;

  struct Pending {
    Span span;
    SpanClock::Pair pair;
    bool in_group;
  };

  std::optional<SpanClock::Pair> opened(const Span& span);
  void closed(const Span& span, std::optional<SpanClock::Pair> pair);
  Stage& count(const Span& span);
  void add_time(const Span& span, double seconds, Stage& stage);
  Stage& stage_of(const char* name, Kind kind);

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  TraceDetail detail_;
  int64_t capacity_;
  Totals totals_;
  std::vector<Stage> stages_;
  std::vector<Span> spans_;
  std::vector<Note> notes_;
  std::vector<Curves> curves_;
  int64_t dropped_ = 0;
  Span last_{};
  int64_t pass_ = -1;
  int32_t layer_ = -1;
  int open_phases_ = 0;
  Activity* activity_ = nullptr;
  std::unique_ptr<SpanClock> clock_;  ///< null: spans use the host's clock
  std::deque<Pending> pending_;       ///< in the order in which they ended
  bool in_group_ = false;
  double waits_of_group_s_ = 0;  ///< waits inside the group whose time is read next
};

/// Opens a span now and closes it at the end of the scope.
class ScopedSpan {
 public:
  ScopedSpan(Recorder& recorder, const char* name, Kind kind, int64_t bytes = 0, double flops = 0)
      : recorder_(recorder),
        span_{name, kind, recorder.layer(), recorder.pass(), recorder.now_ns(), 0, bytes, flops},
        pair_(recorder_.opened(span_)) {}
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;
  ~ScopedSpan() {
    span_.end_ns = recorder_.now_ns();
    recorder_.closed(span_, pair_);
  }

 private:
  Recorder& recorder_;
  Span span_;
  std::optional<SpanClock::Pair> pair_;
};

/// While it is open, ops of a recorder with a SpanClock count without times of their own, and the
/// trace leaves them out. The group is a span of kind compute. Its seconds are the time of the ops
/// together, without the waits for transfers among them. Groups do not nest. A recorder without
/// SpanClock ignores groups.
class ScopedGroup {
 public:
  ScopedGroup(Recorder& recorder, const char* name) : recorder_(recorder) {
    if (recorder.clock_ == nullptr) return;
    span_.emplace(recorder, name, Kind::compute);
    recorder.in_group_ = true;
  }
  ScopedGroup(const ScopedGroup&) = delete;
  ScopedGroup& operator=(const ScopedGroup&) = delete;
  ~ScopedGroup() { recorder_.in_group_ = false; }

 private:
  Recorder& recorder_;
  std::optional<ScopedSpan> span_;  ///< closes with the group
};

}  // namespace pecia::report
