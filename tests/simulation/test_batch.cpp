// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/simulation/batch_end.hpp"
#include "lib/simulation/sweep.hpp"
#include "tests/simulation/small_job.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::simulation {
namespace {

constexpr int64_t book = 1600, questions = 12;  // 1600: 100 blocks in which prompts are compared

/// Questions about one book, and between them prompts that have nothing in common.
class Questions : public testing::Test {
 protected:
  Questions() {
    small_.job.model.path = folder_.path();
    small_.job.generation.max_new_tokens = 4;
    test::ShardContent content;
    for (int32_t i = 0; i < questions; ++i) {
      std::vector<int32_t> prompt(book, 1);
      prompt.insert(prompt.end(), 150 + i, 100 + i);
      content.requests.push_back({"q" + std::to_string(i), {{prompt}}});
      content.requests.push_back({"o" + std::to_string(i), {{std::vector<int32_t>(20, 200 + i)}}});
    }
    test::write_shard(folder_ / "a.h5", content);
    small_.job.input = {folder_ / "a.h5"};
  }

  static resources::Resources replicas(int dp) {
    resources::Resources resources;
    resources.dp = dp;
    return resources;
  }

  test::TempFolder folder_;
  SmallJob small_;
};

TEST_F(Questions, ReadTheirBookOnceOnEachReplica) {
  batch::Inputs inputs(small_.job, small_.config);
  Batches batches(small_.job, inputs, small_.config);
  const resources::BatchWork& alone = batches.alone().work();
  EXPECT_EQ(alone.prompt_tokens, inputs.prompt_tokens());
  for (const int dp : {1, 2}) {
    const Batch& shared = batches.of(small_.job, replicas(dp));
    EXPECT_EQ(std::ranges::count_if(shared.requests(),
                                    [](const auto& request) { return request.is_joined(); }),
              dp);
    EXPECT_EQ(shared.work().requests, alone.requests);
    EXPECT_EQ(shared.work().answer_tokens, alone.answer_tokens);
    EXPECT_EQ(shared.work().prompt_tokens, alone.prompt_tokens - (questions - dp) * book);
    EXPECT_EQ(shared.longest_prompt(), batches.alone().longest_prompt());
    EXPECT_EQ(&shared, &batches.of(small_.job, replicas(dp)));
    // A run counts the same (resources::resolve_max_sequences).
    inputs.share(batch::find_prefixes(inputs.prompt_prefixes(16), {.parts = dp}));
    EXPECT_EQ(shared.work().prompt_tokens, inputs.prompt_tokens() - inputs.shared_tokens());
    double flops = 0;
    for (const batch::InputRequest& request : inputs.requests()) flops += request.work;
    EXPECT_NEAR(shared.work().flops, flops, 1e-9 * flops);
  }
  resources::Resources teams = replicas(1);
  teams.cp = 2, teams.elastic = true;
  EXPECT_EQ(&batches.of(small_.job, teams), &batches.of(small_.job, replicas(2)));
}

TEST_F(Questions, EndSoonerThanIfEachReadTheBook) {
  batch::Inputs inputs(small_.job, small_.config);
  Batches batches(small_.job, inputs, small_.config);
  PassCosts costs(small_.scenario());
  for (const int dp : {1, 2}) {
    const job::Job::Parallel layout{.dp = dp, .cp = {1}, .sp = 1, .tp = 1};
    small_.job.batch.prefix_sharing = true;
    const LayoutForecast shared = forecast(costs, batches, layout, dp);
    const Batch& batch = batches.of(small_.job, shared.resources);
    EXPECT_LE(end_lower_bound_s(batch, shared.resources, *shared.times), shared.end->end_s);
    small_.job.batch.prefix_sharing = false;
    EXPECT_EQ(batches.why_not_shared(small_.job, shared.resources),
              "batch.prefix_sharing is false");
    const LayoutForecast alone = forecast(costs, batches, layout, dp);
    EXPECT_LT(shared.end->end_s, 0.5 * alone.end->end_s);
    EXPECT_EQ(shared.end->sharing.prefixes, dp);
    EXPECT_EQ(shared.end->sharing.requests, questions);
    EXPECT_EQ(shared.end->sharing.spared_tokens(), (questions - dp) * book);
    EXPECT_EQ(alone.end->sharing.requests, 0);
  }
}

/// What is played of a batch is the same in every layout, and groups are whole.
TEST_F(Questions, ArePlayedTogetherOrNotAtAll) {
  batch::Inputs inputs(small_.job, small_.config);
  for (const bool with_book : {true, false}) {
    Batches batches(small_.job, inputs, small_.config, [&](const Batches::Requests& all) {
      EXPECT_EQ(all.size(), questions + 1);
      std::vector<size_t> part;
      for (size_t i = 0; i < all.size(); ++i)
        if (all[i].is_joined() == with_book) part.push_back(i);
      return part;
    });
    EXPECT_EQ(batches.alone().work().requests, questions);
    EXPECT_EQ(batches.alone().work().prompt_tokens > questions * book, with_book);
    for (const int dp : {1, 2, 3})
      EXPECT_EQ(batches.of(small_.job, replicas(dp)).work().answer_tokens, questions * 4);
  }
}

}  // namespace
}  // namespace pecia::simulation
