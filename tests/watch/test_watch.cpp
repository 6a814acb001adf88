// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/series.hpp"
#include "lib/ranks/watch/watch.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::watch {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class WatchTest : public testing::Test {
 protected:
  WatchTest() { folder_ = WatchBoard::make_folder(output_); }

  std::unique_ptr<WatchBoard> board(int rank, int size) const {
    return std::make_unique<WatchBoard>(folder_, rank, size);
  }
  /// Makes a board in a process of its own, and ends that by `signal`.
  void live_and_die(int rank, int size, int signal) const {
    const pid_t child = ::fork();
    if (child == 0) {
      WatchBoard own(folder_, rank, size);
      own.show(deciding());
      ::raise(signal);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  static RankRecord deciding() {
    Activity activity;
    activity.phase = "decode";
    activity.pass = 7;
    activity.layer = 3;
    activity.span = "attention";
    return record_of(activity, "n1");
  }

  test::TempFolder own_;
  fs::path output_ = own_.path(), folder_;
};

using WatchBoardTest = WatchTest;

TEST_F(WatchBoardTest, ShowsWhatARankIsAt) {
  const auto zero = board(0, 2), one = board(1, 2);
  Activity activity;
  activity.phase = "prefill";
  comm::NumberedSeries series(activity, 42);
  EXPECT_EQ(series.next(), 1);
  EXPECT_EQ(series.next(), 2);
  series.show_wait("all_gather", 2);
  one->show(record_of(activity, "n5"));

  const auto seen = zero->read(1);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->beats, 1);
  EXPECT_STREQ(seen->host.data(), "n5");
  EXPECT_STREQ(seen->phase.data(), "prefill");
  EXPECT_STREQ(seen->operation.data(), "all_gather");
  EXPECT_EQ(seen->group, 42u);
  EXPECT_EQ(seen->number, 2);
  EXPECT_EQ(seen->number_in(42), 2);
  EXPECT_FALSE(seen->number_in(43));

  series.show_no_wait();
  one->show(record_of(activity, "n5"));
  EXPECT_FALSE(zero->read(1)->waits());
  EXPECT_EQ(zero->read(1)->beats, 2);
}

TEST_F(WatchBoardTest, CutsNamesThatAreTooLong) {
  const auto zero = board(0, 1);
  Activity activity;
  activity.span = "a_name_of_more_than_thirty_two_letters_in_all";
  zero->show(record_of(activity, std::string(200, 'h')));
  EXPECT_STREQ(zero->read(0)->span.data(), "a_name_of_more_than_thirty_two_");
  EXPECT_EQ(std::string(zero->read(0)->host.data()), std::string(63, 'h'));
}

TEST_F(WatchBoardTest, TellsTheDeadFromTheLivingAndFromThoseWhoLeft) {
  const auto zero = board(0, 3);
  auto one = board(1, 3);
  live_and_die(2, 3, SIGKILL);
  EXPECT_FALSE(zero->is_dead(0));
  EXPECT_FALSE(zero->is_dead(1));
  EXPECT_TRUE(zero->is_dead(2));
  EXPECT_TRUE(one->is_dead(2)) << "who has looked before leaves no trace";
  EXPECT_STREQ(zero->read(2)->phase.data(), "decode");
  one.reset();
  EXPECT_FALSE(zero->is_dead(1));
  EXPECT_FALSE(zero->read(1));
}

