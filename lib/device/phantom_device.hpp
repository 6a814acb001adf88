// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A device whose memory has addresses and sizes and nothing else: what a machine that is not here
/// would need is known exactly, and who touches it is found out at once.

#include <map>

#include "lib/device/device.hpp"

namespace pecia::device {

class PhantomDevice : public Device {
 public:
  /// Of a machine with `memory_bytes` for this rank; `info` as the machine's own would say.
  PhantomDevice(DeviceInfo info, int64_t memory_bytes);
  ~PhantomDevice() override;

  const DeviceInfo& info() const override { return info_; }
  MemoryInfo memory() const override { return {memory_bytes_ - used_bytes_, memory_bytes_}; }

  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;

  /// Between two places of the host's memory these are what they are elsewhere. Whatever else is
  /// copied or zeroed stays as it is.
  void copy(void* to, const void* from, int64_t bytes, Stream& stream) override;
  void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                 int64_t row_bytes, int64_t rows, Stream& stream) override;
  void zero(void* data, int64_t bytes, Stream& stream) override;

  /// Memory::device is addresses that no page belongs to: a read or a write ends the program with
  /// SIGSEGV. SystemError beyond the machine's memory. The other kinds are the host's own.
  std::byte* allocate(Memory memory, int64_t bytes) override;
  void free(Memory memory, std::byte* data) noexcept override;

  /// Device memory in use now, and the most that was at any time.
  int64_t used_bytes() const { return used_bytes_; }
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  bool is_phantom(const void* data) const;

  DeviceInfo info_;
  int64_t memory_bytes_, used_bytes_ = 0, peak_bytes_ = 0;
  std::map<const std::byte*, int64_t> blocks_;  ///< bytes by their beginning
};

}  // namespace pecia::device
