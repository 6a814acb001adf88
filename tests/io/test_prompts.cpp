// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "lib/base/core/error.hpp"
#include "lib/files/prompts/prompts.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

using test::ShardContent;
using test::Strings;

ShardContent two_requests() {
  ShardContent content;
  content.requests = {{"moby-dick", {{{5, 6, 7}}, {{}}, {{8}}}}, {"Œuvre 𝄞", {{{1, 2}}}}};
  content.followup = "fork";
  content.tokenizer_sha256 = "3f1a";
  content.created_by = "a test";
  content.vocab_size = 151936;
  content.max_new_tokens = {1, 2, 3, 4};
  content.temperature = {0, 0.5, 1, 1.5};
  content.top_p = {1, 0.75, 0.5, 0.25};
  content.min_p = {0, 0.125, 0.25, 1};
  content.repetition_penalty = {1, 1e-42f, 1.5, 3e38f};
  content.presence_penalty = {-2, 0, 1, 2};
  content.frequency_penalty = {-2, 0, 1, 2};
  content.top_k = {0, 1, 40, INT32_MAX};
  content.ignore_eos = {0, 1, 0, 1};
  content.logit_bias_offsets = {0, 2, 2, 2, 3};
  content.logit_bias_tokens = {7, 3, 0};
  content.logit_bias = {-100, 0.5, 100};
  content.seed = {-1, 0, 1, INT64_MAX};
  content.arrival_s = {0, 2.5};
  return content;
}

class EveryStringKind : public testing::TestWithParam<Strings> {};

