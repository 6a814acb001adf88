// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A device whose memory has addresses and sizes but no contents. It shows exactly how much memory
/// a run on an absent machine would need, and any access to the memory fails at once.

#include <functional>
#include <map>

#include "lib/base/device/device.hpp"
#include "lib/base/device/phantom_addresses.hpp"

namespace pecia::device {

class PhantomDevice : public Device {
 public:
  /// A device with `memory_bytes` for this rank. `info` is what the real machine's device would
  /// report.
  PhantomDevice(DeviceInfo info, int64_t memory_bytes);

  const DeviceInfo& info() const override { return info_; }
  MemoryInfo memory() const override { return {memory_bytes_ - used_bytes_, memory_bytes_}; }

  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;

  /// `tell` is called with the bytes of every copy from now on.
  void on_copy(std::function<void(int64_t bytes)> tell) { on_copy_ = std::move(tell); }

  /// Copies between two places in host memory and zeroing host memory work as on other devices.
  /// Every other copy or zeroing changes nothing.
  void copy(void* to, const void* from, int64_t bytes, Stream& stream) override;
  void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                 int64_t row_bytes, int64_t rows, Stream& stream) override;
  void zero(void* data, int64_t bytes, Stream& stream) override;

  /// Memory::device returns addresses that no page belongs to: a read or a write ends the program
  /// with SIGSEGV. Throws SystemError beyond the machine's memory. The other kinds are real host
  /// memory.
  std::byte* allocate(Memory memory, int64_t bytes) override;
  void free(Memory memory, std::byte* data) noexcept override;

  /// Device memory in use now, and the peak since the device was made.
  int64_t used_bytes() const { return used_bytes_; }
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  bool is_phantom(const void* data) const;

  DeviceInfo info_;
  int64_t memory_bytes_, used_bytes_ = 0, peak_bytes_ = 0;
  std::function<void(int64_t bytes)> on_copy_;
  PhantomAddresses addresses_;
  std::map<const std::byte*, int64_t> blocks_;  ///< block size in bytes, by address
};

}  // namespace pecia::device
