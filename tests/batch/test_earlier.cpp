// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/execute/source.hpp"
#include "lib/work/batch/earlier.hpp"
#include "lib/work/batch/identity.hpp"
#include "lib/work/batch/inputs.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::batch {
namespace {

using io::TurnState;

/// A run of two shards, the second one with a chain of two turns, which a later start continues.
class EarlierStart : public testing::Test {
 protected:
  EarlierStart() {
    job_.model.path = job_.output = folder_.path();
    job_.generation.max_new_tokens = 10;
    config_.vocab = 100, config_.max_positions = 50;
    config_.hidden = 8, config_.ffn = 8, config_.layers = 1;
    config_.num_heads = config_.num_kv_heads = 1, config_.head_dim = 8;
    add("b.h5", {{"b", {{{1, 2}}}}});
    add("c.h5", {{"c", {{test::ascending(60)}, {{3}}}}});
  }
  void add(const std::string& name, const std::vector<test::ShardRequest>& requests) {
    test::ShardContent content;
    content.requests = requests;
    test::write_shard(folder_ / name, content);
    job_.input.push_back(folder_ / name);
  }
  void make_results() {
    io::ResultsLayout layout = Inputs(job_, config_).layout();
    layout.identity = fmt::format(R"({{"input_sha256":["{}","{}"]}})", hash(0), hash(1));
    layout.settings = {turn_settings(job_)};
    io::ResultsFile::create(folder_ / "results.h5", layout);
  }
  std::string hash(int input) const { return io::sha256_of_file(job_.input[input]); }
  void write(int64_t row, TurnState state, int32_t prompt_tokens, int64_t tokens) {
    io::TurnResult result;
    result.tokens.assign(tokens, 7);
    result.token_logprobs.assign(tokens, -0.5f);
    result.prompt_tokens = prompt_tokens;
    io::ResultsFile(folder_ / "results.h5").write(row, result, state);
  }
  Earlier read(bool retry_failed = false) const { return read_earlier(job_, false, retry_failed); }

  test::TempFolder folder_;
  job::Job job_;
  model::ModelConfig config_;
};

TEST_F(EarlierStart, IsNoneBeforeTheFirst) {
  EXPECT_TRUE(read().turns.empty());
  EXPECT_EQ(read().order, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(read().input_sha256, (std::vector<std::string>{hash(0), hash(1)}));
}

TEST_F(EarlierStart, KeepsItsInputsInFrontWhateverTheyAreCalled) {
  make_results();
  const auto hashes = read().input_sha256;
  std::filesystem::rename(folder_ / "b.h5", folder_ / "z.h5");
  job_.input.clear();
  add("a.h5", {{"a", {{{4}}}}});
  job_.input.push_back(folder_ / "c.h5");
  job_.input.push_back(folder_ / "z.h5");
  const Earlier earlier = read();
  EXPECT_EQ(earlier.order, (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ(earlier.turns.size(), 3u);
  EXPECT_EQ(earlier.input_sha256, (std::vector<std::string>{hashes[0], hashes[1], hash(0)}));
  reorder_inputs(job_, earlier.order);
  EXPECT_EQ(job_.input.front(), folder_ / "z.h5");
  EXPECT_EQ(job_.input.back(), folder_ / "a.h5");
  EXPECT_TRUE(read_earlier(job_, true, false).turns.empty()) << "--fresh";
}

TEST_F(EarlierStart, IsNotThisRunsWhereAnInputIsGone) {
  make_results();
  job_.input.pop_back();
  EXPECT_TRUE(read().turns.empty());
}

TEST_F(EarlierStart, LeavesTheStatesOfItsTurns) {
  job_.limits.over_length = job::OverLength::truncate_left;
  make_results();
  write(0, TurnState::failed, 2, 0);
  write(1, TurnState::done, 40, 6);
  Earlier earlier = read();
  EXPECT_TRUE(earlier.turns[0].failed());
  EXPECT_TRUE(earlier.turns[1].done());
  EXPECT_EQ(earlier.turns[1].prompt_tokens, 40);
  EXPECT_EQ(earlier.turns[1].output_tokens, 6);
  EXPECT_EQ(earlier.turns[1].cut_left, 1);
  EXPECT_EQ(earlier.turns[2].state, TurnState::open);
  EXPECT_EQ(read(true).turns[0].state, TurnState::open) << "--retry-failed";
}

TEST_F(EarlierStart, LeavesThePromptsOfDoneTurnsAsTheyWere) {
  job_.limits.over_length = job::OverLength::truncate_left;
  make_results();
  write(1, TurnState::done, 40, 6);
  job_.limits.over_length = job::OverLength::truncate_middle;
  job_.generation.max_new_tokens = 30;  // of a prompt of 60 tokens, 20 would stay
  const Inputs inputs(job_, config_, read().turns);
  const InputRequest& chain = inputs.requests()[1];
  const io::ResultsFile results(folder_ / "results.h5");
  const batch::Request loaded = execute::load_open(inputs, results, chain);
  ASSERT_EQ(loaded.turns[0].tokens.size(), 40u);
  EXPECT_EQ(loaded.turns[0].tokens.front(), 21) << "its end";
  EXPECT_TRUE(loaded.turns[0].finished);
  EXPECT_EQ(loaded.turns[0].answer.tokens.size(), 6u);
  EXPECT_EQ(loaded.turns[1].refused, "");
  schedule::SchedulerLimits limits;
  limits.max_batch_tokens = 16;
  EXPECT_LE(schedule::Scheduler(limits).tokens_needed(loaded), inputs.max_slots(chain, 1, 16));
}

TEST_F(EarlierStart, DecidesWhatAChainHasRoomFor) {
  make_results();  // which fails the turn of 60 tokens and so the one after it
  const Inputs first(job_, config_, read().turns);
  EXPECT_EQ(first.refused_requests(), 1);
  EXPECT_EQ(first.prompt_tokens(), 2);
  // Done under a longer length, it leaves no room for the next turn under this one.
  write(1, TurnState::done, 60, 6);
  const Inputs after(job_, config_, read().turns);
  EXPECT_EQ(after.load(after.requests()[1]).turns[0].refused, "");
  EXPECT_NE(after.load(after.requests()[1]).turns[1].refused.find("at least 67 tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace pecia::batch
