// SPDX-License-Identifier: Apache-2.0
/// How steps are cut into segments and which of them are graphs of before, on a stream that only
/// writes down what it is asked for.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lib/core/error.hpp"
#include "lib/device/graph_stream.hpp"

namespace pecia::device {
namespace {

enum class Failure { none, no_graph, lost };

class LoggedStream : public GraphStream {
 public:
  std::string log;
  Failure fails = Failure::none;  ///< to make graphs

  /// Works named by letters; equal letters are equal work.
  void give(const std::string& works) {
    for (const char work : works) submit([this, work] { log += work; }, work);
  }
  /// What needs the stream itself.
  void mark() {
    end_segment();
    log += '|';
  }
  /// A step in which marks stand between works.
  std::string step(const std::string& works) {
    log.clear();
    begin_step();
    for (const char work : works)
      if (work == '|')
        mark();
      else
        give({work});
    end_step();
    return log;
  }

 private:
  void make_graph(size_t index, const Commands& work) override {
    if (fails == Failure::no_graph) fail<SystemError>("no graph");
    if (fails == Failure::lost) fail<DeviceLost>("lost");
    log += 'm';
    log += std::to_string(index);
    log += '(';
    work.enqueue();
    log += ')';
  }
  void launch_graph(size_t index) override { log += 'g' + std::to_string(index) + ' '; }
  void keep_graphs(size_t count) override { log += "keep " + std::to_string(count); }
};

TEST(GraphStream, OutsideOfStepsWorkIsDoneAtOnce) {
  LoggedStream stream;
  stream.give("abcd");
  stream.mark();
  EXPECT_EQ(stream.log, "abcd|");
}

TEST(GraphStream, EachSegmentIsHeldAgainstItsOwnOfTheStepBefore) {
  LoggedStream stream;
  EXPECT_EQ(stream.step("abc|defg|hij"), "m0(abc)g0 |m1(defg)g1 |m2(hij)g2 ");
  EXPECT_EQ(stream.step("abc|defg|hij"), "g0 |g1 |g2 ");
  EXPECT_EQ(stream.step("abc|dxfg|hij"), "g0 |m1(dxfg)g1 |g2 ");
  EXPECT_EQ(stream.step("hij|abc|defg"), "m0(hij)g0 |m1(abc)g1 |m2(defg)g2 ");
  EXPECT_EQ(stream.graph_counts().launched, 12);
  EXPECT_EQ(stream.graph_counts().made, 7);
}

TEST(GraphStream, ShortSegmentsAreNoGraphs) {
  LoggedStream stream;
  EXPECT_EQ(stream.step("ab||c|defg|"), "ab||c|m0(defg)g0 |");
  EXPECT_EQ(stream.step("a|b|defg|c"), "a|b|g0 |c") << "and do not count";
}

TEST(GraphStream, KeepsAsManyGraphsAsTheLastStepHad) {
  LoggedStream stream;
  stream.step("abc|def|ghi");
  EXPECT_EQ(stream.step("abc"), "g0 keep 1");
  EXPECT_EQ(stream.step("abc|def"), "g0 |m1(def)g1 ");
  EXPECT_EQ(stream.step("a"), "akeep 0");
}

TEST(GraphStream, AStepThatIsDroppedLeavesTheGraphsAsTheyAre) {
  LoggedStream stream;
  stream.step("abc|def");
  stream.begin_step();
  stream.give("abc");
  stream.mark();
  stream.give("xyz");
  stream.drop_step();
  EXPECT_EQ(stream.step("abc|def"), "g0 |g1 ");
}

TEST(GraphStream, WithoutAGraphThatCannotBeMadeAllWorkIsDoneAllTheSame) {
  LoggedStream stream;
  stream.step("abc|def");
  stream.fails = Failure::no_graph;
  EXPECT_EQ(stream.step("abc|xyz|def"), "g0 |keep 0xyz|def");
  EXPECT_EQ(stream.graph_counts().why_not, "no graph");
  stream.fails = Failure::none;
  EXPECT_EQ(stream.step("abc|def"), "abc|def") << "nor is one tried again";
}

TEST(GraphStream, ALostDeviceEndsTheStepAndNothingOfTheGraphIsKnown) {
  LoggedStream stream;
  stream.step("abc|def");
  stream.fails = Failure::lost;
  stream.begin_step();
  stream.give("xyz");
  EXPECT_THROW(stream.end_segment(), DeviceLost);
  stream.mark();  // as memory that is freed on the way out does
  stream.drop_step();
  stream.fails = Failure::none;
  EXPECT_EQ(stream.step("abc|def"), "m0(abc)g0 |g1 ");
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
  EXPECT_EQ(LoggedStream().step("abc"), "m0(abc)g0 ");
}

TEST(GraphStream, RefusesAStepWithinAStep) {
  LoggedStream stream;
  stream.begin_step();
  EXPECT_THROW(stream.begin_step(), InvalidArgument);
}

}  // namespace
}  // namespace pecia::device
