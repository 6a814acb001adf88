// SPDX-License-Identifier: Apache-2.0
/// Ranks, each a thread, agree on graphs with collective works. The double of NCCL's rule is in the
/// logs: what a rank does of a collective work by a graph, every rank must do by the graph that was
/// captured together.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "tests/device/logged_stream.hpp"

namespace pecia::device {
namespace {

using test::Failure;
using test::LoggedStream;
using Message = std::vector<std::byte>;

/// Where ranks that are threads give each other messages.
class Meeting {
 public:
  explicit Meeting(size_t size) : messages_(size) {}

  std::vector<Message> all_gather(size_t rank, std::span<const std::byte> mine) {
    std::unique_lock lock(mutex_);
    const int round = round_;
    messages_[rank].assign(mine.begin(), mine.end());
    if (++come_ == messages_.size()) {
      gathered_ = messages_;
      come_ = 0;
      ++round_;
      all_come_.notify_all();
    } else if (!all_come_.wait_for(lock, patience, [&] { return round_ != round; })) {
      fail<SystemError>("rank {} waits in vain", rank);
    }
    return gathered_;  // the next round ends only when this rank has come again
  }

  std::chrono::milliseconds patience{60000};

 private:
  std::mutex mutex_;
  std::condition_variable all_come_;
  std::vector<Message> messages_, gathered_;
  size_t come_ = 0;
  int round_ = 0;
};

class MeetingRanks : public JointRanks {
 public:
  MeetingRanks(Meeting& meeting, size_t rank) : meeting_(meeting), rank_(rank) {}
  void watch_launch(const std::function<void()>& launch) override { launch(); }
  void enqueued() override { ++num_enqueued; }

  int num_enqueued = 0;

 private:
  std::vector<Message> all_gather(std::span<const std::byte> mine) override {
    return meeting_.all_gather(rank_, mine);
  }

  Meeting& meeting_;
  size_t rank_;
};

struct Rank {
  Rank(Meeting& meeting, size_t of) : index(of), ranks(meeting, of) { stream.ranks = &ranks; }
  size_t index;
  MeetingRanks ranks;
  LoggedStream stream;

  const GraphCounts& counts() const { return stream.graph_counts(); }
};

struct JointGraphs : testing::Test {
  explicit JointGraphs(size_t size = 2) : meeting(size) {
    for (size_t rank = 0; rank < size; ++rank) all.push_back(std::make_unique<Rank>(meeting, rank));
  }

  using Each = std::function<void(Rank&)>;
  void on_all(const Each& each) {
    std::vector<std::jthread> threads;
    for (const auto& rank : all) threads.emplace_back([&] { each(*rank); });
  }
  /// A step of each rank; returns their logs.
  std::vector<std::string> steps(const std::vector<std::string>& works) {
    std::vector<std::string> logs(all.size());
    on_all([&](Rank& rank) { logs[rank.index] = rank.stream.step(works[rank.index]); });
    return logs;
  }
  std::vector<std::string> step(const std::string& works) {
    return steps(std::vector(all.size(), works));
  }
  void expect_same_captures() {
    for (const auto& rank : all)
      EXPECT_EQ(rank->stream.captures, all[0]->stream.captures) << "of rank " << rank->index;
  }

