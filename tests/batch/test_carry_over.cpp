// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/work/batch/carry_over.hpp"
#include "lib/work/batch/output.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/results_samples.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::batch {
namespace {

using io::TurnState;
using test::sample_result;

std::string settings(const std::string& over_length, int max_new_tokens,
                     const std::string& rope = "auto") {
  return fmt::format(
      R"({{"limits.over_length":"{}","model.rope_scaling":"{}","generation.max_new_tokens":{}}})",
      over_length, rope, max_new_tokens);
}

/// A run of six turns from two files, with results of all widths.
class CarryOver : public testing::Test {
 protected:
  CarryOver() : layout_(test::sample_layout(6, 2, 1)) {
    layout_.inputs = {"a.h5", "b.h5"};
    layout_.identity = R"({"seed":0,"input_sha256":["aaaa","bbbb"]})";
    layout_.settings = {settings("fail", 10)};
    for (io::ResultTurn& turn : layout_.turns) turn.slots = 10, turn.shard = 0;
    layout_.turns.back().shard = 1;
  }
  void open(bool retry_failed = false) {
    Output(folder_.path(), layout_, false, retry_failed,
           [this](const std::string& text) { said_ += text + '\n'; });
  }
  std::filesystem::path path() const { return folder_ / "results.h5"; }
  io::ResultsFile results() const { return io::ResultsFile(path()); }
  void write(int64_t row, TurnState state, int64_t tokens) {
    io::ResultsFile file = results();
    file.write(row, row_of(file, row, tokens), state);
  }
  static io::TurnResult row_of(const io::ResultsFile& file, int64_t row, int64_t tokens) {
    return sample_result(file.layout(), row, tokens);
  }
  void set_max_new_tokens(int max_new_tokens) {
    for (io::ResultTurn& turn : layout_.turns) turn.slots = max_new_tokens;
    layout_.settings = {settings("fail", max_new_tokens)};
  }
  uint64_t inode() const {
    struct stat found {};
    ::stat(path().c_str(), &found);
    return found.st_ino;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename().string());
    return names;
  }

  test::TempFolder folder_;
  io::ResultsLayout layout_;
  std::string said_;
};

TEST_F(CarryOver, IsNotNeededWhereNothingDiffers) {
  open();
  write(0, TurnState::done, 4);
  write(1, TurnState::failed, 0);
  const uint64_t before = inode();
  open(true);
  EXPECT_EQ(inode(), before);
  EXPECT_EQ(results().state(1), TurnState::open);
  EXPECT_EQ(said_, "");
}

TEST_F(CarryOver, SaysForHowManyTurnsAChangedKeyHolds) {
  open();
  write(0, TurnState::done, 4);
  layout_.settings = {settings("truncate_left", 20)};
  const io::ResultsFile old = results();
  const auto remarks = [&](const DependsOn& depends_on) {
    std::string all;
    for (const auto& remark : continuation(old, layout_, false, path(), depends_on).remarks)
      all += remark.substr(remark.find(" in ") + 4) + '\n';
    return all;
  };
  EXPECT_EQ(remarks([](const std::string& key, int64_t row) {
              return key == "limits.over_length" && row == 3;
            }),
            "limits.over_length (fail → truncate_left): it holds for 1 of the 5 turns that are not "
            "done; the others do not depend on it\n"
            "generation.max_new_tokens (10 → 20): it holds for 0 of the 5 turns that are not done, "
            "which do not depend on it\n");
}

