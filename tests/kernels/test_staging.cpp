// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/cuda/shared/staging.hpp"

namespace pecia::test {
namespace {

using device::Event;
using device::Stream;
using kernels::cuda::Staging;

/// A device whose streams are `lag` marks behind: an event is reached only once that many later
/// ones are recorded, or someone waits for it. Says who waited.
class LaggingDevice : public device::Device {
 public:
  std::vector<int64_t> copied_bytes;
  int waits = 0;

  const device::DeviceInfo& info() const override { return host_->info(); }
  device::MemoryInfo memory() const override { return host_->memory(); }
  std::unique_ptr<Stream> make_stream() override { return host_->make_stream(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<Mark>(*this); }
  void copy(void* to, const void* from, int64_t bytes, Stream& stream) override {
    copied_bytes.push_back(bytes);
    host_->copy(to, from, bytes, stream);
  }
  void copy_rows(void*, int64_t, const void*, int64_t, int64_t, int64_t, Stream&) override {
    FAIL() << "staging copies no rows";
  }
  void zero(void*, int64_t, Stream&) override { FAIL() << "staging zeroes nothing"; }
  std::byte* allocate(device::Memory memory, int64_t bytes) override {
    return host_->allocate(memory, bytes);
  }
  void free(device::Memory memory, std::byte* data) noexcept override { host_->free(memory, data); }

 private:
  struct Mark : Event {
    explicit Mark(LaggingDevice& on) : device(on) {}
    void record(Stream&) override { pending = true; }
    void make_wait(Stream&) override {}
    bool done() const override { return !pending; }
    void synchronize() override {
      device.waits += pending;
      pending = false;
    }
    double seconds_since(const Event&) const override { return 0; }
    LaggingDevice& device;
    bool pending = false;
  };
  std::unique_ptr<device::Device> host_ = device::make_host_device(1);
};

class StagingTest : public testing::Test {
 protected:
  static constexpr int64_t segment_bytes = 4096;
  LaggingDevice device_;
  Staging staging_{device_, segment_bytes};
  Stream stream_;

  const int64_t* send(const std::vector<int64_t>& values) {
    const std::span<const int64_t> span = values;
    staging_.begin(Staging::bytes_of(span), stream_);
    const int64_t* const there = staging_.add(span);
    staging_.send(stream_);
    return there;
  }
};

TEST_F(StagingTest, SendsAnOpsArraysWithOneCopy) {
  const std::vector<int64_t> first = {1, 2, 3};
  const std::vector<int32_t> second = {4, 5};
  staging_.begin(Staging::bytes_of(std::span<const int64_t>(first)) + Staging::bytes_of<int32_t>(2),
                 stream_);
  const int64_t* const a = staging_.add(std::span<const int64_t>(first));
  const int32_t* const b = staging_.add(std::span<const int32_t>(second));
  EXPECT_EQ(staging_.add(std::span<const int32_t>()), nullptr);
  staging_.send(stream_);
  EXPECT_EQ(device_.copied_bytes, (std::vector<int64_t>{512}));
  EXPECT_EQ(std::vector<int64_t>(a, a + 3), first);
  EXPECT_EQ(std::vector<int32_t>(b, b + 2), second);
}

TEST_F(StagingTest, UsesASegmentAgainOnlyAfterTheStreamHasLeftIt) {
  // One array fills a segment: the fifth comes back to the first, whose mark must be reached.
  std::vector<const int64_t*> there;
  for (int i = 0; i < 9; ++i) {
    there.push_back(send(std::vector<int64_t>(segment_bytes / 8, i)));
    EXPECT_EQ(device_.waits, std::max(0, i - Staging::num_segments + 1)) << "array " << i;
    for (int earlier = std::max(0, i - Staging::num_segments + 1); earlier <= i; ++earlier)
      EXPECT_EQ(there[earlier][7], earlier) << "after array " << i;
  }
}

TEST_F(StagingTest, SmallPiecesShareASegmentWithoutWaiting) {
  std::vector<const int64_t*> there;
  for (int64_t i = 0; i < 60; ++i) there.push_back(send({i}));
  for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(*there[i], i);
  EXPECT_EQ(device_.waits, 0);
}

TEST_F(StagingTest, GrowsForAnArrayThatIsTooLong) {
  std::vector<int64_t> values(segment_bytes);
  std::iota(values.begin(), values.end(), 0);
  const int64_t* const there = send(values);
  EXPECT_EQ(std::vector<int64_t>(there, there + values.size()), values);
}

TEST_F(StagingTest, StepsPutTheSameArraysInTheSamePlaces) {
  std::vector<const int64_t*> first, second;
  for (auto* const there : {&first, &second}) {
    staging_.begin_step();
    for (const int64_t size : {1, 300, 40000}) {  // one longer than a segment
      const std::vector<int64_t> values(size + static_cast<int64_t>(there == &second), size);
      there->push_back(send(values));
      EXPECT_EQ(std::vector<int64_t>(there->back(), there->back() + values.size()), values);
    }
    for (size_t i = 0; i < there->size(); ++i)
      EXPECT_EQ(*(*there)[i], std::vector({1, 300, 40000})[i]);
    staging_.end_step(stream_);
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(device_.waits, 1) << "the second step waits for the first";
}

TEST_F(StagingTest, AStepsArenaGrowsWithoutTouchingWhatItHolds) {
  std::vector<const int64_t*> there;
  staging_.begin_step();
  for (int64_t i = 0; i < 40; ++i) there.push_back(send(std::vector<int64_t>(9000, i)));
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(there[i][8999], i);
  staging_.end_step(stream_);
  staging_.begin_step();
  for (int64_t i = 0; i < 40; ++i) there[i] = send(std::vector<int64_t>(9000, i));
  for (int64_t i = 1; i < 40; ++i)
    EXPECT_EQ(there[i] - there[i - 1], there[1] - there[0]) << "one chunk has them all now";
}

TEST_F(StagingTest, RefusesMoreThanWasAnnounced) {
  const std::vector<int64_t> values(100);
  staging_.begin(Staging::bytes_of<int64_t>(10), stream_);
  EXPECT_THROW(staging_.add(std::span<const int64_t>(values)), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