  using Logs = std::vector<std::string>;
  Meeting meeting;
  std::vector<std::unique_ptr<Rank>> all;
};

TEST_F(JointGraphs, AStepIsOneGraphFromItsSecondTimeOn) {
  const std::string works = "aAbBc";
  EXPECT_EQ(step(works), (Logs{"aAbBc", "aAbBc"}));
  EXPECT_EQ(step(works), (Logs{"m0(aAbBc)g0 ", "m0(aAbBc)g0 "}));
  EXPECT_EQ(step(works), (Logs{"g0 ", "g0 "}));
  for (const auto& rank : all) {
    EXPECT_EQ(rank->counts().launched, 2);
    EXPECT_EQ(rank->counts().joint, 2);
    EXPECT_EQ(rank->counts().made, 1);
    EXPECT_EQ(rank->counts().disagreed, 0);
    EXPECT_EQ(rank->ranks.num_enqueued, 3);
    EXPECT_EQ(rank->stream.captures, (std::vector{0, 0, 1, 1, 1, 1}));
  }
}

TEST_F(JointGraphs, SegmentsWithoutCollectivesAreEachRanksOwn) {
  steps({"abc|aAb", "xyz|aAb"});
  EXPECT_EQ(steps({"abc|aAb", "uvw|aAb"}), (Logs{"m0(abc)g0 |m8(aAb)g8 ", "uvw|m8(aAb)g8 "}));
  EXPECT_EQ(all[0]->counts().joint, 1);
  EXPECT_EQ(all[0]->counts().launched, 2);
  EXPECT_EQ(all[1]->counts().disagreed, 0);
}

/// As when a buffer grows on one rank alone. The other's graph belongs to the capture of before.
TEST_F(JointGraphs, AllRanksMakeOneAnewWhereOneHasOtherWork) {
  const std::string works = "aAb";
  step(works);
  step(works);
  EXPECT_EQ(steps({works, "xAb"}), (Logs{"aAb", "xAb"}));
  EXPECT_EQ(steps({works, "xAb"}), (Logs{"x0 m0(aAb)g0 ", "m1(xAb)g1 "}));
  EXPECT_EQ(steps({works, "xAb"}), (Logs{"g0 ", "g1 "}));
  EXPECT_EQ(step(works), (Logs{"x0 m0(aAb)g0 ", "x0 m0(aAb)g0 "})) << "graphs of two captures";
  EXPECT_EQ(step(works), (Logs{"g0 ", "g0 "}));
  expect_same_captures();
  for (const auto& rank : all) EXPECT_EQ(rank->counts().disagreed, 3);
}

TEST_F(JointGraphs, WhereOneRankCannotMakeOneAllSayWhyAndGoOnWithoutCollectivesInGraphs) {
  const std::string works = "aAb|cde|fAg";
  step(works);
  all[1]->stream.fails = Failure::no_graph;
  EXPECT_EQ(step("aAb"), (Logs{"m0(aAb)x0 aAb", "aAb"}));
  all[1]->stream.fails = Failure::none;
  for (const auto& rank : all) {
    EXPECT_EQ(rank->counts().why_not_joint, "rank 1 of 2: no graph");
    EXPECT_EQ(rank->counts().why_not, "");
    EXPECT_EQ(rank->counts().joint, 0);
  }
  EXPECT_EQ(step(works), (Logs{"a|Ab|cde|f|Ag", "a|Ab|cde|f|Ag"})) << "the caller's way";
  EXPECT_EQ(step(works), (Logs{"a|Ab|m1(cde)g1 |f|Ag", "a|Ab|m1(cde)g1 |f|Ag"}));
  expect_same_captures();
}

TEST_F(JointGraphs, ThatWereMadeBeforeAreLetGoWhenOneCannotBeMade) {
  step("aAb");
  step("aAb");
  step("xAy");
  all[0]->stream.fails = Failure::no_graph;
  step("xAy");
  for (const auto& rank : all) EXPECT_EQ(rank->stream.num_graphs(), 0u);
}

TEST_F(JointGraphs, WhereOneRankIsToMakeNoneNobodyMakesOneWithCollectives) {
  ASSERT_EQ(::setenv("PECIA_CUDA_GRAPHS", "0", 1), 0);
  all[1] = std::make_unique<Rank>(meeting, 1);
  ASSERT_EQ(::unsetenv("PECIA_CUDA_GRAPHS"), 0);
  const std::string works = "aAb|cde";
  for (int time = 0; time < 4; ++time) step(works);
  for (const auto& rank : all) {
    EXPECT_EQ(rank->counts().joint, 0);
    EXPECT_EQ(rank->counts().why_not_joint, "rank 1 of 2: PECIA_CUDA_GRAPHS=0");
  }
  EXPECT_EQ(all[0]->counts().why_not, "");
  EXPECT_GT(all[0]->counts().launched, 0);
  EXPECT_EQ(all[1]->counts().launched, 0);
  expect_same_captures();
}

TEST_F(JointGraphs, OfDifferentCollectivesEndAllRanksWithTheirNames) {
  all[1]->stream.count = 9;
  std::vector<std::string> errors(2), later(2);
  on_all([&](Rank& rank) {
    try {
      rank.stream.step("aAb");
    } catch (const InvalidArgument& error) {
      errors[rank.index] = error.what();
    }
    rank.stream.drop_step();
    try {  // as where memory that is freed has hidden the error
      rank.stream.step("aAb");
    } catch (const SystemError& error) {
      later[rank.index] = error.what();
    }
  });
  const std::string words =
      "ranks 0 and 1 of 2 have different collectives up to number 1: the last one is sum of 8 and "
      "sum of 9";
  EXPECT_EQ(errors, (Logs{words, words}));
  EXPECT_EQ(later, (Logs{words, words}));
}

/// The n-th work is another one; the numbers of works differ where they first meet.
TEST_F(JointGraphs, OfDifferentCollectivesAreFoundAlsoAfterSegmentsOfDifferentLengths) {
  std::vector<std::string> errors(2);
  on_all([&](Rank& rank) {
    try {
      rank.stream.begin_step();
      rank.stream.give("aAb");
      if (rank.index == 0) rank.stream.mark();
      if (rank.index == 1) rank.stream.count = 9;
      rank.stream.give("cB");
      rank.stream.count = 8;
      rank.stream.end_step();
      rank.stream.step("aAb");
    } catch (const InvalidArgument& error) {
      errors[rank.index] = error.what();
    }
  });
  for (const std::string& error : errors)
    EXPECT_EQ(error.find("ranks 0 and 1 of 2 have different collectives up to number 3"), 0u)
        << error;
}

TEST_F(JointGraphs, ARankThatWaitsInVainSaysWhatFor) {
  meeting.patience = std::chrono::milliseconds(50);
  Rank& rank = *all[0];
  std::string error;
  try {
    rank.stream.step("aAb");
  } catch (const SystemError& failure) {
    error = failure.what();
  }
  EXPECT_EQ(error, "no agreement on a graph with sum of 8: rank 0 waits in vain");
}

/// A rank that frees memory between two collectives proposes early, and the others at their end.
TEST_F(JointGraphs, ARankMayCutItsSegmentWhereOthersDoNot) {
  const std::string whole = "aAbBcCd", cut = "aAb|BcCd";
  step(whole);
  EXPECT_EQ(steps({whole, cut}), (Logs{"aAbBcCd", "aAb|BcCd"})) << "B and C are settled";
  EXPECT_EQ(step(whole), (Logs{"m0(aAbBcCd)g0 ", "m0(aAbBcCd)g0 "}));
  EXPECT_EQ(steps({cut, whole}), (Logs{"aAb|BcCd", "aAbBcCd"}));
  EXPECT_EQ(step(whole), (Logs{"g0 ", "g0 "}));
  expect_same_captures();
}

/// A rank without rows has fewer works between the collectives.
TEST_F(JointGraphs, RanksCutTheFirstSegmentAtTheSameCollective) {
  const std::string some(9, 'w');
  const Logs works{some + "A" + some + "B" + some + "C" + some + "D" + some + "E" + some + "F",
                   "ABCDEwF"};
  steps(works);
  steps(works);
  EXPECT_EQ(steps(works), (Logs{"g0 g8 ", "g0 g8 "}));
  expect_same_captures();
  for (const auto& rank : all) {
    EXPECT_EQ(rank->counts().disagreed, 0);
    EXPECT_EQ(rank->counts().joint, 4);
  }
}

/// What comes before the first collective may be longer on one rank than a first segment.
TEST_F(JointGraphs, WorksBeforeCollectivesMayBeASegmentOnOneRankAlone) {
  const Logs works{std::string(30, 'w') + "AvB", "wAvB"};
  steps(works);
  steps(works);
  EXPECT_EQ(steps(works), (Logs{"g0 g8 ", "g0 "}));
  expect_same_captures();
  EXPECT_EQ(all[1]->counts().disagreed, 0);
}

/// The one rank agrees although its segment is too short for a graph.
TEST_F(JointGraphs, ARankMayCutOffTooLittleForAGraph) {
  for (int time = 0; time < 3; ++time)
    EXPECT_EQ(steps({"aA|bBc", "aAbBc"}), (Logs{"aA|bBc", "aAbBc"})) << time;
  expect_same_captures();
}

TEST_F(JointGraphs, ShortSegmentsWithCollectivesAreNoGraphs) {
  for (int time = 0; time < 3; ++time) EXPECT_EQ(step("A|aB|cde").back().find("A|aB|"), 0u);
  expect_same_captures();
  EXPECT_EQ(all[0]->counts().joint, 0);
  EXPECT_EQ(all[0]->counts().launched, 2);
}

TEST_F(JointGraphs, ThatOneRankLetsGoAreMadeAnewByAll) {
  step("aAb");
  step("aAb");
  on_all([](Rank& rank) {
    if (rank.index == 1) rank.stream.drop_joint_graphs();
  });
  EXPECT_EQ(all[1]->stream.num_graphs(), 0u);
  EXPECT_EQ(step("aAb"), (Logs{"x0 m0(aAb)g0 ", "m0(aAb)g0 "}));
  expect_same_captures();
}

/// Graphs of NCCL keep its communicator from ending.
TEST_F(JointGraphs, ThatAreForgottenAreLetGo) {
  const std::string works[] = {"aAa", "bAb", "cAc", "dAd", "eAe", "fAf", "gAg", "hAh"};
  for (int time = 0; time < 2; ++time)
    for (const std::string& each : works) step(each);
  EXPECT_EQ(all[0]->stream.num_graphs(), 8u);
  EXPECT_EQ(step("xyz"), (Logs{"x0 xyz", "x0 xyz"}));
}

TEST_F(JointGraphs, WorkOfAnotherGroupOfRanksBeginsASegment) {
  Meeting other_meeting(2);
  std::vector<std::string> logs(2);
  on_all([&](Rank& rank) {
    MeetingRanks others(other_meeting, rank.index);
    for (int time = 0; time < 2; ++time) {
      rank.stream.log.clear();
      rank.stream.begin_step();
      rank.stream.ranks = &rank.ranks;
      rank.stream.give("aAbB");
      rank.stream.ranks = &others;
      rank.stream.give("CcdcC");
      rank.stream.end_step();
    }
    logs[rank.index] = rank.stream.log;
    rank.stream.drop_joint_graphs();
  });
  EXPECT_EQ(logs, Logs(2, "m0(aAbB)g0 m8(CcdcC)g8 "));
}

/// Other ranks may not come any more. Memory is freed before the step is dropped.
TEST_F(JointGraphs, AfterAnErrorNobodyIsWaitedFor) {
  struct Freed {
    LoggedStream& stream;
    ~Freed() { stream.mark(); }
  };
  LoggedStream& stream = all[0]->stream;
  EXPECT_THROW(
      {
        stream.begin_step();
        const Freed freed{stream};
        stream.give("aAb");
        fail<SystemError>("an op failed");
      },
      SystemError);
  stream.drop_step();
  EXPECT_EQ(stream.log, "|");
}

struct ThreeRanks : JointGraphs {
  ThreeRanks() : JointGraphs(3) {}
};

/// Each rank has other addresses and cuts at other places, as it happens. Nobody waits for ever, and
/// what one does by a graph all do by the graph of one capture.
TEST_F(ThreeRanks, DoCollectivesAlikeWhateverEachDoesBetween) {
  on_all([](Rank& rank) {
    std::mt19937_64 random(rank.index + 1);
    const auto happens = [&](int64_t one_in) {
      return std::uniform_int_distribution<int64_t>(1, one_in)(random) == 1;
    };
    std::mt19937_64 same_on_all(7);
    for (int step = 0; step < 400; ++step) {
      const size_t works = 2 + same_on_all() % 3;
      const char* const between = works % 2 == 0 ? "b" : "";  // where not, what is cut off is short
      std::string given = "a";
      for (size_t work = 0; work < works; ++work) {
        given += happens(40) ? "x" : between;
        given += static_cast<char>(happens(40) ? 'Z' : 'A' + work);
        if (happens(15)) given += "|";
      }
      if (happens(50)) rank.stream.drop_joint_graphs();
      rank.stream.step(given);
    }
  });
  expect_same_captures();
  const GraphCounts& counts = all[0]->counts();
  EXPECT_GT(counts.joint, 50);
  EXPECT_GT(counts.disagreed, 50);
  EXPECT_EQ(counts.why_not_joint, "");
}

}  // namespace
}  // namespace pecia::device