TEST_F(CarryOver, GivesFailedTurnsTheNewSettingsWhenAsked) {
  open();
  write(0, TurnState::done, 4);
  write(1, TurnState::failed, 0);
  write(2, TurnState::failed, 0);
  layout_.settings = {settings("truncate_middle", 10)};
  open();
  {
    const io::ResultsFile kept = results();
    EXPECT_EQ(kept.state(1), TurnState::failed);
    EXPECT_EQ(kept.layout().turns[1].settings, 0) << "it failed under the old ones";
    EXPECT_EQ(kept.layout().turns[3].settings, 1);
    EXPECT_EQ(said_,
              "the job differs from the earlier start in limits.over_length (fail → "
              "truncate_middle): it holds for the 3 turns that are not done\n");
  }
  said_.clear();
  open(true);
  const io::ResultsFile after = results();
  EXPECT_EQ(after.layout().settings,
            (std::vector<std::string>{settings("fail", 10), settings("truncate_middle", 10)}));
  EXPECT_EQ(after.state(0), TurnState::done);
  EXPECT_EQ(after.layout().turns[0].settings, 0);
  EXPECT_TRUE(after.read(0) == row_of(after, 0, 4));
  for (const int64_t row : {1, 2}) {
    EXPECT_EQ(after.state(row), TurnState::open);
    EXPECT_EQ(after.layout().turns[row].settings, 1);
  }
  EXPECT_NE(said_.find("it holds for the 2 turns that are not done"), std::string::npos) << said_;
}

TEST_F(CarryOver, KnowsSettingsThatItHadBefore) {
  open();
  layout_.settings = {settings("truncate_left", 10)};
  open();
  layout_.settings = {settings("fail", 10)};
  open();
  EXPECT_EQ(results().layout().settings.size(), 2u);
  EXPECT_EQ(results().layout().turns[0].settings, 0);
}

TEST_F(CarryOver, LetsPartialAnswersGrowLonger) {
  open();
  write(0, TurnState::done, 10);
  write(1, TurnState::partial, 7);
  set_max_new_tokens(300);
  open();
  io::ResultsFile after = results();
  EXPECT_EQ(after.state(0), TurnState::done);
  EXPECT_TRUE(after.read(0) == row_of(after, 0, 10));
  EXPECT_EQ(after.layout().turns[0].slots, 10) << "a finished row keeps its room";
  EXPECT_EQ(after.state(1), TurnState::partial);
  EXPECT_TRUE(after.read(1) == row_of(after, 1, 7));
  after.write(1, row_of(after, 1, 300), TurnState::done);
  EXPECT_TRUE(results().read(1) == row_of(after, 1, 300));
}

TEST_F(CarryOver, EndsPartialAnswersThatAreLongerThanIsNowAllowed) {
  open();
  write(0, TurnState::done, 10);
  write(1, TurnState::partial, 7);
  write(2, TurnState::partial, 4);
  write(3, TurnState::partial, 3);
  set_max_new_tokens(4);
  open();
  const io::ResultsFile after = results();
  EXPECT_EQ(after.layout().turns[0].slots, 10);
  EXPECT_TRUE(after.read(0) == row_of(after, 0, 10));
  for (const int64_t row : {1, 2}) {
    EXPECT_EQ(after.state(row), TurnState::done);
    EXPECT_TRUE(after.read(row) == row_of(after, row, 4)) << "row " << row;
  }
  EXPECT_EQ(after.state(3), TurnState::partial);
}

TEST_F(CarryOver, StartsPartialAnswersOverWhosePromptIsAnother) {
  open();
  write(0, TurnState::done, 10);
  write(1, TurnState::partial, 7);
  layout_.settings = {settings("fail", 10, "yarn")};
  open();
  EXPECT_EQ(results().state(0), TurnState::done);
  EXPECT_EQ(results().state(1), TurnState::open);
  EXPECT_NE(said_.find("1 turn under way starts over"), std::string::npos) << said_;

  write(1, TurnState::partial, 7);
  write(2, TurnState::partial, 7);
  layout_.settings = {settings("truncate_left", 10, "yarn")};
  --layout_.turns[1].prompt_tokens;  // which that cuts
  open();
  EXPECT_EQ(results().state(1), TurnState::open);
  EXPECT_EQ(results().state(2), TurnState::partial) << "its prompt is not cut";
  layout_.settings = {settings("truncate_middle", 10, "yarn")};
  open();
  EXPECT_EQ(results().state(2), TurnState::open) << "it may have been cut elsewhere";
}

