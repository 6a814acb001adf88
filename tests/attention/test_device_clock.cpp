// SPDX-License-Identifier: Apache-2.0
/// Spans of a device whose work is done later have its times.

#include <gtest/gtest.h>

#include <optional>

#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/model/attention/device_clock.hpp"
#include "tests/support/late_stream.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::attention {
namespace {

using report::Kind;
using report::Recorder;
using report::ScopedGroup;
using report::ScopedSpan;
using report::Span;
using report::TraceDetail;

constexpr int64_t work_ns = test::separate_work_ns;

double seconds(int64_t pieces) {
  return 1e-9 * static_cast<double>(pieces * work_ns);
}

/// Another device, whose events cannot be recorded when a test says so.
class FailingDevice : public device::Device {
 public:
  explicit FailingDevice(device::Device& inner) : inner_(inner) {}

  bool fails = false;

  std::unique_ptr<device::Event> make_event() override {
    return std::make_unique<FailingEvent>(inner_.make_event(), fails);
  }
  std::unique_ptr<device::Stream> make_stream() override { return inner_.make_stream(); }
  const device::DeviceInfo& info() const override { return inner_.info(); }
  device::MemoryInfo memory() const override { return inner_.memory(); }
  void copy(void* to, const void* from, int64_t bytes, device::Stream& stream) override {
    inner_.copy(to, from, bytes, stream);
  }
  void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                 int64_t row_bytes, int64_t rows, device::Stream& stream) override {
    inner_.copy_rows(to, to_pitch, from, from_pitch, row_bytes, rows, stream);
  }
  void zero(void* data, int64_t bytes, device::Stream& stream) override {
    inner_.zero(data, bytes, stream);
  }
  std::byte* allocate(device::Memory memory, int64_t bytes) override {
    return inner_.allocate(memory, bytes);
  }
  void free(device::Memory memory, std::byte* data) noexcept override { inner_.free(memory, data); }

 private:
  class FailingEvent : public device::Event {
   public:
    FailingEvent(std::unique_ptr<device::Event> inner, const bool& fails)
        : inner_(std::move(inner)), fails_(fails) {}
    void record(device::Stream& stream) override {
      if (fails_) fail<SystemError>("a mark failed");
      inner_->record(stream);
    }
    void make_wait(device::Stream& stream) override { inner_->make_wait(stream); }
    bool done() const override { return inner_->done(); }
    void synchronize() override { inner_->synchronize(); }
    double seconds_since(const device::Event& earlier) const override {
      return inner_->seconds_since(*dynamic_cast<const FailingEvent&>(earlier).inner_);
    }

   private:
    std::unique_ptr<device::Event> inner_;
    const bool& fails_;
  };

  device::Device& inner_;
};

/// The host's time stands still unless a test sets it.
struct TestDeviceClock : testing::Test {
  std::unique_ptr<device::Device> device = test::make_separate_device();
  std::unique_ptr<kernels::Backend> backend = test::make_separate_backend();
  std::unique_ptr<device::Stream> stream = device->make_stream(), sending = device->make_stream();
  std::unique_ptr<device::Event> ready = device->make_event(), sent = device->make_event();
  device::Buffer memory{*device, device::Memory::device, 4};
  int64_t host_ns = 50 * work_ns;
  int64_t zeroed = 1;

