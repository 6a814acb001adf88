// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/work/batch/output.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::batch {
namespace {

class RunFolder : public testing::Test {
 protected:
  RunFolder() {
    layout_.turns = {{"a", 0, 0, 0, 4, 2}, {"b", 0, 1, 0, 4, 2}};
    layout_.identity = R"({"seed": 0})";
    layout_.settings = {R"({"limits.over_length":"fail"})"};
  }
  Output open(bool fresh = false, bool retry_failed = false) {
    return Output(path(), layout_, fresh, retry_failed,
                  [this](const std::string& text) { said_ += text; });
  }
  std::filesystem::path path() const { return folder_ / "runs" / "x"; }
  static io::TurnResult answer() {
    io::TurnResult result;
    result.tokens = {1};
    result.token_logprobs = {-1};
    return result;
  }
  static io::TurnResult failure() {
    io::TurnResult result;
    result.error = "bad";
    return result;
  }
  io::ResultsFile results() const { return io::ResultsFile(path() / "results.h5"); }

  test::TempFolder folder_;
  io::ResultsLayout layout_;
  std::string said_;
};

TEST_F(RunFolder, IsMadeWithItsResults) {
  EXPECT_EQ(open().results_path(), path() / "results.h5");
  EXPECT_EQ(results().num_turns(), 2);
  EXPECT_EQ(said_, "");
}

TEST_F(RunFolder, IsContinuedByTheSameRun) {
  open();
  results().write(0, answer(), io::TurnState::done);
  open();
  EXPECT_EQ(results().state(0), io::TurnState::done);
}

TEST_F(RunFolder, IsRefusedToAnotherRun) {
  open();
  layout_.identity = R"({"seed": 1})";
  test::expect_error<InputError>([&] { open(); },
                                 {"results.h5", "seed: 0 there, 1 now", "--fresh"});
}

TEST_F(RunFolder, IsHeldByOneRunAtATime) {
  const Output held = open();
  test::expect_error<InputError>([&] { open(); }, {path().string()});
}

TEST_F(RunFolder, KeepsOlderResultsBesideFreshOnes) {
  open();
  results().write(0, answer(), io::TurnState::done);
  layout_.identity = R"({"seed": 1})";
  open(true);
  EXPECT_EQ(results().state(0), io::TurnState::open);
  EXPECT_EQ(io::ResultsFile(path() / "results.1.h5").state(0), io::TurnState::done);
  EXPECT_NE(said_.find("results.1.h5"), std::string::npos);
  open(true);
  EXPECT_TRUE(std::filesystem::exists(path() / "results.2.h5"));
  EXPECT_EQ(io::ResultsFile(path() / "results.1.h5").state(0), io::TurnState::done);
}

TEST_F(RunFolder, OpensFailedTurnsAgainWhenAsked) {
  open();
  results().write(0, failure(), io::TurnState::failed);
  results().write(1, answer(), io::TurnState::done);
  open();
  EXPECT_EQ(results().state(0), io::TurnState::failed);
  open(false, true);
  EXPECT_EQ(results().state(0), io::TurnState::open);
  EXPECT_EQ(results().state(1), io::TurnState::done);
}

TEST_F(RunFolder, IsRefusedWhereAFileIs) {
  std::ofstream(folder_ / "runs") << "text";
  test::expect_error<InputError>([&] { open(); }, {"runs", "choose another folder"});
}

}  // namespace
}  // namespace pecia::batch
