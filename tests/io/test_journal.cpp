// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/sha256.hpp"
#include "lib/files/results/journal.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/file_size_limit.hpp"
#include "tests/io/results_samples.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;
using test::sample_result;

constexpr int64_t all_bytes = int64_t{1} << 40;
/// What the layout of the first test below gives; see the schema's comment before changing it.
constexpr const char* sha256_of_schema_4 =
    "4504fb611adb5a33aeeca6536c46300a0dc6a6aefc0ddb9f5eeaeb24cde62cd8";

std::string journal_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void set_journal_text(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Results of 6 turns, and a folder for their journals.
struct JournalTest : testing::Test {
  JournalTest() {
    ResultsLayout layout = test::sample_layout(6, 2, 1);
    layout.vector_width = 3;
    layout.turns[1].vectors = 2;
    layout.turns[2].scores = 2, layout.turns[2].score_tokens = 5;
    ResultsFile::create(folder / "r.h5", layout);
    results.emplace(folder / "r.h5");
    fs::create_directory(journals());
  }

  fs::path journals() const { return folder / "journal"; }
  fs::path path(int64_t number = 0) const { return journals() / file_name({3, number}); }
  std::string head() const { return journal_head(results->layout()); }
  TurnResult row(int64_t turn) const {
    const ResultTurn& of = results->layout().turns[turn];
    TurnResult result = sample_result(results->layout(), turn, of.slots);
    result.vectors = test::ramp<float>(of.vectors * results->layout().vector_width, 0.5f, 0.25f);
    result.scores = test::ramp<double>(of.scores, -2, -0.5);
    result.score_logprobs = test::ramp<float>(of.score_tokens, -1, -0.125f);
    return result;
  }
  void write(JournalWriter& writer, const std::vector<int64_t>& turns) const {
    std::vector<TurnResult> rows;
    for (const int64_t turn : turns) rows.push_back(row(turn));
    std::vector<TurnUpdate> updates;
    for (size_t i = 0; i < turns.size(); ++i)
      updates.push_back({turns[i], rows[i], TurnState::done});
    writer.append(updates);
  }
  std::vector<JournalRow> read(JournalReader& reader, int64_t most_bytes = all_bytes) const {
    std::vector<JournalRow> rows = reader.read(most_bytes);
    for (const JournalRow& read : rows) {
      EXPECT_EQ(read.state, TurnState::done);
      EXPECT_TRUE(read.result == row(read.turn)) << "turn " << read.turn;
    }
    return rows;
  }

  const test::TempFolder folder;
  std::optional<ResultsFile> results;
};

TEST_F(JournalTest, GivesBackWhatWasAppended) {
  JournalWriter writer(journals(), 3, *results);
  EXPECT_TRUE(fs::is_empty(journals())) << "a replica without results has no journal";
  write(writer, {4, 0});
  write(writer, {});
  JournalReader reader(path(), head());
  EXPECT_EQ(read(reader).size(), 2u);
  EXPECT_EQ(read(reader).size(), 0u);
  write(writer, {5});
  const auto later = read(reader);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later.front().turn, 5);
  EXPECT_EQ(reader.bytes_left(), 0);
  EXPECT_EQ(reader.bytes_read(), static_cast<int64_t>(fs::file_size(path())));
}

TEST_F(JournalTest, HasTheBytesOfItsSchema) {
  JournalWriter writer(journals(), 3, *results);
  const TurnResult none = row(0);
  TurnResult some = row(4);
  some.tokens = test::ramp<int32_t>(std::ssize(some.tokens), 4001, 1);
  const TurnResult vectors = row(1);
  const TurnUpdate rows[] = {
      {4, some, TurnState::done}, {0, none, TurnState::done}, {1, vectors, TurnState::done}};
  writer.append(rows);
  Sha256 hash;
  hash.update(journal_text(path()));
  EXPECT_EQ(hash.hex(), sha256_of_schema_4) << "other bytes need another number in the schema";
}

TEST_F(JournalTest, RefusesRowsThatTheResultsWouldNotTake) {
  JournalWriter writer(journals(), 3, *results);
  TurnResult wrong = row(1);
  wrong.token_logprobs.pop_back();
  const TurnUpdate update{1, wrong, TurnState::done};
  EXPECT_THROW(writer.append(std::span(&update, 1)), InvalidArgument);
  results->write(2, row(2), TurnState::done);
  EXPECT_THROW(write(writer, {2}), InvalidArgument);
  EXPECT_TRUE(fs::is_empty(journals()));
}

TEST_F(JournalTest, BeginsTheNextFileOnceOneIsLarge) {
  JournalWriter writer(journals(), 3, *results, 200);
  for (int64_t turn = 0; turn < 3; ++turn) write(writer, {turn});
  const std::vector<JournalName> names = {{3, 0}, {3, 1}, {3, 2}};
  EXPECT_EQ(journals_in(journals()), names);
  for (int64_t turn = 0; turn < 3; ++turn) {
    JournalReader reader(path(turn), head());
    const auto rows = read(reader);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows.front().turn, turn);
  }
}

TEST_F(JournalTest, IsReadInParts) {
  ResultsLayout layout = test::sample_layout(40, -1, 0);
  for (ResultTurn& turn : layout.turns) turn.slots = turn.request == 7 ? 20'000 : 300;
  ResultsFile::create(folder / "long.h5", layout);
  results.emplace(folder / "long.h5");
  JournalWriter writer(journals(), 3, *results);
  std::vector<int64_t> turns(40);
  std::iota(turns.begin(), turns.end(), 0);
  write(writer, turns);
  JournalReader reader(path(), head());
  int64_t turn = 0;
  int parts = 0;
  for (auto rows = read(reader, 1); !rows.empty(); rows = read(reader, 1), ++parts)
    for (const JournalRow& found : rows) EXPECT_EQ(found.turn, turn++);
  EXPECT_EQ(turn, 40);
  EXPECT_GT(parts, 8) << "of 64 KiB or a row each";
  EXPECT_EQ(reader.bytes_left(), 0);
}

