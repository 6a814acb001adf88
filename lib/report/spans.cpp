#include "lib/report/spans.hpp"

namespace pecia::report {

Recorder::Recorder(bool keep_spans, int64_t capacity)
    : keep_spans_(keep_spans), capacity_(capacity) {}

int64_t Recorder::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              start_)
      .count();
}

void Recorder::add(const Span& span) {
  last_ = span;
  const double seconds = 1e-9 * static_cast<double>(span.end_ns - span.begin_ns);
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
  if (!keep_spans_) return;
  if (static_cast<int64_t>(spans_.size()) < capacity_)
    spans_.push_back(span);
  else
    ++dropped_;
}

}  // namespace pecia::report