TEST_F(WatchBoardTest, LetsOneSpeakUntilAllHaveLeft) {
  auto zero = board(0, 2), one = board(1, 2);
  EXPECT_TRUE(one->first_to_speak());
  EXPECT_FALSE(zero->first_to_speak());
  one.reset();
  EXPECT_FALSE(zero->first_to_speak());
  zero.reset();
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(WatchBoardTest, LeavesNoSilenceWhereSomebodyHasRemovedIt) {
  const auto zero = board(0, 2);
  fs::remove_all(output_);
  EXPECT_TRUE(zero->first_to_speak());
  zero->show(deciding());
  EXPECT_FALSE(fs::exists(output_));
}

TEST_F(WatchBoardTest, RemovesAnOutputThatItMadeWhileThatIsEmpty) {
  const fs::path empty = output_ / "a" / "empty", full = output_ / "full", old = output_ / "old";
  fs::create_directory(old);
  for (const fs::path& output : {empty, full, old}) {
    const WatchBoard one(WatchBoard::make_folder(output), 0, 1);
    if (output == full) std::ofstream(full / "results.h5") << "results";
  }
  EXPECT_FALSE(fs::exists(empty));
  EXPECT_TRUE(fs::exists(full));
  EXPECT_TRUE(fs::exists(old)) << "a folder of the user";
}

TEST_F(WatchBoardTest, RemovesWhatKilledRunsLeftAndNoOther) {
  const auto zero = board(0, 1);
  const fs::path results = output_ / "results.h5";
  fs::create_directory(results);
  const fs::path living = WatchBoard::make_folder(output_);
  const WatchBoard of_another_run(living, 0, 1);
  const fs::path current = std::exchange(folder_, WatchBoard::make_folder(output_));
  live_and_die(0, 1, SIGKILL);
  const fs::path left = std::exchange(folder_, current);
  EXPECT_TRUE(fs::exists(left));
  WatchBoard::remove_others(current);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(living));
  EXPECT_TRUE(fs::exists(current));
  EXPECT_TRUE(fs::exists(results));
}

TEST_F(WatchBoardTest, SaysWhereItCannotBeMade) {
  const fs::path file = output_ / "file";
  std::ofstream(file) << "not a folder";
  EXPECT_THROW(WatchBoard::make_folder(file), SystemError);
  EXPECT_THROW(WatchBoard(file, 0, 2), SystemError);
  const auto zero = board(0, 2);
  EXPECT_THROW(board(0, 2), SystemError) << "two ranks of the same number";
}

/// A watch of rank 0, and what it did when it ended the job.
class Watching {
 public:
  Watching(std::unique_ptr<WatchBoard> board, std::chrono::duration<double> silence)
      : watch_([this] { ended_.set_value(); }) {
    testing::internal::CaptureStderr();
    watch_.begin(std::move(board), silence, [] { return false; });
  }
  std::string words_at_the_end() {
    ended_.get_future().wait();
    return testing::internal::GetCapturedStderr();
  }

 private:
  std::promise<void> ended_;
  Watch watch_;
};

TEST_F(WatchTest, NamesTheDead) {
  live_and_die(1, 2, SIGKILL);
  Watching watching(board(0, 2), 3600s);
  EXPECT_EQ(watching.words_at_the_end(),
            "pecia: rank 1 (host n1) has died in phase decode, pass 7, layer 3, last span "
            "attention\n");
}

TEST_F(WatchTest, NamesTheSilentAndWhoWaitsForIt) {
  auto zero = board(0, 3);
  const auto one = board(1, 3), two = board(2, 3);
  Activity activity;
  comm::NumberedSeries series(activity, 42);
  series.next();
  RankRecord behind = record_of(activity, "n1");
  one->show(behind);
  series.next();
  series.show_wait("broadcast", 2);
  two->show(record_of(activity, "n2"));
  Watching watching(std::move(zero), 200ms);
  EXPECT_EQ(watching.words_at_the_end(),
            "pecia: rank 1 (host n1) shows no sign of life for 0.2 s, in phase start; broadcast "
            "#2: arrived: rank 2; not arrived: rank 1\n");
}

TEST_F(WatchTest, LeavesTheWordToWhoSpokeFirst) {
  live_and_die(1, 3, SIGABRT);
  const auto two = board(2, 3);
  EXPECT_TRUE(two->first_to_speak());
  {
    Watch watch([] { ADD_FAILURE() << "ended twice"; });
    EXPECT_FALSE(watch.first_to_speak());
    watch.begin(board(0, 3), 3600s, [] { return true; });
    EXPECT_EQ(watch.first_to_speak(), false);
    EXPECT_EQ(watch.account(),
              "; rank 1 (host n1) has died in phase decode, pass 7, layer 3, last span attention");
  }
  EXPECT_FALSE(two->read(0)) << "rank 0 has left";
}

TEST_F(WatchTest, AccountsForAWaitThatHasFailed) {
  const auto one = board(1, 2);
  Watch watch([] { ADD_FAILURE() << "nobody is dead"; });
  Activity activity;
  comm::NumberedSeries mine(*watch.activity(), 7), theirs(activity, 7);
  mine.show_wait("all_reduce", mine.next());
  one->show(record_of(activity, "n1"));
  watch.begin(board(0, 2), 3600s, [] { return false; });
  EXPECT_NE(watch.account().find("; all_reduce #1: arrived: "), std::string::npos);
  EXPECT_NE(watch.account().find("not arrived: rank 1; rank 1 (host n1) is in phase start"),
            std::string::npos)
      << watch.account();
}