TEST_P(EveryStringKind, GivesBackWhatWasWritten) {
  const test::TempFolder folder;
  ShardContent content = two_requests();
  content.strings = GetParam();
  write_shard(folder / "p.h5", content);

  const PromptShard shard(folder / "p.h5");

  EXPECT_EQ(shard.path(), folder / "p.h5");
  EXPECT_EQ(shard.followup(), Followup::fork);
  EXPECT_EQ(shard.tokenizer_sha256(), "3f1a");
  EXPECT_EQ(shard.created_by(), "a test");
  EXPECT_EQ(shard.vocab_size(), 151936);
  ASSERT_EQ(shard.requests().size(), 2u);
  const PromptRequest &first = shard.requests()[0], &second = shard.requests()[1];
  EXPECT_EQ(first.id, "moby-dick");
  EXPECT_EQ(second.id, "Œuvre 𝄞");
  EXPECT_EQ(second.row, 1);
  EXPECT_EQ(second.arrival_s, 2.5);
  ASSERT_EQ(first.turns.size(), 3u);
  ASSERT_EQ(second.turns.size(), 1u);
  EXPECT_EQ(shard.tokens(first.turns[0]), (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(shard.tokens(first.turns[1]), std::vector<int32_t>{});
  EXPECT_EQ(shard.tokens(first.turns[2]), std::vector<int32_t>{8});
  EXPECT_EQ(shard.tokens(second.turns[0]), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(first.turns[2].max_new_tokens, 3);
  EXPECT_EQ(first.turns[1].temperature, 0.5f);
  EXPECT_EQ(first.turns[1].top_p, 0.75f);
  EXPECT_EQ(first.turns[1].min_p, 0.125f);
  EXPECT_EQ(first.turns[2].repetition_penalty, 1.5f);
  EXPECT_EQ(first.turns[0].presence_penalty, -2.0f);
  EXPECT_EQ(second.turns[0].frequency_penalty, 2.0f);
  EXPECT_EQ(first.turns[2].top_k, 40);
  EXPECT_EQ(first.turns[1].ignore_eos, true);
  EXPECT_EQ(first.turns[0].ignore_eos, false);
  using Biases = std::vector<kernels::LogitBias>;
  EXPECT_EQ(first.turns[0].logit_bias, (Biases{{7, -100.0f}, {3, 0.5f}}));
  EXPECT_EQ(first.turns[1].logit_bias, Biases{});
  EXPECT_EQ(second.turns[0].logit_bias, (Biases{{0, 100.0f}}));
  EXPECT_EQ(first.turns[0].seed, -1);
  EXPECT_EQ(second.turns[0].seed, INT64_MAX);
}

INSTANTIATE_TEST_SUITE_P(OfH5py, EveryStringKind,
                         testing::Values(Strings::fixed_length, Strings::variable_length));

TEST(PromptScan, GivesTheTokensOfAnyTurn) {
  const test::TempFolder folder;
  ShardContent content;
  constexpr int32_t long_prompt = 300'000;  // more than a scan reads ahead
  content.requests = {{"a", {{{1, 2}}}},
                      {"long", {{test::ascending(long_prompt)}, {{}}}},
                      {"b", {{{3}}, {{4, 5}}}},
                      {"c", {{test::ascending(long_prompt)}}}};
  write_shard(folder / "p.h5", content);
  const PromptShard shard(folder / "p.h5");

  PromptScan scan(shard);
  for (const size_t row : {0, 1, 2, 3, 2, 0, 3, 1})
    for (const PromptTurn& turn : shard.requests()[row].turns) {
      const auto found = scan.tokens(turn);
      EXPECT_EQ(std::vector<int32_t>(found.begin(), found.end()), shard.tokens(turn)) << row;
    }
}

TEST(PromptShard, LeavesToTheJobWhatATurnDoesNotSay) {
  const test::TempFolder folder;
  ShardContent content = two_requests();
  content.max_new_tokens[1] = -1;
  content.temperature[1] = content.top_p[1] = content.min_p[1] = NAN;
  content.repetition_penalty[1] = content.presence_penalty[1] = content.frequency_penalty[1] = NAN;
  content.top_k[1] = content.ignore_eos[1] = -1;
  content.seed[1] = INT64_MIN;
  content.stop = {R"(["\n\n", "é"])", "", "[]", R"([" "])"};
  write_shard(folder / "p.h5", content);

  const PromptShard shard(folder / "p.h5");

  const auto& turns = shard.requests()[0].turns;
  EXPECT_FALSE(turns[1].max_new_tokens || turns[1].temperature || turns[1].top_p || turns[1].seed);
  EXPECT_FALSE(turns[1].min_p || turns[1].repetition_penalty || turns[1].presence_penalty ||
               turns[1].frequency_penalty || turns[1].top_k || turns[1].ignore_eos);
  EXPECT_TRUE(turns[0].max_new_tokens && turns[0].temperature && turns[0].top_p && turns[0].seed);
  EXPECT_EQ(turns[0].stop, (std::vector<std::string>{"\n\n", "é"}));
  EXPECT_FALSE(turns[1].stop);
  EXPECT_EQ(turns[2].stop, std::vector<std::string>{}) << "none, whatever the job has";
  EXPECT_EQ(shard.requests()[1].turns[0].stop, std::vector<std::string>{" "});
}

TEST(PromptShard, NeedsOnlyTheFirstFourDatasets) {
  const test::TempFolder folder;
  ShardContent content;
  content.schema = "";
  content.requests = {{"a", {{{1}}}}};
  write_shard(folder / "p.h5", content);

  const PromptShard shard(folder / "p.h5");

  EXPECT_EQ(shard.followup(), Followup::chain);
  EXPECT_EQ(shard.tokenizer_sha256(), "");
  EXPECT_EQ(shard.vocab_size(), 0);
  const PromptTurn& turn = shard.requests().at(0).turns.at(0);
  EXPECT_FALSE(turn.max_new_tokens || turn.temperature || turn.top_p || turn.seed || turn.stop);
  EXPECT_FALSE(shard.requests()[0].arrival_s);
}

TEST(WritePrompts, GivesShardsOfOneTurnEach) {
  const test::TempFolder folder;
  const std::vector<PromptText> texts{{"a", {1, 2, 3}}, {"Œuvre 𝄞", {}}, {"c", {4}}};
  write_prompts(folder / "p.h5", {{"what was there before", {9}}});
  write_prompts(folder / "p.h5", texts);
  const PromptShard shard(folder / "p.h5");
  ASSERT_EQ(shard.requests().size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const PromptRequest& request = shard.requests()[i];
    EXPECT_EQ(request.id, texts[i].id);
    ASSERT_EQ(request.turns.size(), 1U);
    EXPECT_EQ(shard.tokens(request.turns[0]), texts[i].tokens);
    EXPECT_FALSE(request.turns[0].max_new_tokens);
  }
  EXPECT_THROW(write_prompts(folder / "p.h5", {}), InvalidArgument);
}

TEST(PromptShard, MayBeEmpty) {
  const test::TempFolder folder;
  write_shard(folder / "p.h5", ShardContent{});
  EXPECT_TRUE(PromptShard(folder / "p.h5").requests().empty());
}

TEST(PromptShard, TakesIntegersOfAnySizeAndCompression) {
  const test::TempFolder folder;
  write_shard(folder / "p.h5", two_requests());
  {
    test::Hdf5Editor file(folder / "p.h5");
    file.set("/turn_offsets", std::vector<int32_t>{0, 3, 3, 4, 6});
    file.set("/request_offsets", std::vector<uint64_t>{0, 3, 4});
    file.set("/max_new_tokens", std::vector<uint8_t>{1, 2, 3, 255});
    file.set_compressed("/tokens", {5, 6, 7, 8, 1, 2});
  }
  const PromptShard shard(folder / "p.h5");
  EXPECT_EQ(shard.requests()[1].turns[0].max_new_tokens, 255);
  EXPECT_EQ(shard.tokens(shard.requests()[0].turns[0]), (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(shard.tokens(shard.requests()[1].turns[0]), (std::vector<int32_t>{1, 2}));
}

TEST(PromptShard, WiderTokensNeverWrapIntoTheVocabulary) {
  const test::TempFolder folder;
  write_shard(folder / "p.h5", two_requests());
  test::Hdf5Editor(folder / "p.h5")
      .set("/tokens",
           std::vector<int64_t>{5, (int64_t{1} << 32) + 6, -(int64_t{1} << 32), 8, 1, 2});
  const PromptShard shard(folder / "p.h5");
  EXPECT_EQ(shard.tokens(shard.requests()[0].turns[0]),
            (std::vector<int32_t>{5, INT32_MAX, INT32_MIN}));
}

TEST(PromptShard, OpensAMillionRequestsInSeconds) {
  const test::TempFolder folder;
  ShardContent content;
  content.requests.resize(1'000'000);
  for (size_t row = 0; row < content.requests.size(); ++row)
    content.requests[row] = {"request-" + std::to_string(row), {{{static_cast<int32_t>(row)}}}};
  write_shard(folder / "p.h5", content);

  const auto start = std::chrono::steady_clock::now();
  const PromptShard shard(folder / "p.h5");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  EXPECT_EQ(shard.requests().back().id, "request-999999");
  EXPECT_EQ(shard.tokens(shard.requests().back().turns[0]), std::vector<int32_t>{999999});
  // 0.5 s on two busy cores; anything quadratic would take hours, and sanitizers cost a factor of
  // ten.
  EXPECT_LT(seconds.count(), 20);
  RecordProperty("milliseconds", static_cast<int>(1e3 * seconds.count()));
}

}  // namespace
}  // namespace pecia::io