TEST_F(CarryOver, RefusesDamagedAnswersThatItWouldGoOnFrom) {
  open();
  io::ResultsFile file = results();
  // Rows 0 and 1 are turns of one request.
  const auto write_damaged = [&](int64_t row, TurnState state) {
    io::TurnResult damaged = row_of(file, row, 4);
    damaged.tokens[2] = static_cast<int32_t>(layout_.vocab);
    file.reopen(row);
    file.write(row, damaged, state);
  };
  const auto expect_named = [&](int64_t row) {
    test::expect_error<InputError>(
        [&] { open(); }, {"/tokens[", "vocabulary has 11", fmt::format("row {},", row), "damaged"});
  };
  write_damaged(1, TurnState::partial);
  expect_named(1);
  write_damaged(0, TurnState::done);
  file.reopen(1);
  expect_named(0);
  write(1, TurnState::failed, 0);
  EXPECT_NO_THROW(open()) << "nothing goes on from it";
}

TEST_F(CarryOver, TakesMoreInput) {
  open();
  write(0, TurnState::done, 4);
  write(5, TurnState::failed, 0);
  layout_.inputs.push_back("c.h5");
  layout_.identity = R"({"seed":0,"input_sha256":["aaaa","bbbb","cccc"]})";
  layout_.turns.push_back({"a longer id than the others", 2, 0, 0, 10, 3});
  open();
  const io::ResultsFile after = results();
  EXPECT_EQ(after.num_turns(), 7);
  EXPECT_TRUE(after.read(0) == row_of(after, 0, 4));
  EXPECT_EQ(after.state(5), TurnState::failed);
  EXPECT_EQ(after.state(6), TurnState::open);
  EXPECT_EQ(after.layout().turns[6].request_id, "a longer id than the others");
  EXPECT_EQ(after.layout().inputs.size(), 3u);
  EXPECT_EQ(after.layout().identity, layout_.identity);
  EXPECT_EQ(said_, "the job has 1 turn more than at the earlier start, from 1 new input file\n");
}

TEST_F(CarryOver, RefusesInputThatIsGoneOrChanged) {
  open();
  layout_.inputs.pop_back();
  layout_.identity = R"({"seed":0,"input_sha256":["aaaa"]})";
  test::expect_error<InputError>([&] { open(); }, {"belongs to another run", "input b.h5",
                                                   "is not among the inputs", "--fresh"});
  layout_.inputs.push_back("b.h5");
  layout_.identity = R"({"seed":0,"input_sha256":["aaaa","dddd"]})";
  test::expect_error<InputError>([&] { open(); }, {"input b.h5", "has other contents now"});
  layout_.identity = R"({"seed":1,"input_sha256":["aaaa","bbbb"]})";
  test::expect_error<InputError>([&] { open(); }, {"seed: 0 there, 1 now"});
}

TEST_F(CarryOver, RefusesOtherContentsOfTheWeights) {
  std::filesystem::remove(path());
  const auto of = [](const std::string& contents) {
    return fmt::format(R"({{"model":{{"dtype":"auto","contents_sha256":"{}"}}}})", contents);
  };
  layout_.identity = of("aaaa");
  open();
  EXPECT_TRUE(continuation(results(), layout_, false, path()).warnings.empty());
  layout_.identity = of("bbbb");
  test::expect_error<InputError>(
      [&] { open(); },
      {"belongs to another run", "the contents of the model's weights (model/contents_sha256)",
       "\"aaaa\" there, \"bbbb\" now", "replaced", "--fresh"});
}

