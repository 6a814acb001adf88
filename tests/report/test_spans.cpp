#include <gtest/gtest.h>

#include "lib/report/spans.hpp"

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

}  // namespace
}  // namespace pecia::report
