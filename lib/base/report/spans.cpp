// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/spans.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/base/report/profiler_ranges.hpp"

namespace pecia::report {
namespace {

double seconds_of(const Span& span) {
  return 1e-9 * static_cast<double>(span.end_ns - span.begin_ns);
}

}  // namespace

Recorder::Recorder(TraceDetail detail, int64_t capacity) : detail_(detail), capacity_(capacity) {}

int64_t Recorder::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              start_)
      .count();
}

Stage& Recorder::stage_of(const char* name, Kind kind) {
  // There are at most two dozen names, and comparing pointers first takes only a few nanoseconds.
  // The same literal may have two addresses, hence the second search.
  auto found = std::ranges::find_if(
      stages_, [&](const Stage& stage) { return stage.name == name && stage.kind == kind; });
  if (found == stages_.end())
    found = std::ranges::find_if(stages_, [&](const Stage& stage) {
      return stage.kind == kind && std::strcmp(stage.name, name) == 0;
    });
  return found != stages_.end() ? *found : stages_.emplace_back(Stage{name, kind});
}

void Recorder::set_team(int32_t team, int32_t instance) const {
  if (activity_ == nullptr) return;
  activity_->team = team;
  activity_->instance = instance;
}

std::optional<SpanClock::Pair> Recorder::opened(const Span& span) {
  begin_profiler_range(span.name);
  const bool outermost = span.kind == Kind::phase && open_phases_++ == 0;
  if (activity_ != nullptr) {
    (outermost ? activity_->phase : activity_->span) = span.name;
    activity_->layer = span.layer;
    activity_->pass = span.pass;
  }
  const bool alone = span.kind == Kind::comm || (span.kind == Kind::compute && !in_group_);
  if (clock_ == nullptr || !alone) return {};
  return clock_->begin();
}

void Recorder::closed(const Span& span, std::optional<SpanClock::Pair> pair) {
  end_profiler_range();
  if (span.kind == Kind::phase) --open_phases_;
  if (pair) {
    clock_->end(*pair);
    count(span);
    pending_.push_back({span, *pair, in_group_});
  } else if (in_group_ && span.kind == Kind::compute) {
    count(span);
  } else {
    add(span);
  }
}

void Recorder::take_times() {
  while (!pending_.empty()) {
    auto& [span, pair, in_group] = pending_.front();
    const auto times = clock_->times(pair);
    if (!times) return;
    span.begin_ns = times->begin_ns;
    span.end_ns = times->end_ns;
    double seconds = seconds_of(span);
    if (in_group)
      waits_of_group_s_ += seconds;
    else if (span.kind == Kind::compute)  // the first op to end after the waits is the group
      seconds -= std::exchange(waits_of_group_s_, 0);
    add_time(span, seconds, stage_of(span.name, span.kind));
    pending_.pop_front();
  }
}

void Recorder::wait_for_times() {
  if (clock_ == nullptr) return;
  clock_->synchronize();
  take_times();
}

void Recorder::add(const Span& span) {
  add_time(span, seconds_of(span), count(span));
}

void Recorder::count_in_group(const char* name, Kind kind, int64_t bytes) {
  const int64_t now = now_ns();
  count({name, kind, layer_, pass_, now, now, bytes, 0});
}

Stage& Recorder::count(const Span& span) {
  last_ = span;
  Stage& stage = stage_of(span.name, span.kind);
  ++stage.count;
  stage.flops += span.flops;
  stage.bytes += span.bytes;
  totals_.flops += span.flops;
  totals_.bytes += span.bytes;
  return stage;
}

void Recorder::add_time(const Span& span, double seconds, Stage& stage) {
  stage.seconds += seconds;
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

void Recorder::draw(const char* name, std::vector<std::pair<const char*, double>> values) {
  if (detail_ == TraceDetail::off) return;
  if (static_cast<int64_t>(curves_.size()) < capacity_)
    curves_.push_back({name, now_ns(), std::move(values)});
  else
    ++dropped_;
}

}  // namespace pecia::report