  std::unique_ptr<DeviceClock> make_clock() {
    return std::make_unique<DeviceClock>(*device, *stream, [this] { return host_ns; });
  }
  Recorder timed(TraceDetail detail) {
    Recorder recorder(detail);
    recorder.time_by(make_clock());
    return recorder;
  }
  void work(device::Stream& on, int64_t pieces) {
    for (int64_t i = 0; i < pieces; ++i) device->zero(memory.data(), 4, on);
  }
  void compute(Recorder& recorder, const char* name, int64_t pieces, double flops = 0) {
    const ScopedSpan span(recorder, name, Kind::compute, 0, flops);
    work(*stream, pieces);
  }
  /// A transfer of so many pieces, begun after what the stream holds.
  void start(int64_t pieces) {
    ready->record(*stream);
    ready->make_wait(*sending);
    work(*sending, pieces);
    sent->record(*sending);
  }
  void wait(Recorder& recorder) {
    const ScopedSpan span(recorder, "ring", Kind::comm);
    sent->make_wait(*stream);
  }
  static void expect_span(const Span& span, const char* name, int64_t begin, int64_t end) {
    EXPECT_STREQ(span.name, name);
    EXPECT_EQ(span.begin_ns, begin * work_ns) << name;
    EXPECT_EQ(span.end_ns, end * work_ns) << name;
  }
};

TEST_F(TestDeviceClock, TellsWhenTheWorkWasDone) {
  Recorder recorder = timed(TraceDetail::full);
  compute(recorder, "linear", 3);
  work(*stream, 1);
  compute(recorder, "attention", 2);
  stream->synchronize();
  host_ns = 1000 * work_ns;
  recorder.take_times();
  ASSERT_EQ(recorder.spans().size(), 2u);
  expect_span(recorder.spans()[0], "linear", 50, 53);
  expect_span(recorder.spans()[1], "attention", 54, 56);
  EXPECT_DOUBLE_EQ(recorder.totals().compute_s, seconds(5));
}

TEST_F(TestDeviceClock, HoldsWorkBetweenEnqueueingAndItsEndAsSeen) {
  const auto clock = make_clock();
  const auto times_of = [&](int64_t pieces, int64_t seen_done) {
    const auto pair = clock->begin();
    work(*stream, pieces);
    clock->end(pair);
    stream->synchronize();
    host_ns = seen_done * work_ns;
    return *clock->times(pair);
  };
  EXPECT_EQ(times_of(3, 60).end_ns, 53 * work_ns);
  EXPECT_EQ(times_of(2, 70).begin_ns, 60 * work_ns) << "enqueued at 60, when the device had 53";
  EXPECT_EQ(times_of(5, 80).end_ns, 75 * work_ns) << "enqueued at 70, when the device had 62";
  const auto early = times_of(9, 86);
  EXPECT_EQ(early.end_ns, 86 * work_ns) << "seen done then";
  EXPECT_EQ(early.end_ns - early.begin_ns, 9 * work_ns);
}

TEST_F(TestDeviceClock, ShowsWhatOfATransferIsHidden) {
  Recorder recorder = timed(TraceDetail::full);
  for (const int64_t hiding : {3, 7}) {
    start(5);
    compute(recorder, "attention", hiding);
    wait(recorder);
  }
  stream->synchronize();
  host_ns = 1000 * work_ns;
  recorder.take_times();
  ASSERT_EQ(recorder.spans().size(), 4u);
  expect_span(recorder.spans()[0], "attention", 50, 53);
  expect_span(recorder.spans()[1], "ring", 53, 55);
  expect_span(recorder.spans()[2], "attention", 55, 62);
  expect_span(recorder.spans()[3], "ring", 62, 62);
  EXPECT_DOUBLE_EQ(recorder.totals().comm_s, seconds(2));
}

TEST_F(TestDeviceClock, NeverWaitsAndLosesNothing) {
  constexpr int64_t count = 1000;
  Recorder recorder = timed(TraceDetail::full);
  const auto first = device->make_event(), last = device->make_event();
  for (int64_t i = 0; i < count; ++i) {
    compute(recorder, "linear", 1, 2);
    if (i == 0) first->record(*stream);
    recorder.take_times();
  }
  last->record(*stream);
  EXPECT_FALSE(first->done());
  EXPECT_EQ(recorder.totals().flops, 2 * count);
  EXPECT_EQ(recorder.totals().compute_s, 0);

  first->synchronize();
  host_ns = 10'000 * work_ns;
  recorder.take_times();
  EXPECT_DOUBLE_EQ(recorder.totals().compute_s, seconds(1));
  EXPECT_FALSE(last->done());

  recorder.wait_for_times();
  EXPECT_TRUE(last->done());
  EXPECT_NEAR(recorder.totals().compute_s, seconds(count), 1e-12);
  EXPECT_EQ(recorder.spans().size(), static_cast<size_t>(count));
}

