// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/files/results/journal_gatherer.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/file_size_limit.hpp"
#include "tests/io/results_samples.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;
using test::sample_result;

/// Results of 60 turns, which replicas take in turn.
struct GathererTest : testing::Test {
  static constexpr int64_t turns = 60;

  GathererTest() {
    ResultsFile::create(results_path(), test::sample_layout(turns, 2, 1));
    results.emplace(results_path());
    fs::create_directory(journals());
  }

  fs::path results_path() const { return folder / "r.h5"; }
  fs::path journals() const { return folder / "journal"; }
  JournalGatherer gatherer(int64_t batch_bytes = JournalGatherer::usual_batch_bytes) const {
    return {journals(), results_path(), batch_bytes};
  }
  JournalWriter writer(int32_t replica, int64_t most_bytes = JournalWriter::usual_bytes) const {
    return {journals(), replica, *results, most_bytes};
  }
  int64_t slots(int64_t turn) const { return results->layout().turns[turn].slots; }
  void write(JournalWriter& to, int64_t turn, int64_t tokens, TurnState state) const {
    const TurnResult row = sample_result(results->layout(), turn, tokens);
    const TurnUpdate update{turn, row, state};
    to.append(std::span(&update, 1));
  }
  void write(JournalWriter& to, int64_t turn) const {
    write(to, turn, slots(turn), TurnState::done);
  }
  /// Turns that are done, each as it was written.
  int64_t done() const {
    int64_t count = 0;
    for (int64_t turn = 0; turn < turns; ++turn) {
      if (results->state(turn) != TurnState::done) continue;
      ++count;
      EXPECT_TRUE(results->read(turn) == sample_result(results->layout(), turn, slots(turn)));
    }
    return count;
  }

  const test::TempFolder folder;
  std::optional<ResultsFile> results;
};

TEST_F(GathererTest, BringsInTheRowsOfAllReplicasWhileTheyWrite) {
  JournalGatherer gathering = gatherer(1000);
  EXPECT_EQ(gathering.gather(), 0);
  std::vector<JournalWriter> writers;
  for (int32_t replica = 0; replica < 4; ++replica) writers.push_back(writer(replica, 2000));
  for (int64_t turn = 0; turn < turns; ++turn) {
    write(writers[turn % 4], turn);
    if (turn % 10 != 9) continue;
    EXPECT_EQ(gathering.gather(), 10);
    EXPECT_EQ(done(), turn + 1);
    EXPECT_EQ(journals_in(journals()).size(), 4u) << "what is brought in and left behind goes";
  }
  EXPECT_GT(journals_in(journals()).front().number, 0) << "there was something to remove";
  EXPECT_TRUE(gathering.finish().empty());
  EXPECT_FALSE(fs::exists(journals()));
  EXPECT_EQ(gathering.rows_written(), turns);
}

TEST_F(GathererTest, PassesOverWhatTheResultsHave) {
  JournalWriter to = writer(0);
  for (const int64_t turn : {5, 6, 7}) write(to, turn);
  EXPECT_EQ(gatherer().gather(), 3);
  EXPECT_EQ(gatherer().gather(), 0) << "a start that was killed before it removed the journals";
  results->reopen(6);
  EXPECT_EQ(gatherer().gather(), 1);
  EXPECT_EQ(done(), 3);
}

TEST_F(GathererTest, TakesATurnThatIsPartialFirst) {
  JournalWriter to = writer(0);
  const int64_t turn = 7;  // 9 slots
  write(to, turn, 4, TurnState::partial);
  EXPECT_EQ(gatherer().gather(), 1);
  EXPECT_EQ(results->state(turn), TurnState::partial);
  EXPECT_EQ(gatherer().gather(), 1) << "the same again";
  write(to, turn);
  JournalGatherer at_once = gatherer();
  EXPECT_EQ(at_once.gather(), 2);
  EXPECT_EQ(done(), 1);
}

TEST_F(GathererTest, GivesBackWhatIsTornAndRemovesTheRest) {
  JournalWriter a = writer(0), b = writer(12);
  write(a, 1), write(a, 3), write(b, 9);
  const fs::path torn = journals() / file_name({0, 0});
  fs::resize_file(torn, fs::file_size(torn) - 1);
  std::ofstream(journals() / "12-1.rows.part") << "pec";  // a writer killed as it began
  JournalGatherer gathering = gatherer();
  const auto found = gathering.finish();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().path, torn);
  EXPECT_GT(found.front().bytes, 0);
  EXPECT_EQ(done(), 2);
  EXPECT_EQ(results->state(3), TurnState::open);
  EXPECT_FALSE(fs::exists(journals()));
  EXPECT_TRUE(gatherer().finish().empty()) << "nothing to do without a folder";
}

TEST_F(GathererTest, LeavesFilesOfOthers) {
  JournalWriter to = writer(0);
  write(to, 1);
  for (const char* name : {"notes", "1-.rows", "01-0.rows", "1-0.rows.bak"})
    std::ofstream(journals() / name) << "mine";
  EXPECT_TRUE(gatherer().finish().empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(journals()), fs::directory_iterator()), 4);
  EXPECT_EQ(done(), 1);
}

TEST_F(GathererTest, RefusesJournalsOfOtherResultsAndLeavesThem) {
  ResultsLayout other = results->layout();
  other.identity = R"({"model":"other"})";
  ResultsFile::create(folder / "other.h5", other);
  JournalWriter to = writer(0);
  write(to, 1);
  const fs::path path = journals() / file_name({0, 0});
  test::expect_error<InputError>([&] { JournalGatherer(journals(), folder / "other.h5").gather(); },
                                 {path.string(), "other results"});
  EXPECT_EQ(gatherer().gather(), 1);
}

TEST_F(GathererTest, FindsOutThatTheResultsWereMovedAlsoWithoutRows) {
  JournalGatherer gatherer(journals(), results_path());
  EXPECT_EQ(gatherer.gather(), 0);
  fs::rename(results_path(), folder / "moved.h5");
  test::expect_error<SystemError>([&] { gatherer.gather(); },
                                  {"was moved", (folder / "moved.h5").string()});
}

TEST_F(GathererTest, OnAFullDiskLeavesTheJournals) {
  JournalWriter to = writer(0);
  write(to, 1), write(to, 3);
  {
    const test::FileSizeLimit full(0);
    test::expect_error<SystemError>([&] { gatherer().finish(); },
                                    {results_path().string(), "row 1", "make room"});
  }
  EXPECT_EQ(done(), 0);
  EXPECT_TRUE(gatherer().finish().empty());
  EXPECT_EQ(done(), 2);
}

}  // namespace
}  // namespace pecia::io
