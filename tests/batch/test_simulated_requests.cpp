// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/scheduler.hpp"
#include "lib/engine/schedule/simulated_requests.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::batch {
namespace {

/// A row of a pass: the position of its first token, and the number of tokens.
using Rows = std::vector<std::pair<int64_t, int64_t>>;

Rows rows_of(const schedule::Plan& plan) {
  Rows rows;
  for (const schedule::PlanItem& item : plan.items)
    rows.emplace_back(item.rows.first, item.rows.count);
  return rows;
}

schedule::SchedulerLimits limits_of(bool layout) {
  schedule::SchedulerLimits limits;
  limits.kv_tokens = 1000;
  limits.max_sequences = 3;
  limits.max_batch_tokens = 16;
  limits.max_positions = 200;
  limits.vocab = 100;
  limits.ring = parallel::AttentionExchange::pass_kv;
  limits.layout_invariant = layout;
  return limits;
}

/// The passes of a scheduler that has the requests as a run gives them.
std::vector<Rows> passes_of_run(const Inputs& inputs, const job::Job& job, bool layout,
                                batch::Sharing& sharing) {
  schedule::Scheduler scheduler(limits_of(layout));
  std::vector<Rows> passes;
  for (const RequestGroup& group : schedule::runnable_groups(inputs, job.batch)) {
    std::vector<batch::Request> requests;
    for (const InputRequest* request : group.requests) requests.push_back(inputs.load(*request));
    scheduler.add(
        requests.size() == 1 ? requests.front() : joined(requests, group.shared_tokens).value(), 0);
  }
  while (const auto plan = scheduler.next(0)) {
    passes.push_back(rows_of(*plan));
    schedule::Outcome outcome;
    for (size_t sample = 0; sample < plan->samples().size(); ++sample) {
      outcome.sampled.which.push_back(static_cast<int32_t>(sample));
      outcome.sampled.tokens.push_back(1);
      outcome.sampled.logprobs.push_back(0);
    }
    scheduler.commit(*plan, {outcome}, 0);
  }
  sharing = scheduler.sharing();
  return passes;
}

/// Chains, single turns and forks with one beginning, and requests that are alone.
class AlikeRequests : public testing::Test {
 protected:
  AlikeRequests() {
    config_.vocab = 100;
    config_.hidden = 8, config_.ffn = 16, config_.layers = 2;
    config_.num_heads = 2, config_.num_kv_heads = 1, config_.head_dim = 4;
    config_.max_positions = 200;
    job_.model.path = folder_.path();
    job_.generation.max_new_tokens = 5;
    test::ShardContent chains;
    chains.requests = {{"chain", {{test::ascending(35)}, {{1}}, {{2, 3}}}},
                       {"alone", {{{9, 9, 9, 9}}}},
                       {"one", {{test::ascending(34)}}},
                       {"other", {{test::ascending(60)}}}};
    test::write_shard(folder_ / "a.h5", chains);
    test::ShardContent forks;
    std::vector<int32_t> stem = test::ascending(33);
    stem.insert(stem.end(), {7, 7, 7});
    forks.requests = {{"fork", {{stem}, {{3, 4}}, {{5}}}}};
    forks.followup = "fork";
    test::write_shard(folder_ / "b.h5", forks);
    job_.input = {folder_ / "a.h5", folder_ / "b.h5"};
  }

  test::TempFolder folder_;
  job::Job job_;
  model::ModelConfig config_;
};

/// A simulation makes the run's passes, row for row, with and without shared beginnings.
TEST_F(AlikeRequests, AreSimulatedInThePassesOfTheRun) {
  for (const bool shares : {false, true})
    for (const bool layout : {false, true}) {
      Inputs inputs(job_, config_);
      if (shares) inputs.share(find_prefixes(inputs.prompt_prefixes(16), {.block = 16}));
      batch::Sharing sharing;
      const std::vector<Rows> run = passes_of_run(inputs, job_, layout, sharing);
      std::vector<Rows> simulated;
      const schedule::PassSeconds seconds = [&](const schedule::Plan& plan) {
        simulated.push_back(rows_of(plan));
        return 0.0;
      };
      const schedule::Simulation found = schedule::simulate(
          limits_of(layout), seconds, schedule::simulated_requests(inputs, job_.batch));
      EXPECT_EQ(simulated, run) << "shares " << shares << ", layout " << layout;
      EXPECT_EQ(found.sharing.prefixes, shares ? 1 : 0);
      EXPECT_EQ(found.sharing.spared_tokens(), sharing.spared_tokens());
      EXPECT_EQ(found.sharing.spared_tokens(), inputs.shared_tokens());
    }
}

}  // namespace
}  // namespace pecia::batch
