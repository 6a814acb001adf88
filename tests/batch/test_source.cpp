// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/execute/source.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::batch {
namespace {

/// Requests "0" … with prompts of 3, 30, 3 and 20 tokens, two turns each, and their results.
class OpenRequests : public testing::Test {
 protected:
  OpenRequests() {
    test::ShardContent content;
    for (const size_t length : {3, 30, 3, 20})
      content.requests.push_back(
          {std::to_string(content.requests.size()), {{std::vector<int32_t>(length, 1)}, {{2}}}});
    test::write_shard(folder_ / "a.h5", content);
    job_.model.path = folder_.path();
    job_.input = {folder_ / "a.h5"};
    job_.generation.max_new_tokens = 4;
    config_.vocab = 100, config_.max_positions = 1000;
    config_.hidden = 8, config_.ffn = 8, config_.layers = 1;
    config_.num_heads = config_.num_kv_heads = 1, config_.head_dim = 8;
    inputs_.emplace(job_, config_);
    io::ResultsFile::create(folder_ / "results.h5", inputs_->layout());
    results_.emplace(folder_ / "results.h5");
  }
  void write(int64_t row, io::TurnState state, std::vector<int32_t> tokens,
             std::string error = "") {
    io::TurnResult result;
    result.token_logprobs.assign(tokens.size(), -0.5f);
    result.tokens = std::move(tokens);
    result.error = std::move(error);
    result.queue_s = 1, result.ttft_s = 2, result.decode_s = 3;
    results_->write(row, result, state);
  }
  /// First rows of what a run takes, in order.
  std::vector<int64_t> taken(job::Order order) {
    const auto counter = comm::make_null_communicator()->make_counter();
    execute::ListSource source(*inputs_, *results_, order, *counter);
    std::vector<int64_t> rows;
    while (const auto request = take(source)) rows.push_back(request->turns.front().row);
    EXPECT_FALSE(take(source));
    EXPECT_FALSE(source.next_arrival());
    return rows;
  }
  std::optional<batch::Request> take(execute::Source& source) { return source.take(idle_, 0); }

  test::TempFolder folder_;
  job::Job job_;
  model::ModelConfig config_;
  std::optional<Inputs> inputs_;
  std::optional<io::ResultsFile> results_;
  const schedule::Scheduler idle_{schedule::SchedulerLimits{}};
};

TEST_F(OpenRequests, AreTakenInTheOrderAsked) {
  EXPECT_EQ(taken(job::Order::fcfs), (std::vector<int64_t>{0, 2, 4, 6}));
  EXPECT_EQ(taken(job::Order::longest_first), (std::vector<int64_t>{2, 6, 0, 4}))
      << "equals keep their order";
}

TEST_F(OpenRequests, AreThoseWithATurnLeft) {
  write(0, io::TurnState::done, {1});
  write(1, io::TurnState::failed, {}, "bad");
  write(2, io::TurnState::done, {1});
  EXPECT_EQ(taken(job::Order::fcfs), (std::vector<int64_t>{2, 4, 6}));
}

TEST_F(OpenRequests, AreSharedByTheReplicasThatTake) {
  const auto counter = comm::make_null_communicator()->make_counter();
  execute::ListSource one(*inputs_, *results_, job::Order::fcfs, *counter);
  execute::ListSource other(*inputs_, *results_, job::Order::fcfs, *counter);
  EXPECT_EQ(take(one)->turns.front().row, 0);
  EXPECT_EQ(take(other)->turns.front().row, 2);
  EXPECT_EQ(take(other)->turns.front().row, 4);
  EXPECT_EQ(take(one)->turns.front().row, 6);
  EXPECT_FALSE(take(one));
  EXPECT_FALSE(take(other));
}

TEST_F(OpenRequests, AreLeftToOthersByWhoHasEnough) {
  const auto counter = comm::make_null_communicator()->make_counter();
  execute::ListSource source(*inputs_, *results_, job::Order::fcfs, *counter);
  schedule::SchedulerLimits limits;
  limits.kv_tokens = 100, limits.max_positions = 1000;
  schedule::Scheduler small(limits);
  small.add(*source.take(small, 0), 0);
  EXPECT_FALSE(source.take(small, 0));
  EXPECT_EQ(take(source)->turns.front().row, 2);
}

/// Passed over while an end is assumed, they are all taken once it is forgotten.
TEST_F(OpenRequests, AreTakenOnceAnAssumedEndIsForgotten) {
  const auto counter = comm::make_null_communicator()->make_counter();
  execute::ListSource source(*inputs_, *results_, job::Order::fcfs, *counter);
  schedule::SchedulerLimits limits;
  limits.kv_tokens = 1000, limits.max_positions = 1000, limits.max_sequences = 8;
  limits.max_batch_tokens = 1000;
  const schedule::RateFit slow({1, 1, 1});
  limits.time = {.end_s = 0.01, .times = {slow, slow}, .assumed = true};
  schedule::Scheduler scheduler(limits);
  EXPECT_FALSE(source.take(scheduler, 0.02)) << "nothing ends in time, and time is over";
  scheduler.forget_assumed_end_once_over(0.02);
  int taken = 0;
  while (auto request = source.take(scheduler, 0.02)) {
    scheduler.add(std::move(*request), 0);
    ++taken;
  }
  EXPECT_EQ(taken, 4);
}

TEST_F(OpenRequests, GoOnFromWhatIsInTheResults) {
  write(0, io::TurnState::done, {7, 8});
  write(1, io::TurnState::partial, {9});
  write(2, io::TurnState::failed, {}, "bad");
  const auto counter = comm::make_null_communicator()->make_counter();
  execute::ListSource source(*inputs_, *results_, job::Order::fcfs, *counter);
  const batch::Request first = *take(source), second = *take(source);

  EXPECT_TRUE(first.turns[0].finished);
  EXPECT_TRUE(first.turns[0].recorded);
  EXPECT_EQ(first.turns[0].answer.tokens, (std::vector<int32_t>{7, 8}));
  EXPECT_FALSE(first.turns[1].finished);
  EXPECT_FALSE(first.turns[1].recorded);
  EXPECT_EQ(first.turns[1].answer.tokens, (std::vector<int32_t>{9}));
  EXPECT_EQ(first.turns[1].answer.token_logprobs, (std::vector<float>{-0.5f}));
  EXPECT_EQ(first.turns[1].answer.queue_s, 1);
  EXPECT_EQ(first.turns[1].answer.ttft_s, 2);
  EXPECT_EQ(first.turns[1].answer.decode_s, 3);
  EXPECT_EQ(second.turns[0].refused, "bad");
  EXPECT_TRUE(second.turns[0].recorded);
  EXPECT_FALSE(second.turns[0].finished);
  EXPECT_EQ(second.turns[1].refused, "");
}

}  // namespace
}  // namespace pecia::batch
