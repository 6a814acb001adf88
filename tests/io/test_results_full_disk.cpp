// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/files/results/results.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/file_size_limit.hpp"
#include "tests/io/results_samples.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

using test::FileSizeLimit;
using test::sample_result;

ResultsLayout two_long_turns() {
  ResultsLayout layout = test::sample_layout(2, 0, 0);
  layout.turns[0].slots = layout.turns[1].slots = 100'000;
  return layout;
}

TEST(FullDisk, LeavesTheRowOpenAndTheNextAttemptSucceeds) {
  const test::TempFolder folder;
  const ResultsLayout layout = two_long_turns();
  const auto path = folder / "r.h5";
  ResultsFile::create(path, layout);
  ResultsFile file(path);
  const TurnResult row = sample_result(layout, 1, 100'000);
  // The file's columns come first, then 800 000 bytes each of tokens and log-probabilities. The
  // limits lie in turn 1's tokens, in its log-probabilities, and before everything.
  const auto size = std::filesystem::file_size(path);
  for (const uintmax_t limit : {size - 1'000'000, size - 200'000, uintmax_t{0}}) {
    const FileSizeLimit full(limit);
    test::expect_error<SystemError>([&] { file.write(1, row, TurnState::done); },
                                    {path.string(), "File too large", "row 1", "'request-0'"});
    EXPECT_EQ(file.state(1), TurnState::open) << limit;
  }
  file.write(1, row, TurnState::done);
  EXPECT_TRUE(ResultsFile(path).read(1) == row);
}

TEST(FullDisk, KeepsWhatAPartialTurnHad) {
  const test::TempFolder folder;
  const ResultsLayout layout = two_long_turns();
  const auto path = folder / "r.h5";
  ResultsFile::create(path, layout);
  ResultsFile file(path);
  file.write(1, sample_result(layout, 1, 10), TurnState::partial);
  {
    const FileSizeLimit full(std::filesystem::file_size(path) - 200'000);
    EXPECT_THROW(file.write(1, sample_result(layout, 1, 100'000), TurnState::done), SystemError);
  }
  const ResultsFile reopened(path);
  EXPECT_EQ(reopened.state(1), TurnState::partial);
  EXPECT_TRUE(reopened.read(1) == sample_result(layout, 1, 10));
}

TEST(FullDisk, IsSaidWhenTheFileCannotBeMade) {
  const test::TempFolder folder;
  const FileSizeLimit full(100'000);
  test::expect_error<SystemError>([&] { ResultsFile::create(folder / "r.h5", two_long_turns()); },
                                  {(folder / "r.h5").string(), "File too large", "bytes", "free"});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "no unfinished file is left";
}

TEST(FullDisk, IsSaidWhenTheFolderCannotBeWrittenTo) {
  const test::TempFolder folder;
  test::expect_error<SystemError>(
      [&] { ResultsFile::create(folder / "missing" / "r.h5", two_long_turns()); },
      {(folder / "missing").string(), "No such file"});
}

}  // namespace
}  // namespace pecia::io
