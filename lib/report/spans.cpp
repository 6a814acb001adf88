#include "lib/report/spans.hpp"

#include <algorithm>
#include <cstring>

namespace pecia::report {

Recorder::Recorder(TraceDetail detail, int64_t capacity) : detail_(detail), capacity_(capacity) {}

int64_t Recorder::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              start_)
      .count();
}

Stage& Recorder::stage_of(const Span& span) {
  // Two dozen names at most: comparing pointers first makes this a few nanoseconds. The same
  // literal may have two addresses, hence the second search.
  auto found = std::ranges::find_if(stages_, [&](const Stage& stage) {
    return stage.name == span.name && stage.kind == span.kind;
  });
  if (found == stages_.end())
    found = std::ranges::find_if(stages_, [&](const Stage& stage) {
      return stage.kind == span.kind && std::strcmp(stage.name, span.name) == 0;
    });
  return found != stages_.end() ? *found : stages_.emplace_back(Stage{span.name, span.kind});
}

void Recorder::opened(const Span& span) {
  const bool outermost = span.kind == Kind::phase && open_phases_++ == 0;
  if (activity_ == nullptr) return;
  (outermost ? activity_->phase : activity_->span) = span.name;
  activity_->layer = span.layer;
  activity_->pass = span.pass;
}

void Recorder::closed(const Span& span) {
  if (span.kind == Kind::phase) --open_phases_;
}

void Recorder::add(const Span& span) {
  last_ = span;
  const double seconds = 1e-9 * static_cast<double>(span.end_ns - span.begin_ns);
  Stage& stage = stage_of(span);
  ++stage.count;
  stage.seconds += seconds;
  stage.flops += span.flops;
  stage.bytes += span.bytes;
  switch (span.kind) {
    case Kind::compute:
      totals_.compute_s += seconds;
      break;
    case Kind::comm:
      totals_.comm_s += seconds;
      break;
    case Kind::idle:
      totals_.idle_s += seconds;
      break;
    case Kind::phase:
      break;
  }
  totals_.flops += span.flops;
  totals_.bytes += span.bytes;
  if (detail_ == TraceDetail::off) return;
  if (detail_ == TraceDetail::summary && span.kind != Kind::phase) return;
  if (static_cast<int64_t>(spans_.size()) < capacity_)
    spans_.push_back(span);
  else
    ++dropped_;
}

void Recorder::note(const char* name, std::vector<std::pair<const char*, double>> values,
                    const char* outcome) {
  if (detail_ == TraceDetail::off) return;
  if (static_cast<int64_t>(notes_.size()) < capacity_)
    notes_.push_back({name, pass_, now_ns(), std::move(values), outcome});
  else
    ++dropped_;
}

}  // namespace pecia::report
