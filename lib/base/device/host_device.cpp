// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "lib/base/core/error.hpp"
#include "lib/base/device/device.hpp"
#include "lib/base/device/host_memory.hpp"

namespace pecia::device {
namespace {

/// Work is done when the call returns, so every mark is reached as soon as it is recorded.
class HostEvent : public Event {
 public:
  void record(Stream&) override { mark_ = Clock::now(); }
  void make_wait(Stream&) override {}
  bool done() const override { return true; }
  void synchronize() override {}
  double seconds_since(const Event& earlier) const override {
    const auto* const other = dynamic_cast<const HostEvent*>(&earlier);
    PECIA_CHECK(other != nullptr, "an event of another device");
    return std::chrono::duration<double>(mark_ - other->mark_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point mark_ = Clock::now();
};

class HostDevice : public Device {
 public:
  HostDevice(int num_threads, std::vector<int> cpus)
      : num_threads_(num_threads), cpus_(std::move(cpus)) {}

  const DeviceInfo& info() const override { return info_; }
  MemoryInfo memory() const override {
    const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
    return {::sysconf(_SC_AVPHYS_PAGES) * page_bytes, ::sysconf(_SC_PHYS_PAGES) * page_bytes};
  }

  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<Stream>(num_threads_, cpus_);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }

  void copy(void* to, const void* from, int64_t bytes, Stream&) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                 int64_t row_bytes, int64_t rows, Stream& stream) override {
    for (int64_t row = 0; row < rows; ++row)
      copy(static_cast<std::byte*>(to) + row * to_pitch,
           static_cast<const std::byte*>(from) + row * from_pitch, row_bytes, stream);
  }
  void zero(void* data, int64_t bytes, Stream&) override {
    if (bytes > 0) std::memset(data, 0, bytes);
  }

  std::byte* allocate(Memory, int64_t bytes) override { return allocate_host(bytes); }
  void free(Memory, std::byte* data) noexcept override { free_host(data); }

 private:
  int num_threads_;
  std::vector<int> cpus_;
  DeviceInfo info_{"host", 0, 1, "", ""};
};

}  // namespace

std::unique_ptr<Device> make_host_device(int num_threads, std::vector<int> cpus) {
  PECIA_CHECK(num_threads > 0, "a device of {} threads", num_threads);
  return std::make_unique<HostDevice>(num_threads, std::move(cpus));
}

}  // namespace pecia::device
