// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Measures spans by a device's time, with pairs of events on one stream.

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "lib/base/device/device.hpp"
#include "lib/base/report/spans.hpp"

namespace pecia::attention {

class DeviceClock : public report::SpanClock {
 public:
  /// `device` and `stream` must outlive this object. The host waits for the stream here. `now_ns`
  /// gives the host's time (Recorder::now_ns).
  DeviceClock(device::Device& device, device::Stream& stream, std::function<int64_t()> now_ns);

  Pair begin() override;
  void end(Pair pair) noexcept override;
  std::optional<Times> times(Pair pair) override;
  void synchronize() override { stream_.synchronize(); }

 private:
  struct Marks {
    std::unique_ptr<device::Event> begin, end;
    int64_t enqueued_ns = 0;
  };

  void throw_failure();

  device::Device& device_;
  device::Stream& stream_;
  std::function<int64_t()> now_ns_;
  std::vector<Marks> pairs_;
  std::vector<Pair> free_;
  std::unique_ptr<device::Event> base_;  ///< an event that has passed, at base_ns_
  int64_t base_ns_;
  std::exception_ptr failure_;
};

}  // namespace pecia::attention
