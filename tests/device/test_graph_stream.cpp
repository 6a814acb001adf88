// SPDX-License-Identifier: Apache-2.0
/// How steps are cut into segments and which of them are graphs of before, on a stream that only
/// writes down what it is asked for.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/device/logged_stream.hpp"

namespace pecia::device {
namespace {

using test::Failure;
using test::LoggedStream;

TEST(GraphStream, OutsideOfStepsWorkIsDoneAtOnce) {
  LoggedStream stream;
  stream.give("abcd");
  stream.mark();
  EXPECT_EQ(stream.log, "abcd|");
}

TEST(GraphStream, WorkIsAGraphFromItsSecondTimeOn) {
  LoggedStream stream;
  EXPECT_EQ(stream.step("abc|defg|hij"), "abc|defg|hij");
  EXPECT_EQ(stream.step("abc|defg|hij"), "m0(abc)g0 |m8(defg)g8 |m16(hij)g16 ");
  EXPECT_EQ(stream.step("abc|defg|hij"), "g0 |g8 |g16 ");
  EXPECT_EQ(stream.step("abc|dxfg|hij"), "g0 |dxfg|g16 ");
  EXPECT_EQ(stream.step("abc|defg|hij"), "g0 |g8 |g16 ") << "what comes between is not forgotten";
  EXPECT_EQ(stream.step("abc|dxfg|hij"), "g0 |m9(dxfg)g9 |g16 ");
  EXPECT_EQ(stream.graph_counts().launched, 14);
  EXPECT_EQ(stream.graph_counts().made, 4);
  EXPECT_EQ(stream.graph_counts().piecemeal, 4);
  EXPECT_EQ(stream.graph_counts().slow_share(), 8.0 / 18);
}

TEST(GraphStream, EachSegmentIsHeldAgainstItsOwnOfEarlierSteps) {
  LoggedStream stream;
  stream.step("abc|defg|hij");
  EXPECT_EQ(stream.step("hij|abc|defg"), "hij|abc|defg");
}

/// The device begins before the host has given all works.
TEST(GraphStream, TheFirstWorksAreLaunchedWhileTheOthersAreGiven) {
  LoggedStream stream;
  const std::string first(24, 'a'), rest(40, 'b');
  stream.step(first + rest);
  stream.log.clear();
  stream.begin_step();
  stream.give(first.substr(1));
  EXPECT_EQ(stream.log, "");
  stream.give("a");
  EXPECT_EQ(stream.log, "m0(" + first + ")g0 ");
  stream.give(rest);
  EXPECT_EQ(stream.log, "m0(" + first + ")g0 ") << "only once in a step";
  stream.end_step();
  EXPECT_EQ(stream.log, "m0(" + first + ")g0 m8(" + rest + ")g8 ");
  EXPECT_EQ(stream.step(first + rest), "g0 g8 ");
}

TEST(GraphStream, ShortSegmentsAreNoGraphs) {
  LoggedStream stream;
  EXPECT_EQ(stream.step("ab||c|defg|"), "ab||c|defg|");
  EXPECT_EQ(stream.step("ab||c|defg|"), "ab||c|m0(defg)g0 |");
  EXPECT_EQ(stream.step("a|b|defg|c"), "a|b|g0 |c") << "and do not count";
}

/// As when a batch's number of rows goes up and down, with prompts between.
TEST(GraphStream, AFewWorksOfASegmentAreKnownAndTheLongestUnusedIsForgotten) {
  LoggedStream stream;
  const std::string works[] = {"aaa", "bbb", "ccc", "ddd", "eee", "fff", "ggg", "hhh"};
  for (int time = 0; time < 2; ++time)
    for (const std::string& work : works) stream.step(work);
  EXPECT_EQ(stream.graph_counts().made, 8);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(stream.step(works[i]), "g" + std::to_string(i) + " ");
  EXPECT_EQ(stream.step("xyz"), "xyz") << "in the place of aaa";
  EXPECT_EQ(stream.step("xyz"), "m0(xyz)g0 ");
  EXPECT_EQ(stream.step("bbb"), "g1 ");
  EXPECT_EQ(stream.step("aaa"), "aaa") << "in the place of ccc";
  EXPECT_EQ(stream.step("ccc"), "ccc");
}

TEST(GraphStream, AStepThatIsDroppedLeavesTheGraphsAsTheyAre) {
  LoggedStream stream;
  stream.step("abc|def");
  stream.step("abc|def");
  stream.begin_step();
  stream.give("abc");
  stream.mark();
  stream.give("xyz");
  stream.drop_step();
  EXPECT_EQ(stream.step("abc|def"), "g0 |g8 ");
}

TEST(GraphStream, WithoutAGraphThatCannotBeMadeAllWorkIsDoneAllTheSame) {
  LoggedStream stream;
  stream.step("abc|xyz|def");
  stream.step("abc|uvw|def");
  stream.fails = Failure::no_graph;
  EXPECT_EQ(stream.step("abc|xyz|def"), "g0 |x0 x16 xyz|def");
  EXPECT_EQ(stream.graph_counts().why_not, "no graph");
  stream.fails = Failure::none;
  EXPECT_EQ(stream.step("abc|def"), "abc|def") << "nor is one tried again";
}

TEST(GraphStream, ALostDeviceEndsTheStepAndNothingOfTheGraphIsKnown) {
  LoggedStream stream;
  stream.step("abc|def");
  stream.step("xyz|def");
  stream.fails = Failure::lost;
  stream.begin_step();
  stream.give("xyz");
  EXPECT_THROW(stream.end_segment(), DeviceLost);
  stream.mark();  // as memory that is freed on the way out does
  stream.drop_step();
  stream.fails = Failure::none;
  EXPECT_EQ(stream.step("xyz|def"), "m1(xyz)g1 |g8 ");
}

TEST(GraphStream, MakesNoneWhereTheEnvironmentSaysSo) {
  ASSERT_EQ(::setenv("PECIA_CUDA_GRAPHS", "0", 1), 0);
  LoggedStream without;
  ASSERT_EQ(::setenv("PECIA_CUDA_GRAPHS", "off", 1), 0);
  EXPECT_THROW(LoggedStream(), InputError);
  ASSERT_EQ(::unsetenv("PECIA_CUDA_GRAPHS"), 0);
  EXPECT_EQ(without.step("abc|def"), "abc|def");
  EXPECT_EQ(without.graph_counts().launched, 0);
  EXPECT_EQ(without.graph_counts().why_not, "PECIA_CUDA_GRAPHS=0");
  LoggedStream with;
  with.step("abc");
  EXPECT_EQ(with.step("abc"), "m0(abc)g0 ");
}

TEST(GraphStream, RefusesAStepWithinAStep) {
  LoggedStream stream;
  stream.begin_step();
  EXPECT_THROW(stream.begin_step(), InvalidArgument);
}

}  // namespace
}  // namespace pecia::device
