#pragma once
/// Spans: what a rank did when. Opening and closing one costs tens of nanoseconds; a report, the
/// trace and a request's phase times are all read from the same spans.

#include <chrono>
#include <cstdint>
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
class Recorder {
 public:
  explicit Recorder(TraceDetail detail = TraceDetail::off, int64_t capacity = 4'000'000);

  int64_t now_ns() const;
  void add(const Span& span);
  /// Of the pass under way, now.
  void note(const char* name, std::vector<std::pair<const char*, double>> values,
            const char* outcome);
  const Totals& totals() const { return totals_; }
  /// In the order of their first span's end.
  const std::vector<Stage>& stages() const { return stages_; }
  /// In the order of their ends: a phase comes after what it holds.
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
  void opened(const Span& span);
  void closed(const Span& span);
  Stage& stage_of(const Span& span);

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
};

/// Opens a span now and closes it at the end of the scope.
class ScopedSpan {
 public:
  ScopedSpan(Recorder& recorder, const char* name, Kind kind, int64_t bytes = 0, double flops = 0)
      : recorder_(recorder),
        span_{name, kind, recorder.layer(), recorder.pass(), recorder.now_ns(), 0, bytes, flops} {
    recorder_.opened(span_);
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;
  ~ScopedSpan() {
    span_.end_ns = recorder_.now_ns();
    recorder_.closed(span_);
    recorder_.add(span_);
  }

 private:
  Recorder& recorder_;
  Span span_;
};

}  // namespace pecia::report
