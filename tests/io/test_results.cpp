// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/files/results/results.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/results_samples.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

using test::sample_layout;
using test::sample_result;

/// What h5dump prints of one dataset; an outside reader gets 20 s.
std::string h5dump(const std::filesystem::path& path, const std::string& options) {
  const std::string command =
      "timeout 20 " PECIA_H5DUMP " " + options + " '" + path.string() + "' 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen");
  std::string text;
  std::array<char, 4096> piece;
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), pipe))
    text.append(piece.data(), count);
  EXPECT_EQ(::pclose(pipe), 0) << text;
  return text;
}

class EveryKindOfLogprobs : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(EveryKindOfLogprobs, SurvivesTheWayThroughTheFile) {
  const test::TempFolder folder;
  const auto [logprobs, prompt_logprobs] = GetParam();
  const ResultsLayout layout = sample_layout(25, logprobs, prompt_logprobs);
  ResultsFile::create(folder / "r.h5", layout);
  {
    ResultsFile file(folder / "r.h5");
    for (int64_t t = 24; t >= 0; --t)
      file.write(t, sample_result(layout, t, layout.turns[t].slots), TurnState::done);
  }
  const ResultsFile file(folder / "r.h5", Access::read);
  ASSERT_EQ(file.num_turns(), 25);
  for (int64_t t = 0; t < 25; ++t) {
    EXPECT_EQ(file.state(t), TurnState::done);
    EXPECT_TRUE(file.read(t) == sample_result(layout, t, layout.turns[t].slots)) << "turn " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKindOfLogprobs,
                         testing::Values(std::pair{0, 0}, std::pair{3, 0}, std::pair{0, 2},
                                         std::pair{-1, 0}, std::pair{0, -1}, std::pair{2, 3},
                                         std::pair{-1, -1}));

TEST(ResultsFile, ReadsItsLayoutBack) {
  const test::TempFolder folder;
  ResultsLayout layout = sample_layout(7, 3, -1);
  layout.turns[2].request_id = "Œuvre 𝄞 with a longer name";
  layout.identity = "{\"inputs\":\"" + std::string(200'000, 'x') + "\"}";  // > an object header
  ResultsFile::create(folder / "r.h5", layout);

  const ResultsFile file(folder / "r.h5", Access::read);

  const ResultsLayout& found = file.layout();
  EXPECT_EQ(found.identity, layout.identity);
  EXPECT_EQ(found.inputs, layout.inputs);
  EXPECT_EQ(found.vocab, 11);
  EXPECT_EQ(found.logprobs, 3);
  EXPECT_EQ(found.prompt_logprobs, -1);
  ASSERT_EQ(found.turns.size(), 7u);
  for (size_t t = 0; t < 7; ++t) {
    EXPECT_EQ(found.turns[t].request_id, layout.turns[t].request_id);
    EXPECT_EQ(found.turns[t].shard, layout.turns[t].shard);
    EXPECT_EQ(found.turns[t].request, layout.turns[t].request);
    EXPECT_EQ(found.turns[t].turn, layout.turns[t].turn);
    EXPECT_EQ(found.turns[t].slots, layout.turns[t].slots);
    EXPECT_EQ(found.turns[t].prompt_tokens, layout.turns[t].prompt_tokens);
  }
}

/// A text turn, two vectors, three scores of six tokens, and a vector of a turn that fails.
ResultsLayout layout_of_products(VectorType type) {
  ResultsLayout layout = sample_layout(4, 0, 0);
  layout.vector_width = 3;
  layout.vector_type = type;
  for (size_t turn = 1; turn < 4; ++turn) layout.turns[turn].slots = 0;
  layout.turns[1].vectors = 2;
  layout.turns[2].scores = 3, layout.turns[2].score_tokens = 6;
  layout.turns[3].vectors = 1;
  return layout;
}

TEST(ResultsFile, HasVectorsAndScoresOfTurnsThatAreDone) {
  for (const VectorType type : {VectorType::fp32, VectorType::fp16}) {
    const test::TempFolder folder;
    const ResultsLayout layout = layout_of_products(type);
    ResultsFile::create(folder / "r.h5", layout);
    TurnResult vectors = sample_result(layout, 1, 0), scores = sample_result(layout, 2, 0);
    vectors.vectors = {0.5f, -2, 0.0009765625f, 65504, 0, 1};
    scores.scores = {-1e300, -2.5, 0};
    scores.score_logprobs = {std::nanf(""), -1, -2, -3, -4, -5};
    TurnResult failed;
    failed.finish_reason = FinishReason::failed;
    failed.error = "NaN";
    const TurnResult text = sample_result(layout, 0, 0);
    {
      ResultsFile file(folder / "r.h5");
      const TurnUpdate rows[] = {
          {0, text}, {1, vectors}, {2, scores}, {3, failed, TurnState::failed}};
      file.write_all(rows);
    }
    const ResultsFile file(folder / "r.h5", Access::read);
    EXPECT_EQ(file.layout().vector_width, 3);
    EXPECT_EQ(file.layout().vector_type, type);
    EXPECT_EQ(file.layout().turns[1].vectors, 2);
    EXPECT_EQ(file.layout().turns[2].score_tokens, 6);
    EXPECT_EQ(file.read(1).vectors, vectors.vectors);
    EXPECT_EQ(file.read(2).scores, scores.scores);
    const std::vector<float> found = file.read(2).score_logprobs;
    EXPECT_TRUE(std::isnan(found.at(0)));
    EXPECT_EQ(std::vector(found.begin() + 1, found.end()),
              std::vector(scores.score_logprobs.begin() + 1, scores.score_logprobs.end()));
    EXPECT_TRUE(file.read(3).vectors.empty());
    EXPECT_EQ(file.read(0), text);
    const std::string dump = h5dump(folder / "r.h5", "-d /vectors");
    EXPECT_NE(dump.find(type == VectorType::fp16 ? "16-bit little-endian floating-point"
                                                 : "H5T_IEEE_F32LE"),
              std::string::npos)
        << dump;
  }
}

TEST(ResultsFile, RefusesVectorsOfAnotherNumber) {
  const test::TempFolder folder;
  const ResultsLayout layout = layout_of_products(VectorType::fp32);
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile file(folder / "r.h5");
  TurnResult result = sample_result(layout, 1, 0);
  EXPECT_THROW(file.write(1, result, TurnState::done), InvalidArgument) << "none";
  result.vectors.assign(5, 1);
  EXPECT_THROW(file.write(1, result, TurnState::done), InvalidArgument);
  result.vectors.assign(6, 1);
  file.write(1, result, TurnState::done);
}

TEST(ResultsFile, SaysWhichSettingsATurnHas) {
  const test::TempFolder folder;
  ResultsLayout layout = sample_layout(3, 0, 0);
  layout.settings = {R"({"limits.over_length":"fail"})", R"({"limits.over_length":"ä"})"};
  layout.turns[1].settings = 1;
  ResultsFile::create(folder / "r.h5", layout);
  const ResultsFile file(folder / "r.h5");
  EXPECT_EQ(file.layout().settings, layout.settings);
  EXPECT_EQ(file.layout().turns[0].settings, 0);
  EXPECT_EQ(file.layout().turns[1].settings, 1);
  EXPECT_NE(h5dump(folder / "r.h5", "-y -d /settings").find("0, 1, 0"), std::string::npos);
}

TEST(ResultsFile, OfAnEarlierVersionHasNoSettings) {
  const test::TempFolder folder;
  const ResultsLayout layout = sample_layout(3, 2, 1);
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile(folder / "r.h5").write(1, sample_result(layout, 1, 7), TurnState::done);
  test::Hdf5Editor(folder / "r.h5").remove("/settings");
  const ResultsFile file(folder / "r.h5");
  EXPECT_EQ(file.layout().turns[1].settings, 0);
  EXPECT_TRUE(file.read(1) == sample_result(layout, 1, 7));
}

TEST(ResultsFile, IsMadeOfHolesThatReadAsOpen) {
  const test::TempFolder folder;
  ResultsLayout layout = sample_layout(1000, -1, 0);
  layout.vocab = 150'000;
  ResultsFile::create(folder / "r.h5", layout);

  struct stat status;
  ASSERT_EQ(::stat((folder / "r.h5").c_str(), &status), 0);
  EXPECT_GT(status.st_size, int64_t{4500} * 150'000 * 4);
  EXPECT_LT(status.st_blocks * 512, 1 << 20) << "bytes on disk";
  const ResultsFile file(folder / "r.h5");
  for (int64_t t = 0; t < 1000; ++t) ASSERT_EQ(file.state(t), TurnState::open) << t;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "the temporary file is gone";
}

TEST(ResultsFile, MayHaveNoSlotsAndNoTurns) {
  const test::TempFolder folder;
  ResultsLayout layout = sample_layout(3, 2, 2);
  for (ResultTurn& turn : layout.turns) turn.slots = turn.prompt_tokens = 0;
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile file(folder / "r.h5");
  file.write(1, sample_result(layout, 1, 0), TurnState::done);
  EXPECT_TRUE(ResultsFile(folder / "r.h5").read(1) == sample_result(layout, 1, 0));

  ResultsFile::create(folder / "none.h5", ResultsLayout{});
  EXPECT_EQ(ResultsFile(folder / "none.h5").num_turns(), 0);
}

TEST(ResultsFile, IsReadByOthersWhileOpenForWriting) {
  const test::TempFolder folder;
  ResultsLayout layout = sample_layout(3, 0, 0);  // slots 0, 7, 4
  layout.vocab = 2000;
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile file(folder / "r.h5");
  TurnResult result = sample_result(layout, 1, 2);
  result.finish_reason = FinishReason::stop;
  result.error = "none at all";
  file.write(1, result, TurnState::done);

  const auto data = [&](const char* name) {
    return h5dump(folder / "r.h5", std::string("-y -d ") + name);
  };
  EXPECT_NE(data("/state").find("0, 2, 0"), std::string::npos) << data("/state");
  EXPECT_NE(data("/tokens").find("1001, 1002, 0, 0, 0, 0, 0, 0"), std::string::npos)
      << data("/tokens");
  EXPECT_NE(data("/finish_reason").find("none, stop, none"), std::string::npos)
      << data("/finish_reason");
  EXPECT_NE(data("/slot_offsets").find("0, 0, 7, 11"), std::string::npos);
  EXPECT_NE(data("/error").find("none at all"), std::string::npos) << data("/error");
  const std::string mode = data("/mode");
  EXPECT_NE(mode.find("STRSIZE 64"), std::string::npos) << mode;
  EXPECT_NE(mode.find("H5T_STR_NULLPAD"), std::string::npos);
  EXPECT_NE(mode.find("H5T_CSET_UTF8"), std::string::npos);
  EXPECT_NE(h5dump(folder / "r.h5", "-a /schema").find("pecia.results/1"), std::string::npos);
}

TEST(ResultsFile, HasExactlyTheDatasetsOfTheSchema) {
  const test::TempFolder folder;
  ResultsFile::create(folder / "r.h5", sample_layout(2, 1, -1));
  const std::string contents = h5dump(folder / "r.h5", "-n");
  for (const char* name : {"state",
                           "request_id",
                           "shard",
                           "request",
                           "turn",
                           "slot_offsets",
                           "tokens",
                           "token_logprob",
                           "prompt_tokens",
                           "cached_tokens",
                           "output_tokens",
                           "truncated_tokens",
                           "finish_reason",
                           "error",
                           "queue_s",
                           "ttft_s",
                           "decode_s",
                           "prefill_compute_s",
                           "prefill_comm_s",
                           "decode_compute_s",
                           "decode_comm_s",
                           "mode",
                           "replica",
                           "text_bytes",
                           "top_tokens",
                           "top_logprobs",
                           "prompt_slot_offsets",
                           "prompt_token_logprob",
                           "prompt_top_logprobs"})
    EXPECT_NE(contents.find("dataset    /" + std::string(name) + "\n"), std::string::npos) << name;
  EXPECT_EQ(contents.find("/prompt_top_tokens"), std::string::npos) << "not with K = -1";
}

TEST(ResultsFile, MayBeOfAVersionWithoutStopStrings) {
  const test::TempFolder folder;
  const ResultsLayout layout = sample_layout(3, 0, 0);
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile(folder / "r.h5").write(1, sample_result(layout, 1, 2), TurnState::done);
  test::Hdf5Editor(folder / "r.h5").remove("/text_bytes");

  ResultsFile older(folder / "r.h5");

  TurnResult expected = sample_result(layout, 1, 2);
  expected.text_bytes = -1;
  EXPECT_TRUE(older.read(1) == expected);
  TurnResult next = sample_result(layout, 2, 3);
  EXPECT_THROW(older.write(2, next, TurnState::done), InvalidArgument) << "there is no place";
  next.text_bytes = -1;
  older.write(2, next, TurnState::done);
  EXPECT_TRUE(older.read(2) == next);
}

TEST(ResultsFile, PartialTurnsGrow) {
  const test::TempFolder folder;
  const ResultsLayout layout = sample_layout(8, 2, 2);  // turn 7 has 9 slots
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile file(folder / "r.h5");
  for (const int64_t tokens : {0, 3, 3, 8}) {
    file.write(7, sample_result(layout, 7, tokens), TurnState::partial);
    EXPECT_EQ(file.state(7), TurnState::partial);
    EXPECT_TRUE(file.read(7) == sample_result(layout, 7, tokens)) << tokens;
  }
  TurnResult other = sample_result(layout, 7, 9);
  other.tokens[3] = 5;
  EXPECT_THROW(file.write(7, other, TurnState::done), InvalidArgument) << "another past";
  EXPECT_THROW(file.write(7, sample_result(layout, 7, 7), TurnState::partial), InvalidArgument)
      << "shorter than what is safe";
  file.reopen(7);
  EXPECT_EQ(file.state(7), TurnState::open);
  file.write(7, other, TurnState::done);
  EXPECT_TRUE(ResultsFile(folder / "r.h5").read(7) == other);
}

TEST(ResultsFile, FailedTurnsAreWrittenAgainOnlyAfterReopening) {
  const test::TempFolder folder;
  const ResultsLayout layout = sample_layout(4, 0, 2);  // turn 3: 1 slot, 4 prompt tokens
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile file(folder / "r.h5");
  TurnResult failed;
  failed.finish_reason = FinishReason::failed;
  failed.error = "too long: " + std::string(243, '.') + "€uro";  // the sign is bytes 253 … 255
  file.write(3, failed, TurnState::failed);

  const TurnResult found = file.read(3);
  EXPECT_EQ(file.state(3), TurnState::failed);
  EXPECT_EQ(found.error, "too long: " + std::string(243, '.') + "€");
  EXPECT_EQ(found.finish_reason, FinishReason::failed);
  ASSERT_EQ(found.prompt_logprobs.size(), 4u);
  EXPECT_TRUE(std::isnan(found.prompt_logprobs[0]) && std::isnan(found.prompt_logprobs[3]));
  EXPECT_EQ(found.prompt_top_tokens, std::vector<int32_t>(8, -1));

  EXPECT_THROW(file.write(3, sample_result(layout, 3, 1), TurnState::done), InvalidArgument);
  file.reopen(3);
  file.write(3, sample_result(layout, 3, 1), TurnState::done);
  EXPECT_TRUE(file.read(3) == sample_result(layout, 3, 1));
}

TEST(ResultsFile, CutsErrorsBetweenCharacters) {
  const test::TempFolder folder;
  const ResultsLayout layout = sample_layout(2, 0, 0);
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile file(folder / "r.h5");
  TurnResult failed;
  failed.error = std::string(254, 'x') + "€";
  file.write(0, failed, TurnState::failed);
  EXPECT_EQ(file.read(0).error, std::string(254, 'x'));
}

TEST(ResultsFile, WritesSeveralTurnsAtOnce) {
  const test::TempFolder folder;
  const ResultsLayout layout = sample_layout(8, 1, 1);
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile file(folder / "r.h5");
  file.write(7, sample_result(layout, 7, 2), TurnState::partial);
  const TurnResult one = sample_result(layout, 1, 7), seven = sample_result(layout, 7, 5);
  const TurnUpdate updates[] = {{1, one, TurnState::done}, {7, seven, TurnState::partial}};
  file.write_all(updates);
  EXPECT_TRUE(file.read(1) == one);
  EXPECT_TRUE(file.read(7) == seven);
  EXPECT_EQ(file.state(0), TurnState::open);

  const TurnResult five = sample_result(layout, 5, 5), too_long = sample_result(layout, 2, 5);
  const TurnUpdate bad[] = {{5, five, TurnState::done}, {2, too_long, TurnState::done}};
  EXPECT_THROW(file.write_all(bad), InvalidArgument);
  EXPECT_EQ(file.state(5), TurnState::open) << "checked before anything is written";

  const std::vector<TurnState> states = file.states();
  ASSERT_EQ(std::ssize(states), file.num_turns());
  for (int64_t turn = 0; turn < file.num_turns(); ++turn)
    EXPECT_EQ(states[turn], file.state(turn)) << turn;
  EXPECT_EQ(states[1], TurnState::done);
  EXPECT_EQ(states[7], TurnState::partial);
}

TEST(ResultsFile, RefusesWhatContradictsTheLayout) {
  const test::TempFolder folder;
  const ResultsLayout layout = sample_layout(4, 2, 2);  // turn 2: 4 slots, 3 prompt tokens
  ResultsFile::create(folder / "r.h5", layout);
  ResultsFile file(folder / "r.h5");
  const TurnResult good = sample_result(layout, 2, 4);
  const auto refused = [&](auto change) {
    TurnResult bad = good;
    change(bad);
    EXPECT_THROW(file.write(2, bad, TurnState::done), InvalidArgument);
  };
  test::expect_error<InvalidArgument>(
      [&] { file.write(2, sample_result(layout, 2, 5), TurnState::done); },
      {"turn 2 has 5 tokens but 4 slots"});
  refused([](TurnResult& r) { r.token_logprobs.pop_back(); });
  refused([](TurnResult& r) { r.top_tokens.pop_back(); });
  refused([](TurnResult& r) { r.top_logprobs.push_back(0); });
  refused([](TurnResult& r) { r.prompt_logprobs.push_back(0); });
  refused([](TurnResult& r) { r.prompt_top_tokens.clear(); });
  refused([](TurnResult& r) { r.prompt_top_logprobs.clear(); });
  refused([](TurnResult& r) { r.mode = std::string(65, 'm'); });
  EXPECT_THROW(file.write(2, good, TurnState::open), InvalidArgument);
  EXPECT_THROW(file.write(4, good, TurnState::done), InvalidArgument);
  EXPECT_THROW(file.write(-1, good, TurnState::done), InvalidArgument);
  EXPECT_THROW(file.read(2), InvalidArgument) << "open";
  EXPECT_EQ(file.state(2), TurnState::open);
  file.write(2, good, TurnState::done);
  EXPECT_THROW(file.write(2, good, TurnState::done), InvalidArgument) << "done already";
}

TEST(ResultsFile, IsMadeBesideALinkThatIsNotFollowed) {
  const test::TempFolder folder;
  folder.write("victim", "precious");
  std::filesystem::create_symlink(folder / "victim", folder / "r.h5.unfinished");
  ResultsFile::create(folder / "r.h5", sample_layout(3, 0, 0));
  EXPECT_EQ(test::text_of(folder / "victim"), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "r.h5"));
  EXPECT_NO_THROW(ResultsFile{folder / "r.h5"});
}

TEST(ResultsFile, NamesTokensOutsideTheVocabulary) {
  const test::TempFolder folder;
  const ResultsLayout layout = sample_layout(3, 0, 0);
  for (const TurnState state : {TurnState::partial, TurnState::done})
    for (const int32_t bad : {-1, 11, std::numeric_limits<int32_t>::max()}) {
      std::filesystem::remove(folder / "r.h5");
      ResultsFile::create(folder / "r.h5", layout);
      TurnResult row = sample_result(layout, 1, 5);
      row.tokens[3] = bad;
      ResultsFile file(folder / "r.h5");
      file.write(1, row, state);
      for (const bool whole_row : {false, true})
        test::expect_error<InputError>(
            [&] {
              whole_row ? static_cast<void>(file.read(1)) : static_cast<void>(file.tokens(1));
            },
            {(folder / "r.h5").string(), fmt::format("/tokens[3] is {}", bad), "vocabulary has 11",
             "row 1, request 'request-0', turn 1", "damaged"});
    }
}

/// A run folder with results of 3 turns.
struct DisplacedResults : testing::Test {
  DisplacedResults() {
    layout.turns[2].slots = 100'000;  // holes between what is written
    std::filesystem::create_directory(folder / "run");
    ResultsFile::create(path(), layout);
    results.emplace(path());
    results->write(0, sample_result(layout, 0, 0), TurnState::done);
  }
  std::filesystem::path path() const { return folder / "run/r.h5"; }
  void expect_error(const std::vector<std::string>& parts) {
    const TurnResult row = sample_result(layout, 1, 5);
    test::expect_error<SystemError>([&] { results->write(1, row, TurnState::done); }, parts);
    EXPECT_FALSE(results->is_in_place());
  }
  void expect_rows_in(const std::filesystem::path& where) const {
    const ResultsFile found(where, Access::read);
    EXPECT_EQ(found.states(), (std::vector{TurnState::done, TurnState::done, TurnState::open}));
    EXPECT_TRUE(found.read(1) == sample_result(layout, 1, 5));
  }

  test::TempFolder folder;
  ResultsLayout layout = sample_layout(3, 0, 0);
  std::optional<ResultsFile> results;
};

TEST_F(DisplacedResults, AreNamedWhereTheirFolderWasMovedTo) {
  std::filesystem::rename(folder / "run", folder / "moved");
  expect_error({path().string(), "was moved", (folder / "moved/r.h5").string(), "same command"});
  expect_rows_in(folder / "moved/r.h5");
}

TEST_F(DisplacedResults, AreNamedWhereAnotherFileTookTheirPlace) {
  std::filesystem::rename(path(), folder / "moved.h5");
  ResultsFile::create(path(), layout);
  expect_error({path().string(), "was moved", (folder / "moved.h5").string()});
  expect_rows_in(folder / "moved.h5");
}

TEST_F(DisplacedResults, AreCopiedWhereTheyWereRemoved) {
  std::filesystem::remove_all(folder / "run");
  const auto rescued = folder / "run.rescued.r.h5";
  expect_error({path().string(), "was removed", rescued.string(), "same command"});
  expect_rows_in(rescued);
}

TEST_F(DisplacedResults, AreCalledLostWhereTheyCannotBeCopied) {
  std::filesystem::remove_all(folder.path());
  expect_error({path().string(), "was removed", "lost", "No such file or directory"});
}

TEST_F(DisplacedResults, AreInPlaceBehindALinkToTheirFolder) {
  std::filesystem::create_directory_symlink(folder / "run", folder / "link");
  ResultsFile file(folder / "link/r.h5");
  EXPECT_NO_THROW(file.write(1, sample_result(layout, 1, 5), TurnState::done));
}

TEST(ResultsFile, IsNotMadeTwiceNorBeyondAllBounds) {
  const test::TempFolder folder;
  ResultsLayout layout = sample_layout(4, -1, 0);
  ResultsFile::create(folder / "r.h5", layout);
  test::expect_error<InputError>([&] { ResultsFile::create(folder / "r.h5", layout); },
                                 {(folder / "r.h5").string(), "exists"});
  layout.vocab = int64_t{1} << 60;
  test::expect_error<InputError>([&] { ResultsFile::create(folder / "s.h5", layout); },
                                 {"/top_logprobs", "2^63"});
  layout.turns[0].slots = -1;
  EXPECT_THROW(ResultsFile::create(folder / "s.h5", layout), InvalidArgument);
}

TEST(ResultsFile, OfAnEarlierVersionIsReadAndContinued) {
  const test::TempFolder folder;
  const ResultsLayout layout = sample_layout(4, 0, 0);
  ResultsFile::create(folder / "r.h5", layout);
  test::Hdf5Editor(folder / "r.h5").remove("/truncated_tokens");
  TurnResult result = sample_result(layout, 1, 7);
  ResultsFile(folder / "r.h5").write(1, result, TurnState::done);
  result.truncated_tokens = 0;
  EXPECT_TRUE(ResultsFile(folder / "r.h5").read(1) == result);

  ResultsFile::create(folder / "s.h5", layout);
  test::Hdf5Editor(folder / "s.h5").set("/truncated_tokens", std::vector<int32_t>(3));
  test::expect_error<InputError>([&] { ResultsFile{folder / "s.h5"}; },
                                 {"/truncated_tokens", "type or shape"});
}

TEST(ResultsFile, RefusesOtherFiles) {
  const test::TempFolder folder;
  const auto path = folder / "r.h5";
  const auto refused = [&](const std::vector<std::string>& parts) {
    test::expect_error<InputError>([&] { ResultsFile{path}; }, parts);
    std::filesystem::remove(path);
  };
  refused({path.string(), "No such file"});
  std::ofstream(path) << "text";
  refused({path.string(), "no HDF5 file"});
  test::write_shard(path, {});
  refused({path.string(), "pecia.prompts/1"});

  const auto edited = [&](auto edit) {
    ResultsFile::create(path, sample_layout(4, 0, 0));
    test::Hdf5Editor file(path);
    edit(file);
  };
  edited([](auto& f) { f.remove("/mode"); });
  refused({path.string(), "/mode is missing"});
  edited([](auto& f) { f.set("/replica", std::vector<int64_t>(4)); });
  refused({path.string(), "/replica", "type or shape"});
  edited([](auto& f) { f.set("/replica", std::vector<int32_t>(3)); });
  refused({path.string(), "/replica", "type or shape"});
  edited([](auto& f) { f.set_compressed("/replica", std::vector<int32_t>(4)); });
  refused({path.string(), "/replica is not contiguous", "repacked"});
  edited([](auto& f) { f.set("/slot_offsets", std::vector<int64_t>{0, 5, 2, 3, 4}); });
  refused({path.string(), "slot offsets"});
  edited([](auto& f) { f.set("/turn", std::vector<int32_t>(9)); });
  refused({path.string(), "lengths"});
  edited([](auto& f) { f.set_attribute("logprobs", -2); });
  refused({path.string(), "'logprobs'"});
  ResultsFile::create(path, sample_layout(4, 0, 0));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  refused({path.string()});
}

}  // namespace
}  // namespace pecia::io
