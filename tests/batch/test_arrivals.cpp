// SPDX-License-Identifier: Apache-2.0
/// Who takes which request when, told by a clock of the test's own.

#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/engine/execute/arrivals.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::batch {
namespace {

/// One turn each; request i is row i.
struct Coming {
  size_t tokens;
  double arrival_s;
};

schedule::SchedulerLimits limits() {
  schedule::SchedulerLimits limits;
  limits.kv_tokens = 100, limits.max_positions = 1000;
  limits.max_sequences = 4, limits.max_batch_tokens = 64;
  return limits;
}

class Arriving : public testing::Test {
 protected:
  Arriving() {
    batch::Request request;
    request.turns.resize(1);
    request.turns[0].tokens.assign(46, 1);
    request.turns[0].max_new_tokens = 4;
    busy_.add(request, 0);
    EXPECT_TRUE(busy_.next(0));
  }
  void make(const std::vector<Coming>& coming) {
    test::ShardContent content;
    for (const Coming& request : coming) {
      content.requests.push_back(
          {std::to_string(content.requests.size()), {{std::vector<int32_t>(request.tokens, 1)}}});
      content.arrival_s.push_back(request.arrival_s);
    }
    test::write_shard(folder_ / "a.h5", content);
    job_.model.path = folder_.path();
    job_.input = {folder_ / "a.h5"};
    job_.batch.arrivals = job::Arrivals::replay;
    job_.generation.max_new_tokens = 4;
    config_.vocab = 100, config_.max_positions = 1000;
    config_.hidden = 8, config_.ffn = 8, config_.layers = 1;
    config_.num_heads = config_.num_kv_heads = 1, config_.head_dim = 8;
    inputs_.emplace(job_, config_);
    io::ResultsFile::create(folder_ / "results.h5", inputs_->layout());
    results_.emplace(folder_ / "results.h5");
    claims_ = comm::make_null_communicator()->make_counters(
        static_cast<int64_t>(inputs_->requests().size()));
  }
  execute::ArrivalSource source(job::Order order = job::Order::fcfs) {
    return {*inputs_, *results_, order, *claims_};
  }
  /// Row that is taken, −1 for none.
  static int64_t take(execute::ArrivalSource& source, const schedule::Scheduler& scheduler,
                      double now) {
    const auto request = source.take(scheduler, now);
    return request ? request->turns.front().row : -1;
  }
  /// Rows that an idle replica takes at a time, one after the other.
  std::vector<int64_t> rows(execute::ArrivalSource& source, double now) {
    std::vector<int64_t> rows;
    for (int64_t row = 0; (row = take(source, idle_, now)) >= 0;) rows.push_back(row);
    return rows;
  }
  test::TempFolder folder_;
  job::Job job_;
  model::ModelConfig config_;
  std::optional<Inputs> inputs_;
  std::optional<io::ResultsFile> results_;
  std::unique_ptr<comm::SharedCounters> claims_;
  const schedule::Scheduler idle_{schedule::SchedulerLimits{}};
  /// Of 100 slots, with a request under way that leaves room for one of 46 tokens.
  schedule::Scheduler busy_{limits()};
};

using Rows = std::vector<int64_t>;

TEST_F(Arriving, DoNotExistBeforeTheirTime) {
  make({{3, 2.5}, {3, 0}, {3, 1}});
  execute::ArrivalSource all = source();
  EXPECT_EQ(rows(all, 0), Rows{1});
  EXPECT_EQ(all.next_arrival(), 1);
  EXPECT_EQ(all.arrived_turns(), 1);
  EXPECT_EQ(rows(all, 0.999), Rows{});
  EXPECT_EQ(rows(all, 1), Rows{2});
  EXPECT_EQ(all.next_arrival(), 2.5);
  EXPECT_EQ(rows(all, 100), Rows{0});
  EXPECT_EQ(all.next_arrival(), std::nullopt);
  EXPECT_EQ(all.arrived_turns(), 3);
}

TEST_F(Arriving, ComeByArrivalThenByTheJobsOrder) {
  make({{3, 2}, {9, 1}, {3, 1}, {30, 2}, {5, 0}});
  execute::ArrivalSource all = source(job::Order::fcfs);
  EXPECT_EQ(rows(all, 5), (Rows{4, 1, 2, 0, 3}));
}

TEST_F(Arriving, AreLongestFirstOnlyAmongThoseThatAreThere) {
  make({{3, 0}, {9, 0}, {40, 1}, {9, 0}, {5, 1}});
  execute::ArrivalSource all = source(job::Order::longest_first);
  EXPECT_EQ(take(all, idle_, 0), 1);
  EXPECT_EQ(rows(all, 1), (Rows{2, 3, 4, 0})) << "equals by arrival, then in the job's order";
}

TEST_F(Arriving, GoToOneReplicaEach) {
  make({{3, 0}, {3, 0}, {3, 1}, {3, 1}});
  execute::ArrivalSource one = source(), other = source();
  EXPECT_EQ(take(one, idle_, 0), 0);
  EXPECT_EQ(take(other, idle_, 1), 1);
  EXPECT_EQ(take(other, idle_, 1), 2);
  EXPECT_EQ(rows(one, 1), Rows{3});
  EXPECT_EQ(rows(other, 9), Rows{});
}

TEST_F(Arriving, AreLeftToAReplicaThatHasRoom) {
  make({{47, 0}, {46, 0}});
  execute::ArrivalSource here = source(), there = source();
  EXPECT_EQ(take(here, busy_, 0), -1);
  EXPECT_EQ(take(here, busy_, 1), -1) << "nobody overtakes the first";
  EXPECT_EQ(take(there, idle_, 2), 0);
  EXPECT_EQ(take(here, busy_, 3), 1) << "the first is gone";
}

TEST_F(Arriving, ThatFitNowhereAreTakenToBeRefused) {
  make({{200, 0}});
  execute::ArrivalSource all = source();
  EXPECT_EQ(take(all, busy_, 0), 0);
}

TEST_F(Arriving, BringTheirTimeAlong) {
  make({{3, 1.5}});
  execute::ArrivalSource all = source();
  EXPECT_EQ(all.take(idle_, 2)->arrival_s, 1.5);
  job_.batch.arrivals = job::Arrivals::ignore;
  EXPECT_EQ(inputs_->load(inputs_->requests().front()).arrival_s, std::nullopt);
}

TEST_F(Arriving, OfAContinuedRunAreThoseStillOpen) {
  make({{3, 0}, {3, 4}, {3, 8}});
  io::TurnResult earlier;
  earlier.tokens = {7};
  earlier.token_logprobs = {-1};
  results_->write(0, earlier, io::TurnState::done);
  results_->write(1, earlier, io::TurnState::partial);
  execute::ArrivalSource all = source();
  EXPECT_EQ(all.arrived_turns(), 1);
  EXPECT_EQ(rows(all, 3), Rows{});
  EXPECT_EQ(all.next_arrival(), 4) << "begun or not, it comes at its time again";
  const auto begun = all.take(idle_, 4);
  ASSERT_TRUE(begun);
  EXPECT_EQ(begun->turns.front().answer.tokens, std::vector<int32_t>{7});
  EXPECT_EQ(rows(all, 8), Rows{2});
}

TEST_F(Arriving, AreRefusedWhereTheShardDoesNotSayWhen) {
  test::ShardContent content;
  content.requests = {{"a", {{{1, 2}}}}};
  test::write_shard(folder_ / "a.h5", content);
  job_.model.path = folder_.path();
  job_.input = {folder_ / "a.h5"};
  config_.vocab = 100;
  EXPECT_NO_THROW(Inputs(job_, config_));
  job_.batch.arrivals = job::Arrivals::replay;
  try {
    const Inputs inputs(job_, config_);
    FAIL() << "taken";
  } catch (const InputError& error) {
    const std::string words = error.what();
    EXPECT_NE(words.find((folder_ / "a.h5").string() + ": /arrival_s is missing"),
              std::string::npos)
        << words;
  }
}

}  // namespace
}  // namespace pecia::batch
