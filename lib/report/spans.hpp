// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Spans: what a rank did when. Opening and closing one costs tens of nanoseconds; a report, the
/// trace and a request's phase times are all read from the same spans.
///
/// Spans take the host's time. On a GPU that would be the time of enqueueing, so a recorder is
/// given a SpanClock there, and spans of ops and transfers take the device's: from when its stream
/// gets to what they enqueued until it has done it, told when it is done. What that may cost
/// follows from what is asked. By estimate a pair of marks takes 2 µs of the host and some hundred
/// ns of the GPU, and reading it 3 µs: as long as launching an op takes, half as long as starting a
/// transfer. So each op has a pair only in a full trace (13 ops and 80 layers: 5 ms a pass); else a
/// pass has one for all ops of its layers (ScopedGroup), and one for each wait for a transfer.

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/core/activity.hpp"

namespace pecia::report {

enum class Kind : uint8_t {
  compute,  ///< an op
  comm,     ///< waiting for a transfer or a collective: exposed communication
  idle,     ///< waiting for work
  phase     ///< groups others (a pass, a layer); not counted as time of its own
};

/// `name` must be a string literal (or live as long as the recorder).
struct Span {
  const char* name;
  Kind kind;
  int32_t layer;             ///< −1: none
  int64_t pass;              ///< sequence number of the pass
  int64_t begin_ns, end_ns;  ///< since the recorder was made
  int64_t bytes;             ///< moved
  double flops;
};

/// The clock of a device's stream: when the stream gets to points in its work, on the time axis of
/// Recorder::now_ns(). One thread; the host waits in `synchronize` alone.
class SpanClock {
 public:
  using Pair = int64_t;
  struct Times {
    int64_t begin_ns, end_ns;
  };

  virtual ~SpanClock() = default;

  /// A pair of marks, whose first one is after what the stream has been given so far.
  virtual Pair begin() = 0;
  /// Sets the second one. What it fails with, the next call of begin or times throws.
  virtual void end(Pair pair) noexcept = 0;
  /// Absent while the stream has not passed both; else the pair is forgotten. Pairs are asked about
  /// in the order of their ends.
  virtual std::optional<Times> times(Pair pair) = 0;
  /// Until the stream has passed all marks.
  virtual void synchronize() = 0;
};

/// A decision made during a pass, with the numbers it was made of. Names are string literals.
struct Note {
  const char* name;
  int64_t pass;
  int64_t at_ns;  ///< since the recorder was made
  std::vector<std::pair<const char*, double>> values;
  const char* outcome;
};

/// Seconds by kind since the recorder was made.
struct Totals {
  double compute_s = 0, comm_s = 0, idle_s = 0;
  double flops = 0;
  int64_t bytes = 0;
};

/// All spans of one name together: a phase, an op, a transfer.
struct Stage {
  const char* name;
  Kind kind;
  int64_t count = 0;
  double seconds = 0, flops = 0;
  int64_t bytes = 0;
};

/// Which spans are kept for the trace: none, those of kind phase, or all (the job's report.trace).
enum class TraceDetail : uint8_t { off, summary, full };

/// One rank's spans. Totals and stages are always kept; the spans themselves as `detail` says, at
/// most `capacity` of them, then dropped and counted; notes likewise, unless `detail` is off. One
/// thread.
///
/// With a SpanClock, spans of kind compute and comm count when they are closed, with their flops
/// and bytes; their seconds are added, and they are kept for the trace, when take_times finds them
/// done. A host that waits while its GPU computes is idle and computes at once: the sums of the
/// kinds may then exceed the time that passed.
class Recorder {
 public:
  explicit Recorder(TraceDetail detail = TraceDetail::off, int64_t capacity = 4'000'000);

  int64_t now_ns() const;
  void add(const Span& span);

  /// Before the first span.
  void time_by(std::unique_ptr<SpanClock> clock) { clock_ = std::move(clock); }
  /// Adds up the times of spans whose work is done; never waits.
  void take_times();
  /// Waits for the others. Without it, those of the end of a run are lost.
  void wait_for_times();
  /// Whether each op is kept for the trace.
  bool keeps_ops() const { return detail_ == TraceDetail::full; }

  /// Of the pass under way, now.
  void note(const char* name, std::vector<std::pair<const char*, double>> values,
            const char* outcome);
  const Totals& totals() const { return totals_; }
  /// In the order of their first span's end.
  const std::vector<Stage>& stages() const { return stages_; }
  /// In the order of their ends: a phase comes after what it holds. Where a device's times are
  /// taken later, in the order in which they are.
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<Note>& notes() const { return notes_; }
  /// Spans and notes.
  int64_t dropped() const { return dropped_; }
  const Span& last() const { return last_; }

  /// Shows there what is opened from now on: an outermost phase, and the last of all other spans.
  /// `activity` outlives the recorder; names of spans are then literals.
  void publish_to(Activity& activity) { activity_ = &activity; }

  /// What spans opened from now on belong to.
  void set_pass(int64_t pass) { pass_ = pass; }
  void set_layer(int32_t layer) { layer_ = layer; }
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
  int64_t dropped_ = 0;
  Span last_{};
  int64_t pass_ = -1;
  int32_t layer_ = -1;
  int open_phases_ = 0;
  Activity* activity_ = nullptr;
  std::unique_ptr<SpanClock> clock_;  ///< null: the host's
  std::deque<Pending> pending_;       ///< in the order of their ends
  bool in_group_ = false;
  double waits_of_group_s_ = 0;  ///< of the group whose time is taken next
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
/// trace leaves them out. They have its time together, less that of the waits for transfers among
/// them: a span of kind compute. Not in another group; nothing where the clock is the host's.
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
  std::optional<ScopedSpan> span_;  ///< closed when the group is
};

}  // namespace pecia::report
