/// Random workloads: whatever the limits, every turn gets the answer that the model gives it alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lib/core/random.hpp"
#include "tests/runtime/fake_replica.hpp"

namespace pecia::test {
namespace {

using runtime::Request;
using runtime::SchedulerLimits;
using runtime::Turn;

/// Numbers drawn one after the other from a seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  /// In [low, high].
  int64_t operator()(int64_t low, int64_t high) {
    return low +
           static_cast<int64_t>(uniform(seed_, index_++) * static_cast<double>(high - low + 1));
  }
  template <typename T>
  T of(const std::vector<T>& values) {
    return values[(*this)(0, static_cast<int64_t>(values.size()) - 1)];
  }
  bool one_in(int64_t count) { return (*this)(1, count) == 1; }

 private:
  uint64_t seed_;
  uint64_t index_ = 0;
};

Turn random_turn(Draw& draw, int64_t row) {
  Turn turn;
  turn.row = row;
  turn.tokens.resize(draw.one_in(3) ? draw(1, 3) : draw(1, 60));
  for (int32_t& token : turn.tokens) token = static_cast<int32_t>(draw(5, 95));
  turn.max_new_tokens = static_cast<int32_t>(draw.one_in(3) ? draw(0, 2) : draw(0, 25));
  turn.random_key = static_cast<uint64_t>(draw(0, 1 << 30));
  if (draw.one_in(25)) turn.refused = "a bad turn";
  return turn;
}

std::vector<Request> random_requests(Draw& draw) {
  std::vector<Request> requests(draw(1, 10));
  int64_t row = 0;
  for (Request& request : requests) {
    const bool fork = draw.one_in(2);
    request.followup = fork ? io::Followup::fork : io::Followup::chain;
    const int64_t turns = fork ? draw(1, 21) : draw(1, 4);
    for (int64_t i = 0; i < turns; ++i) request.turns.push_back(random_turn(draw, row++));
    if (fork && draw.one_in(2)) request.turns.front().max_new_tokens = 0;
  }
  return requests;
}

/// Memory is often just what the largest request needs.
SchedulerLimits random_limits(Draw& draw, const std::vector<Request>& requests) {
  SchedulerLimits limits;
  limits.ring_size = draw.of<int>({1, 2, 3, 8});
  limits.max_sequences = draw.of<int64_t>({1, 2, 5, 64});
  limits.max_batch_tokens = draw.of<int64_t>({1, 3, 16, 50, 1000});
  limits.max_positions = draw.of<int64_t>({40, 70, 100, 100000});
  limits.stop_token_ids = {0, stop_token};
  limits.logprobs = draw.of<int>({0, 2, -1});
  limits.prompt_logprobs = draw.of<int>({0, 1, 3, -1});
  limits.vocab = 7;
  const runtime::Scheduler counting(limits);
  for (const Request& request : requests)
    limits.kv_tokens = std::max(limits.kv_tokens, counting.tokens_needed(request));
  limits.kv_tokens = draw.of<int64_t>({1, 1, 2, 100}) * limits.kv_tokens + draw(0, 1) * draw(0, 10);
  return limits;
}

struct EveryWorkload : testing::TestWithParam<uint64_t> {};

TEST_P(EveryWorkload, GivesEachTurnItsOwnAnswer) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  const auto limits = random_limits(draw, requests);
  expect_same(serve(limits, requests).rows, expected(limits, requests));
}

TEST_P(EveryWorkload, FillsBatchesWithinTheirLimit) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  const auto limits = random_limits(draw, requests);
  for (const auto& plan : serve(limits, requests).plans) {
    int64_t tokens = 0;
    std::set<int64_t> sequences;
    for (const auto& item : plan.items) {
      tokens += item.rows.count;
      EXPECT_TRUE(sequences.insert(item.rows.sequence).second) << "twice in pass " << plan.number;
    }
    if (plan.items.front().rows.owner == parallel::PassSequence::balanced) {
      EXPECT_EQ(plan.ring, parallel::Ring::pass_kv);
      EXPECT_LE(tokens, limits.max_batch_tokens) << "pass " << plan.number;
    }
  }
}