TEST_F(CarryOver, GoesOnWithAWarningWhereTheContentsOfTheWeightsAreUnknown) {
  std::filesystem::remove(path());
  layout_.identity = R"({"model":{"dtype":"auto"}})";
  open();
  write(0, TurnState::done, 4);
  layout_.identity = R"({"model":{"dtype":"auto","contents_sha256":"bbbb"}})";
  const std::vector<std::string> warnings =
      Output(folder_.path(), layout_, false, false, [](const std::string&) {}).warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("does not say which contents the weights had"), std::string::npos);
  EXPECT_EQ(results().state(0), TurnState::done);
  layout_.identity = R"({"model":{"dtype":"bf16","contents_sha256":"bbbb"}})";
  test::expect_error<InputError>([&] { open(); }, {"model/dtype: \"auto\" there, \"bf16\" now"});
}

TEST_F(CarryOver, KeepsWholeVocabularies) {
  std::filesystem::remove(path());
  layout_.logprobs = layout_.prompt_logprobs = -1;
  open();
  for (const int64_t row : {0, 1, 2, 3}) write(row, TurnState::done, row);
  set_max_new_tokens(20);
  open();
  const io::ResultsFile after = results();
  for (const int64_t row : {0, 1, 2, 3})
    EXPECT_TRUE(after.read(row) == row_of(after, row, row)) << "row " << row;
}

TEST_F(CarryOver, LeavesNothingBehindAndClearsWhatAKillLeft) {
  open();
  for (const char* name : {"results.h5.new", "results.h5.new.unfinished"})
    std::ofstream(folder_ / name) << "half a file";
  open();
  EXPECT_EQ(files(), std::vector<std::string>{"results.h5"});
  set_max_new_tokens(20);
  std::ofstream(folder_ / "results.h5.new") << "half a file";
  open();
  EXPECT_EQ(files(), std::vector<std::string>{"results.h5"});
}

TEST_F(CarryOver, LeavesTheOldFileWhereThereIsNoRoomForTheNewOne) {
  open();
  write(0, TurnState::done, 4);
  set_max_new_tokens(20);
  std::filesystem::create_directory(folder_ / "results.h5.new.unfinished");
  std::ofstream(folder_ / "results.h5.new.unfinished" / "x") << "in the way";
  EXPECT_THROW(open(), SystemError);
  EXPECT_TRUE(results().read(0) == row_of(results(), 0, 4));
  EXPECT_EQ(results().layout().turns[1].slots, 10);
}

TEST_F(CarryOver, MayBeKilledAtAnyMoment) {
  constexpr int rounds = 40;
  constexpr int64_t num_turns = 3000, done = 2000;
  layout_ = test::sample_layout(num_turns, 2, 1);
  layout_.settings = {settings("fail", 0)};
  open();
  {
    io::ResultsFile file = results();
    std::vector<io::TurnResult> rows;
    for (int64_t row = 0; row < done; ++row)
      rows.push_back(row_of(file, row, file.layout().turns[row].slots));
    std::vector<io::TurnUpdate> updates;
    for (int64_t row = 0; row < done; ++row) updates.push_back({row, rows[row], TurnState::done});
    file.write_all(updates);
  }
  int torn = 0, replaced = 0;
  for (int round = 1; round <= rounds; ++round) {
    layout_.settings = {settings("fail", round)};
    for (int64_t row = done; row < num_turns; ++row) layout_.turns[row].slots = round;
    const uint64_t before = inode();
    const pid_t child = ::fork();
    if (child == 0) {
      open();
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 3));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    torn += std::filesystem::exists(folder_ / "results.h5.new") ||
            std::filesystem::exists(folder_ / "results.h5.new.unfinished");
    replaced += inode() != before;
    const io::ResultsFile file = results();
    for (int64_t row = 0; row < num_turns; row += row < done ? 97 : 1) {
      ASSERT_EQ(file.state(row), row < done ? TurnState::done : TurnState::open) << row;
      if (row < done) {
        ASSERT_TRUE(file.read(row) == row_of(file, row, file.layout().turns[row].slots)) << row;
      }
    }
  }
  open();
  EXPECT_EQ(results().layout().turns[done].slots, rounds);
  EXPECT_GT(torn, 0) << "no kill was in time";
}

}  // namespace
}  // namespace pecia::batch
