// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/report/spans.hpp"

namespace pecia::report {
namespace {

constexpr int64_t second_ns = 1'000'000'000;

Span span(const char* name, Kind kind, int64_t begin_s, int64_t end_s, int64_t bytes = 0,
          double flops = 0) {
  return {name, kind, -1, 0, begin_s * second_ns, end_s * second_ns, bytes, flops};
}

TEST(Recorder, AddsUpTimeByKindAndCountsPhasesOnce) {
  Recorder recorder;
  recorder.add(span("linear", Kind::compute, 0, 2, 10, 100));
  recorder.add(span("ring", Kind::comm, 2, 3, 7));
  recorder.add(span("wait", Kind::idle, 3, 8));
  recorder.add(span("prefill", Kind::phase, 0, 8));
  EXPECT_EQ(recorder.totals().compute_s, 2);
  EXPECT_EQ(recorder.totals().comm_s, 1);
  EXPECT_EQ(recorder.totals().idle_s, 5);
  EXPECT_EQ(recorder.totals().bytes, 17);
  EXPECT_EQ(recorder.totals().flops, 100);
}

TEST(Recorder, SumsStagesByTheTextOfTheirNameAndTheirKind) {
  const char first[] = "linear", second[] = "linear";
  ASSERT_NE(static_cast<const void*>(first), static_cast<const void*>(second));
  Recorder recorder;
  recorder.add(span(first, Kind::compute, 0, 1, 3, 5));
  recorder.add(span("linear", Kind::comm, 1, 2));
  recorder.add(span(second, Kind::compute, 2, 5, 4, 6));
  ASSERT_EQ(recorder.stages().size(), 2u);
  const Stage& linear = recorder.stages()[0];
  EXPECT_EQ(linear.count, 2);
  EXPECT_EQ(linear.seconds, 4);
  EXPECT_EQ(linear.bytes, 7);
  EXPECT_EQ(linear.flops, 11);
  EXPECT_EQ(recorder.stages()[1].kind, Kind::comm);
}

TEST(Recorder, CountsATransferWhoseTimeIsThatOfTheOpsAroundIt) {
  Recorder recorder(TraceDetail::full);
  recorder.set_layer(3);
  recorder.count_in_group("all_reduce", Kind::comm, 64);
  EXPECT_EQ(recorder.totals().bytes, 64);
  EXPECT_EQ(recorder.totals().comm_s, 0);
  ASSERT_EQ(recorder.stages().size(), 1u);
  EXPECT_EQ(recorder.stages()[0].kind, Kind::comm);
  EXPECT_EQ(recorder.stages()[0].count, 1);
  EXPECT_EQ(recorder.last().layer, 3);
  EXPECT_TRUE(recorder.spans().empty());
}

TEST(Recorder, KeepsWhatTheDetailSays) {
  for (const auto& [detail, kept] :
       {std::pair{TraceDetail::off, 0}, {TraceDetail::summary, 1}, {TraceDetail::full, 2}}) {
    Recorder recorder(detail);
    recorder.add(span("linear", Kind::compute, 0, 1));
    recorder.add(span("prefill", Kind::phase, 0, 1));
    EXPECT_EQ(static_cast<int>(recorder.spans().size()), kept);
    EXPECT_EQ(recorder.dropped(), 0);
  }
}

TEST(Recorder, DropsAndCountsAboveItsCapacity) {
  Recorder recorder(TraceDetail::full, 2);
  for (int i = 0; i < 5; ++i) recorder.add(span("linear", Kind::compute, i, i + 1));
  EXPECT_EQ(recorder.spans().size(), 2u);
  EXPECT_EQ(recorder.dropped(), 3);
  EXPECT_EQ(recorder.totals().compute_s, 5);
  EXPECT_EQ(recorder.last().begin_ns, 4 * second_ns);
}

TEST(Recorder, KeepsNotesOfThePassUnlessTheTraceIsOff) {
  for (const auto detail : {TraceDetail::off, TraceDetail::summary, TraceDetail::full}) {
    Recorder recorder(detail, 1);
    recorder.set_pass(7);
    recorder.note("ring_rule", {{"ranks", 4}}, "pass_q");
    recorder.note("ring_rule", {{"ranks", 4}}, "pass_q");
    if (detail == TraceDetail::off) {
      EXPECT_TRUE(recorder.notes().empty());
      EXPECT_EQ(recorder.dropped(), 0);
      continue;
    }
    ASSERT_EQ(recorder.notes().size(), 1u);
    EXPECT_EQ(recorder.notes()[0].pass, 7);
    EXPECT_GE(recorder.notes()[0].at_ns, 0);
    EXPECT_EQ(recorder.dropped(), 1) << "above the capacity";
  }
}

TEST(ScopedSpan, BelongsToThePassAndLayerInWhichItOpened) {
  Recorder recorder(TraceDetail::full);
  recorder.set_pass(3);
  recorder.set_layer(17);
  {
    const ScopedSpan open(recorder, "attention", Kind::compute, 8, 9);
    recorder.set_layer(18);
  }
  ASSERT_EQ(recorder.spans().size(), 1u);
  const Span& closed = recorder.spans()[0];
  EXPECT_EQ(closed.pass, 3);
  EXPECT_EQ(closed.layer, 17);
  EXPECT_EQ(closed.bytes, 8);
  EXPECT_EQ(closed.flops, 9);
  EXPECT_GE(closed.end_ns, closed.begin_ns);
  EXPECT_GE(closed.begin_ns, 0);
}

TEST(Recorder, PublishesTheOutermostPhaseAndWhatWasBegunLast) {
  Activity activity;
  Recorder recorder;
  recorder.publish_to(activity);
  recorder.set_pass(4);
  {
    const ScopedSpan pass(recorder, "decode", Kind::phase);
    const ScopedSpan inner(recorder, "forward", Kind::phase);
    recorder.set_layer(2);
    { const ScopedSpan op(recorder, "attention", Kind::compute); }
    EXPECT_STREQ(activity.phase, "decode");
    EXPECT_STREQ(activity.span, "attention");
    EXPECT_EQ(activity.pass, 4);
    EXPECT_EQ(activity.layer, 2);
  }
  EXPECT_STREQ(activity.phase, "decode") << "the last one, until there is another";
  const ScopedSpan next(recorder, "prefill", Kind::phase);
  EXPECT_STREQ(activity.phase, "prefill");
}

/// The work before a pair's second mark is done when a test says so, and takes a second.
class TestClock : public SpanClock {
 public:
  explicit TestClock(int64_t& done) : done_(done) {}