/// A journal of three rows, and what is read of it when it is damaged.
struct DamagedJournalTest : JournalTest {
  DamagedJournalTest() {
    JournalWriter writer(journals(), 3, *results);
    for (const int64_t turn : {1, 4, 0}) {
      write(writer, {turn});
      ends.push_back(fs::file_size(path()));
    }
    whole = journal_text(path());
  }

  /// `good`: the bytes of `text` before the damage. Rows that end among them are read.
  void expect_rows_before(size_t good, std::string_view text) const {
    set_journal_text(path(), text);
    JournalReader reader(path(), head());
    const auto rows = std::upper_bound(ends.begin(), ends.end(), good) - ends.begin();
    ASSERT_EQ(std::ssize(read(reader)), rows) << "damaged at byte " << good;
    const size_t end = rows > 0 ? ends[rows - 1] : good < head().size() ? 0 : head().size();
    ASSERT_EQ(reader.bytes_left(), std::ssize(text) - static_cast<int64_t>(end))
        << "damaged at byte " << good;
  }

  std::vector<size_t> ends;  ///< offsets after each row
  std::string whole;
};

TEST_F(DamagedJournalTest, CutAnywhereHasTheRowsBeforeTheCut) {
  for (size_t cut = 0; cut <= whole.size(); ++cut) expect_rows_before(cut, whole.substr(0, cut));
}

TEST_F(DamagedJournalTest, EndsBeforeAWrongByte) {
  for (size_t at = head().size(); at < whole.size(); ++at)
    for (const char wrong : {'\x00', '\xff', static_cast<char>(whole[at] ^ 1)}) {
      if (wrong == whole[at]) continue;
      std::string damaged = whole;
      damaged[at] = wrong;
      expect_rows_before(at, damaged);
    }
}

TEST_F(DamagedJournalTest, HasNoRowsInZerosAfterACrash) {
  expect_rows_before(whole.size(), whole + std::string(4096, '\0'));
}

TEST_F(JournalTest, IsMadeBesideALinkThatIsNotFollowed) {
  set_journal_text(folder / "victim", "precious");
  fs::create_symlink(folder / "victim", path().string() + ".part");
  JournalWriter writer(journals(), 3, *results);
  write(writer, {1});
  EXPECT_EQ(journal_text(folder / "victim"), "precious");
  JournalReader reader(path(), head());
  EXPECT_EQ(read(reader).size(), 1u);
}

TEST_F(JournalTest, ThatWasMovedOrRemovedIsNamed) {
  JournalWriter moved(journals(), 3, *results);
  write(moved, {1});
  fs::rename(path(), folder / "moved.rows");
  test::expect_error<SystemError>([&] { write(moved, {2}); },
                                  {path().string(), "was moved", (folder / "moved.rows").string()});
  JournalReader reader(folder / "moved.rows", head());
  EXPECT_EQ(read(reader).size(), 2u) << "also the row after which it was found out";

  JournalWriter removed(journals(), 3, *results);
  write(removed, {1});
  fs::remove_all(journals());
  test::expect_error<SystemError>([&] { write(removed, {2}); }, {"was removed", ".rescued."});
}

TEST_F(JournalTest, LeavesItToTheResultsToSayThatAllWasMoved) {
  JournalWriter writer(journals(), 3, *results);
  write(writer, {1});
  fs::remove(folder / "r.h5");
  fs::remove_all(journals());
  EXPECT_NO_THROW(write(writer, {2}));
}

TEST_F(JournalTest, OfOthersIsRefusedByName) {
  const auto refused = [&](const std::string& text, const std::vector<std::string>& words) {
    set_journal_text(path(), text);
    test::expect_error<InputError>([&] { JournalReader(path(), head()); }, words);
  };
  const std::string schema = "pecia.journal/4\n", hash = head().substr(schema.size());
  refused("pecia.journal/0\n" + hash, {path().string(), "'pecia.journal/0'", "--fresh"});
  refused("pecia.journal/12\n" + hash, {path().string(), "'pecia.journal/12'", "--fresh"});
  refused(schema + std::string(64, '0') + "\n", {path().string(), "other results", "--fresh"});
  refused("# notes", {path().string(), "no journal"});
  ResultsLayout other = results->layout();
  other.turns.back().slots += 1;
  EXPECT_NE(journal_head(other), head());
  other = results->layout();
  other.identity = R"({"model":"n"})";
  EXPECT_NE(journal_head(other), head());
}

TEST_F(JournalTest, OnAFullDiskKeepsWhatItHadAndGoesOn) {
  JournalWriter writer(journals(), 3, *results);
  {
    const test::FileSizeLimit full(0);
    test::expect_error<SystemError>(
        [&] { write(writer, {1}); },
        {path().string(), "row 1 (request 'request-0', turn 2)", "make room"});
  }
  EXPECT_TRUE(fs::is_empty(journals())) << "no unfinished file is left";
  write(writer, {1});
  {
    const test::FileSizeLimit full(fs::file_size(path()) + 100);
    test::expect_error<SystemError>(
        [&] {
          write(writer, {4, 0});
        },
        {path().string(), "File too large", "row 4", "and 1 more were not recorded"});
  }
  JournalReader before(path(), head());
  EXPECT_EQ(read(before).size(), 1u);
  EXPECT_EQ(before.bytes_left(), 100);
  write(writer, {0});
  JournalReader after(path(), head());
  const auto rows = read(after);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].turn, 0);
}

}  // namespace
}  // namespace pecia::io
