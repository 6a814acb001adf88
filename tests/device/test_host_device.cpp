// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "lib/base/device/buffer.hpp"

namespace pecia::device {
namespace {

class HostDevice : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_host_device(2);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
};

TEST_F(HostDevice, SaysWhatItIs) {
  EXPECT_EQ(device_->info().compute_capability, 0);
  EXPECT_EQ(stream_->num_threads(), 2);
  const MemoryInfo memory = device_->memory();
  EXPECT_GT(memory.free_bytes, 0);
  EXPECT_GE(memory.total_bytes, memory.free_bytes);
  EXPECT_THROW(make_host_device(0), InvalidArgument);
}

TEST_F(HostDevice, CopiesAndZeroesBuffersOfEveryKind) {
  for (const Memory memory : {Memory::host, Memory::pinned, Memory::device}) {
    Buffer buffer(*device_, memory, 100);
    EXPECT_EQ(buffer.memory(), memory);
    std::vector<char> bytes(100), back(100, 'x');
    std::iota(bytes.begin(), bytes.end(), 0);
    device_->copy(buffer.data(), bytes.data(), 100, *stream_);
    device_->zero(buffer.as<char>() + 90, 10, *stream_);
    device_->copy(back.data(), buffer.data(), 100, *stream_);
    stream_->synchronize();
    std::fill(bytes.begin() + 90, bytes.end(), 0);
    EXPECT_EQ(back, bytes);
  }
}

TEST_F(HostDevice, CopiesRowsAtTheirPitches) {
  const std::vector<char> from = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<char> to(8, 0);
  device_->copy_rows(to.data(), 3, from.data(), 4, 2, 2, *stream_);
  EXPECT_EQ(to, (std::vector<char>{1, 2, 0, 5, 6, 0, 0, 0}));
  device_->copy_rows(nullptr, 3, nullptr, 4, 2, 0, *stream_);
}

TEST_F(HostDevice, ItsEventsAreReachedWhenMade) {
  const auto first = device_->make_event(), second = device_->make_event();
  EXPECT_TRUE(first->done());
  first->record(*stream_);
  second->record(*stream_);
  second->make_wait(*stream_);
  second->synchronize();
  EXPECT_TRUE(second->done());
  EXPECT_GE(second->seconds_since(*first), 0.0);
  EXPECT_LE(first->seconds_since(*second), 0.0);
}

/// Counts what is allocated, and of which kind.
class RecordingDevice : public Device {
 public:
  std::vector<std::pair<Memory, int64_t>> allocated;
  int freed = 0;

  const DeviceInfo& info() const override { return host_->info(); }
  MemoryInfo memory() const override { return host_->memory(); }
  std::unique_ptr<Stream> make_stream() override { return host_->make_stream(); }
  std::unique_ptr<Event> make_event() override { return host_->make_event(); }
  void copy(void* to, const void* from, int64_t bytes, Stream& stream) override {
    host_->copy(to, from, bytes, stream);
  }
  void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                 int64_t row_bytes, int64_t rows, Stream& stream) override {
    host_->copy_rows(to, to_pitch, from, from_pitch, row_bytes, rows, stream);
  }
  void zero(void* data, int64_t bytes, Stream& stream) override {
    host_->zero(data, bytes, stream);
  }
  std::byte* allocate(Memory memory, int64_t bytes) override {
    allocated.emplace_back(memory, bytes);
    return host_->allocate(memory, bytes);
  }
  void free(Memory memory, std::byte* data) noexcept override {
    ++freed;
    host_->free(memory, data);
  }

 private:
  std::unique_ptr<Device> host_ = make_host_device(1);
};

TEST(BufferOfADevice, GrowsWhereItWasMadeAndNeverHoldsTwoBlocks) {
  RecordingDevice device;
  {
    Buffer buffer(device, Memory::pinned);
    EXPECT_EQ(buffer.memory(), Memory::pinned);
    EXPECT_TRUE(device.allocated.empty());
    buffer.reserve(10);
    buffer.reserve(5);
    EXPECT_EQ(buffer.tensor(DType::fp32, {5}).elements(), 5);
    EXPECT_EQ(device.freed, 1);
    const Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.memory(), Memory::pinned);
  }
  EXPECT_EQ(device.allocated,
            (std::vector<std::pair<Memory, int64_t>>{{Memory::pinned, 10}, {Memory::pinned, 20}}));
  EXPECT_EQ(device.freed, 2);
}

}  // namespace
}  // namespace pecia::device
