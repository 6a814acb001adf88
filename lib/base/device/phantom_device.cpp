// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/phantom_device.hpp"

#include <algorithm>
#include <cstring>

#include "lib/base/core/error.hpp"
#include "lib/base/device/host_memory.hpp"

namespace pecia::device {
namespace {

/// A phantom never has work under way, so every mark is reached.
class PhantomEvent : public Event {
 public:
  void record(Stream&) override {}
  void make_wait(Stream&) override {}
  bool done() const override { return true; }
  void synchronize() override {}
  double seconds_since(const Event&) const override { return 0; }
};

}  // namespace

PhantomDevice::PhantomDevice(DeviceInfo info, int64_t memory_bytes)
    : info_(std::move(info)), memory_bytes_(memory_bytes) {
  PECIA_CHECK(memory_bytes >= 0, "a device of {} bytes", memory_bytes);
}

std::unique_ptr<Stream> PhantomDevice::make_stream() {
  return std::make_unique<Stream>();
}
std::unique_ptr<Event> PhantomDevice::make_event() {
  return std::make_unique<PhantomEvent>();
}

bool PhantomDevice::is_phantom(const void* data) const {
  const auto* const byte = static_cast<const std::byte*>(data);
  const auto after = blocks_.upper_bound(byte);
  if (after == blocks_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return byte < begin + bytes;
}

void PhantomDevice::copy(void* to, const void* from, int64_t bytes, Stream& stream) {
  copy_rows(to, bytes, from, bytes, bytes, 1, stream);
}

void PhantomDevice::copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                              int64_t row_bytes, int64_t rows, Stream&) {
  if (row_bytes * rows == 0) return;
  if (on_copy_) on_copy_(row_bytes * rows);
  if (is_phantom(to) || is_phantom(from)) return;
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(static_cast<std::byte*>(to) + row * to_pitch,
                static_cast<const std::byte*>(from) + row * from_pitch, row_bytes);
}

void PhantomDevice::zero(void* data, int64_t bytes, Stream&) {
  if (bytes > 0 && !is_phantom(data)) std::memset(data, 0, bytes);
}

std::byte* PhantomDevice::allocate(Memory memory, int64_t bytes) {
  if (memory != Memory::device) return allocate_host(bytes);
  if (bytes > memory_bytes_ - used_bytes_)
    fail<SystemError>("{}: {} bytes of memory wanted, {} of {} are free", info_.name, bytes,
                      memory_bytes_ - used_bytes_, memory_bytes_);
  std::byte* const data = addresses_.take(bytes);
  blocks_[data] = bytes;
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return data;
}

void PhantomDevice::free(Memory memory, std::byte* data) noexcept {
  if (memory != Memory::device) return free_host(data);
  const auto block = blocks_.find(data);
  if (block == blocks_.end()) return;
  addresses_.give(data, block->second);
  used_bytes_ -= block->second;
  blocks_.erase(block);
}

}  // namespace pecia::device