  Pair begin() override { return begun_++; }
  void end(Pair pair) noexcept override { ends_.push_back(pair); }
  std::optional<Times> times(Pair pair) override {
    EXPECT_EQ(pair, ends_.at(told_)) << "asked in another order than that of their ends";
    if (told_ == done_) return {};
    ++told_;
    return Times{100 * second_ns + told_ * second_ns, 101 * second_ns + told_ * second_ns};
  }
  void synchronize() override { done_ = static_cast<int64_t>(ends_.size()); }

 private:
  int64_t& done_;
  int64_t begun_ = 0, told_ = 0;
  std::vector<Pair> ends_;
};

TEST(Recorder, WithAClockTakesTimesWhenTheWorkIsDone) {
  int64_t done = 0;
  Recorder recorder(TraceDetail::full);
  recorder.time_by(std::make_unique<TestClock>(done));
  {
    const ScopedSpan pass(recorder, "decode", Kind::phase);
    { const ScopedSpan idle(recorder, "wait_for_plan", Kind::idle); }
    const ScopedSpan outer(recorder, "all_gather", Kind::comm, 3);
    const ScopedSpan inner(recorder, "pack", Kind::compute, 5, 7);
  }
  EXPECT_EQ(recorder.spans().size(), 2u) << "the host's";
  EXPECT_EQ(recorder.totals().bytes, 8) << "at once";
  EXPECT_EQ(recorder.totals().flops, 7);
  recorder.take_times();
  EXPECT_EQ(recorder.totals().compute_s, 0);
  done = 1;
  recorder.take_times();
  EXPECT_EQ(recorder.totals().compute_s, 1);
  EXPECT_EQ(recorder.totals().comm_s, 0);
  recorder.wait_for_times();
  EXPECT_EQ(recorder.totals().comm_s, 1);
  ASSERT_EQ(recorder.spans().size(), 4u);
  EXPECT_STREQ(recorder.spans()[2].name, "pack");
  EXPECT_EQ(recorder.spans()[2].begin_ns, 101 * second_ns);
  EXPECT_EQ(recorder.spans()[2].end_ns, 102 * second_ns);
  for (const Stage& stage : recorder.stages()) EXPECT_EQ(stage.count, 1) << stage.name;
}

TEST(ScopedGroup, IsNothingWithoutAClock) {
  Recorder recorder(TraceDetail::full);
  {
    const ScopedGroup group(recorder, "layers");
    const ScopedSpan op(recorder, "linear", Kind::compute);
  }
  ASSERT_EQ(recorder.spans().size(), 1u);
  EXPECT_STREQ(recorder.spans()[0].name, "linear");
  EXPECT_EQ(recorder.stages().size(), 1u);
  recorder.wait_for_times();
}

}  // namespace
}  // namespace pecia::report
