// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/device_clock.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pecia::attention {
namespace {

int64_t ns_between(const device::Event& earlier, const device::Event& later) {
  return std::llround(1e9 * later.seconds_since(earlier));
}

}  // namespace

DeviceClock::DeviceClock(device::Device& device, device::Stream& stream,
                         std::function<int64_t()> now_ns)
    : device_(device), stream_(stream), now_ns_(std::move(now_ns)), base_(device.make_event()) {
  base_->record(stream_);
  base_->synchronize();
  base_ns_ = now_ns_();
}

void DeviceClock::throw_failure() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

report::SpanClock::Pair DeviceClock::begin() {
  throw_failure();
  if (free_.empty()) {
    free_.push_back(static_cast<Pair>(pairs_.size()));
    pairs_.push_back({device_.make_event(), device_.make_event()});
  }
  const Pair pair = free_.back();
  Marks& marks = pairs_[pair];
  marks.enqueued_ns = now_ns_();
  marks.begin->record(stream_);
  free_.pop_back();
  return pair;
}

void DeviceClock::end(Pair pair) noexcept {
  try {
    pairs_[pair].end->record(stream_);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

std::optional<report::SpanClock::Times> DeviceClock::times(Pair pair) {
  throw_failure();
  Marks& marks = pairs_[pair];
  if (!marks.end->done()) return {};
  const int64_t taken_ns = ns_between(*marks.begin, *marks.end);
  // The two clocks run apart, and CUDA tells a long time in coarse steps. But no work begins before
  // it is enqueued, or ends after it was seen done: that holds them together.
  int64_t end_ns = base_ns_ + ns_between(*base_, *marks.end);
  end_ns = std::min(std::max(end_ns, marks.enqueued_ns + taken_ns), now_ns_());
  // Times are told from the mark before, so that they stay short.
  std::swap(base_, marks.end);
  base_ns_ = end_ns;
  free_.push_back(pair);
  return Times{end_ns - taken_ns, end_ns};
}

}  // namespace pecia::attention