TEST(WatchWords, TellWhoIsMissingWhere) {
  const uint64_t group = 9;
  const auto at = [&](int64_t number, bool waits) {
    Activity activity;
    activity.phase = "decode";
    activity.series[5].group = group;
    activity.series[5].number = number;
    if (waits) {
      activity.wait.operation = "gather";
      activity.wait.group = group;
      activity.wait.number = number;
    }
    return record_of(activity, "n");
  };
  const auto outsider = record_of(Activity(), "n");
  const RankRecords all = {at(8, true), at(9, false), at(7, true), outsider, {}, at(8, false)};
  EXPECT_EQ(arrivals(*all[0], all),
            "gather #8: arrived: ranks 0-1,5; not arrived: rank 2; rank 2 (host n) is in phase "
            "decode, waiting for gather #7");
  EXPECT_EQ(arrivals(*all[2], all), "gather #7: arrived: ranks 0-2,5; not arrived: nobody");
  EXPECT_EQ(arrivals(*all[1], all), "");
  EXPECT_EQ(wait_for(2, all), &*all[0]) << "the wait that rank 2 has not come to";
  const RankRecords ring = {at(12, true), at(11, true), at(10, false)};
  EXPECT_EQ(wait_for(2, ring), &*ring[1]) << "the earlier one";
  EXPECT_EQ(wait_for(1, all), &*all[0]) << "the first, as nobody waits for rank 1";
  EXPECT_EQ(wait_for(3, all), &*all[0]);
  EXPECT_EQ(wait_for(0, {all[1], all[3], std::nullopt}), nullptr);
}

TEST(NumberedSeries, TakesAPlaceAndGivesItBack) {
  Activity activity;
  {
    std::vector<std::unique_ptr<comm::NumberedSeries>> series;
    for (uint64_t group = 1; group <= activity.series.size() + 3; ++group) {
      series.push_back(std::make_unique<comm::NumberedSeries>(activity, group));
      for (uint64_t i = 0; i < group; ++i) series.back()->next();
    }
    EXPECT_EQ(series.back()->next(), static_cast<int64_t>(activity.series.size()) + 4);
    for (uint64_t group = 1; group <= activity.series.size(); ++group) {
      EXPECT_EQ(activity.series[group - 1].group, group);
      EXPECT_EQ(activity.series[group - 1].number, static_cast<int64_t>(group));
    }
  }
  for (const Activity::Series& one : activity.series) EXPECT_EQ(one.group, 0u);
}

/// Teams of ranks 0, 1 and of 2, 3 number their operations apart; then all are one group again.
TEST(WatchWords, TellWhoIsMissingInATeam) {
  constexpr uint64_t left = 5, right = 8;
  std::array<Activity, 4> activities;
  std::vector<std::unique_ptr<comm::NumberedSeries>> series;
  for (int rank = 0; rank < 4; ++rank) {
    Activity& activity = activities[rank];
    activity.phase = "decode";
    series.push_back(std::make_unique<comm::NumberedSeries>(activity, 42));
    series.back()->next();
    series.back()->enter_team(rank < 2 ? left : right, 700);
    activity.pass = 7;
    activity.team = rank < 2 ? 0 : 1;
    activity.instance = rank;
  }
  const auto all = [&] {
    RankRecords records;
    for (const Activity& activity : activities) records.emplace_back(record_of(activity, "n"));
    return records;
  };
  for (const int rank : {0, 2, 3}) EXPECT_EQ(series[rank]->next(), 701);
  series[0]->show_wait("all_to_all", 701);
  EXPECT_EQ(arrivals(*all()[0], all()),
            "all_to_all #701: arrived: rank 0; not arrived: rank 1; rank 1 (host n) is in phase "
            "decode, pass 7, instance 1 in team 0");
  for (const auto& one : series) one->enter_team(0, 0);
  for (const int rank : {0, 1, 3}) EXPECT_EQ(series[rank]->next(), 2);
  series[0]->show_wait("broadcast", 2);
  EXPECT_TRUE(arrivals(*all()[0], all())
                  .starts_with("broadcast #2: arrived: ranks 0-1,3; not arrived: rank 2;"));
}

}  // namespace
}  // namespace pecia::watch
