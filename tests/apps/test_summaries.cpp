#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <numeric>

#include "apps/pecia/summaries.hpp"
#include "lib/core/error.hpp"
#include "lib/io/hdf5.hpp"
#include "lib/io/results.hpp"

namespace pecia::app {
namespace {

class Summaries : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "pecia-inspect-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST(Percentile, IsTheNearestRank) {
  std::vector<int64_t> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1);
  EXPECT_EQ(percentile(hundred, 50), 50);
  EXPECT_EQ(percentile(hundred, 99), 99);
  EXPECT_EQ(percentile(hundred, 100), 100);
  EXPECT_EQ(percentile({7}, 1), 7);
  EXPECT_EQ(percentile({1, 2, 3}, 50), 2);
  EXPECT_THROW(percentile({}, 50), InvalidArgument);
}

TEST_F(Summaries, OfAPromptShardCountTokensPerTurn) {
  const std::vector<int32_t> tokens{5, 6, 7, 8, 9, 10};
  const std::vector<int64_t> turn_offsets{0, 3, 4, 6}, request_offsets{0, 2, 3};
  const auto path = folder_ / "p.h5";
  {
    io::Hdf5File file = io::Hdf5File::create(path);
    file.create_dataset("/tokens", H5T_STD_I32LE, {6}).write(H5T_NATIVE_INT32, tokens.data());
    file.create_dataset("/turn_offsets", H5T_STD_I64LE, {4})
        .write(H5T_NATIVE_INT64, turn_offsets.data());
    file.create_dataset("/request_offsets", H5T_STD_I64LE, {3})
        .write(H5T_NATIVE_INT64, request_offsets.data());
    const auto text = io::hdf5_text_type(4);
    file.create_dataset("/request_id", text.get(), {2}).write(text.get(), "a\0\0\0book");
    file.set_attribute("schema", std::string("pecia.prompts/1"));
    file.set_attribute("followup", std::string("fork"));
    file.close();
  }
  const auto summary = summarize_prompts(path);
  EXPECT_EQ(summary["requests"], 2);
  EXPECT_EQ(summary["turns"], 3);
  EXPECT_EQ(summary["tokens"], 6);
  EXPECT_EQ(summary["followup"], "fork");
  EXPECT_EQ(summary["turn_tokens"]["min"], 1);
  EXPECT_EQ(summary["turn_tokens"]["p50"], 2);
  EXPECT_EQ(summary["turn_tokens"]["max"], 3);
  EXPECT_NE(prompts_text(summary).find("2 requests, 3 turns (fork), 6 tokens"), std::string::npos);
}

TEST_F(Summaries, OfResultsCountStatesAndGroupFailures) {
  io::ResultsLayout layout;
  for (int turn = 0; turn < 5; ++turn) {
    io::ResultTurn row;
    row.request_id = "r" + std::to_string(turn);
    row.request = turn;
    row.slots = 4;
    row.prompt_tokens = 10;
    layout.turns.push_back(row);
  }
  layout.vocab = 16;
  layout.inputs = {"p.h5"};
  layout.identity = "{}";
  const auto path = folder_ / "results.h5";
  io::ResultsFile::create(path, layout);
  {
    io::ResultsFile file(path);
    io::TurnResult done;
    done.tokens = {1, 2, 3};
    done.token_logprobs = {-1, -1, -1};
    done.prompt_tokens = 10;
    done.finish_reason = io::FinishReason::stop;
    file.write(0, done, io::TurnState::done);
    io::TurnResult failed;
    failed.prompt_tokens = 10;
    failed.finish_reason = io::FinishReason::failed;
    failed.error = "too long";
    file.write(1, failed, io::TurnState::failed);
    file.write(3, failed, io::TurnState::failed);
    failed.error = "empty";
    file.write(2, failed, io::TurnState::failed);
  }
  const auto summary = summarize_results(path);
  EXPECT_EQ(summary["schema"], "pecia.results/1");
  EXPECT_EQ(summary["turns"], 5);
  EXPECT_EQ(summary["done"], 1);
  EXPECT_EQ(summary["failed"], 3);
  EXPECT_EQ(summary["open"], 1);
  EXPECT_EQ(summary["output_tokens"], 3);
  EXPECT_EQ(summary["prompt_tokens"], 40);
  ASSERT_EQ(summary["failures"].size(), 2u);
  EXPECT_EQ(summary["failures"][0]["turns"], 2);
  EXPECT_EQ(summary["failures"][0]["error"], "too long");
  EXPECT_NE(results_text(summary).find("5 turns: 1 done, 0 partial, 3 failed, 1 open"),
            std::string::npos);
}

TEST_F(Summaries, RefuseOtherFiles) {
  EXPECT_THROW(summarize_prompts(folder_ / "absent.h5"), InputError);
  EXPECT_THROW(summarize_results(folder_ / "absent.h5"), InputError);
}

}  // namespace
}  // namespace pecia::app