/// As long as no rank's share of a sequence is used up: answers end by stop tokens, early.
TEST_P(EveryWorkload, DealsDecodeRowsEvenly) {
  Draw draw(GetParam());
  auto requests = random_requests(draw);
  for (Request& request : requests)
    for (Turn& turn : request.turns) turn.max_new_tokens = 4000;
  const auto limits = random_limits(draw, requests);
  for (const auto& plan : serve(limits, requests).plans) {
    if (plan.items.front().rows.owner == parallel::PassSequence::balanced) continue;
    std::vector<int64_t> rows(limits.ring_size);
    for (const auto& item : plan.items) {
      EXPECT_EQ(item.rows.count, 1);
      ++rows.at(item.rows.owner);
    }
    const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
    EXPECT_LE(*most - *least, 1) << "pass " << plan.number << ": " << testing::PrintToString(rows);
  }
}

TEST_P(EveryWorkload, ScoresEachPromptTokenOnce) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  auto limits = random_limits(draw, requests);
  limits.prompt_logprobs = 1;
  const auto served = serve(limits, requests);
  int64_t wanted = 0, targets = 0;
  for (const auto& [row, finished] : served.rows)
    for (const float logprob : finished.result.prompt_logprobs) wanted += !std::isnan(logprob);
  for (const auto& plan : served.plans) targets += static_cast<int64_t>(plan.targets.size());
  EXPECT_GE(targets, wanted);
  const bool none_failed = std::all_of(served.rows.begin(), served.rows.end(), [](const auto& row) {
    return row.second.state == io::TurnState::done;
  });
  if (none_failed) {
    EXPECT_EQ(targets, wanted);
  }
}

/// Another run may have other limits, as long as the model is the same.
SchedulerLimits other_limits(Draw& draw, const std::vector<Request>& requests,
                             const SchedulerLimits& before) {
  SchedulerLimits limits = random_limits(draw, requests);
  limits.max_positions = before.max_positions;
  limits.logprobs = before.logprobs;
  limits.prompt_logprobs = before.prompt_logprobs;
  return limits;
}

TEST_P(EveryWorkload, GivesTheSameWhenStoppedAndContinued) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  auto limits = random_limits(draw, requests);
  const auto wanted = expected(limits, requests);
  auto open = requests;
  std::map<int64_t, runtime::Finished> rows;
  for (const int64_t passes : {draw(0, 40), draw(0, 40), int64_t{1} << 40}) {
    const Served served = serve(limits, open, passes);
    for (const auto& [row, finished] : served.rows)
      EXPECT_TRUE(rows.emplace(row, finished).second) << "row " << row << " is recorded again";
    open = resumed(open, served);
    limits = other_limits(draw, open, limits);
  }
  expect_same(rows, wanted);
}

TEST_P(EveryWorkload, KeepsTimesThatAddUp) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  const auto limits = random_limits(draw, requests);
  const auto served = serve(limits, requests);
  for (const Request& request : requests) {
    const bool fork = request.followup == io::Followup::fork;
    for (size_t i = 0; i < request.turns.size(); ++i) {
      const auto& [row, state, result] = served.rows.at(request.turns[i].row);
      EXPECT_GE(result.queue_s, 0);
      EXPECT_GE(result.ttft_s, 0);
      EXPECT_GE(result.decode_s, 0);
      EXPECT_EQ(result.decode_s > 0, result.tokens.size() > 1);
      if (result.tokens.empty()) continue;
      EXPECT_GT(result.ttft_s, 0);
      EXPECT_GT(result.prefill_compute_s, 0);
      EXPECT_GT(result.prefill_comm_s, 0);
      // A branch is ready when its stem is, which shows only where the stem is a row that ends
      // there.
      if (fork && i > 0 && served.rows.at(request.turns[0].row).result.tokens.size() > 1) continue;
      const double ready = i == 0 ? 0 : served.finished_at.at(request.turns[fork ? 0 : i - 1].row);
      EXPECT_EQ(result.queue_s + result.ttft_s + result.decode_s,
                served.finished_at.at(row) - ready)
          << "row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EveryWorkload, testing::Range(uint64_t{0}, uint64_t{120}));

}  // namespace
}  // namespace pecia::test