TEST_F(TestDeviceClock, TakesEventsAgain) {
  const auto clock = make_clock();
  const auto first = clock->begin();
  clock->end(first);
  const auto second = clock->begin();
  clock->end(second);
  EXPECT_NE(first, second) << "the first one's times are not told yet";
  stream->synchronize();
  EXPECT_TRUE(clock->times(first));
  EXPECT_EQ(clock->begin(), first);
}

TEST_F(TestDeviceClock, TellsLaterOfAMarkThatFailed) {
  FailingDevice failing(*device);
  Recorder recorder(TraceDetail::full);
  recorder.time_by(std::make_unique<DeviceClock>(failing, *stream, [this] { return host_ns; }));
  {
    const ScopedSpan span(recorder, "linear", Kind::compute);
    failing.fails = true;
  }
  EXPECT_THROW(recorder.take_times(), SystemError);
}

TEST_F(TestDeviceClock, LeavesStepsWhole) {
  const auto run = [&](Recorder& recorder, bool as_group) {
    for (int step = 0; step < 2; ++step) {
      std::optional<ScopedGroup> group;
      if (as_group) group.emplace(recorder, "layers");
      kernels::Step held(*backend, *stream);
      compute(recorder, "linear", 2, 10);
      compute(recorder, "rope", 1);
      held.end();
    }
    recorder.wait_for_times();
  };
  const auto& late = dynamic_cast<test::LateStream&>(*stream);
  host_ns = 1000 * work_ns;
  Recorder marked = timed(TraceDetail::full);
  run(marked, false);
  EXPECT_EQ(late.graph_counts().launched, 0) << "marks between ops cut a step up";

  Recorder recorder = timed(TraceDetail::full);
  run(recorder, true);
  EXPECT_EQ(late.graph_counts().launched, 1) << "work becomes a graph the second time";
  EXPECT_EQ(late.graph_counts().made, 1);
  ASSERT_EQ(recorder.spans().size(), 2u) << "not its ops, whose times nobody knows";
  for (const Span& span : recorder.spans()) {
    EXPECT_STREQ(span.name, "layers");
    EXPECT_EQ(span.end_ns - span.begin_ns, 3 * work_ns);
  }
  EXPECT_DOUBLE_EQ(recorder.totals().compute_s, seconds(6));
  EXPECT_EQ(recorder.totals().flops, 20);
  const report::Stage& linear = recorder.stages().front();
  EXPECT_STREQ(linear.name, "linear");
  EXPECT_EQ(linear.count, 2);
  EXPECT_EQ(linear.flops, 20);
  EXPECT_EQ(linear.seconds, 0);
}

TEST_F(TestDeviceClock, TellsWaitsOfAGroupFromItsOps) {
  Recorder recorder = timed(TraceDetail::summary);
  {
    const ScopedGroup group(recorder, "layers");
    start(5);
    compute(recorder, "attention", 3);
    wait(recorder);
    compute(recorder, "linear", 4);
  }
  compute(recorder, "sample", 1);
  sent->synchronize();
  recorder.take_times();
  EXPECT_GE(recorder.totals().compute_s, 0) << "the wait is over, the group is not";
  recorder.wait_for_times();
  EXPECT_DOUBLE_EQ(recorder.totals().comm_s, seconds(2));
  EXPECT_DOUBLE_EQ(recorder.totals().compute_s, seconds(8));
}

}  // namespace
}  // namespace pecia::attention
