// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/loong_dispatch.hpp"

namespace pecia::test {
namespace {

using schedule::Dispatched;
using schedule::LoongInstance;
using schedule::LoongLimits;
using schedule::LoongView;
using schedule::PromptToRead;
using schedule::ReadingGoal;
using schedule::TeamTimes;

/// A pass takes a tenth of a second, and a row of a prompt a millisecond. A row of an answer adds a
/// fiftieth of a second, a message nothing, and keys of a million tokens travel in a second.
TeamTimes times_of(int degrees) {
  return {{schedule::RateFit({0.1, 1e-3, 1e-12}), schedule::RateFit({0.1, 0.02, 1e-12})},
          {.bytes_per_second = 1e6, .kv_bytes_per_token = 1, .layers = 1},
          degrees};
}

PromptToRead prompt(int64_t tokens, int64_t slots = 0) {
  return {tokens, std::max(tokens, slots), 1.0 / static_cast<double>(tokens)};
}

/// Four instances with 10 000 slots each.
LoongView view_of(std::vector<PromptToRead> waiting) {
  return {std::move(waiting), std::vector<LoongInstance>(4, {.free_slots = 10000}), {}};
}

/// Lets these instances make an answer each time of one team, with `context` tokens.
void answer(LoongView& view, std::vector<int32_t> instances, int64_t context, double rest_s,
            double weight) {
  for (const int32_t instance : instances) {
    view.instances[instance].answers = view.answers.size();
    view.instances[instance].sequences = 1;
    view.instances[instance].used_slots = context / std::ssize(instances);
    view.instances[instance].free_slots -= view.instances[instance].used_slots;
  }
  view.answers.push_back({std::move(instances), rest_s, weight, 1, context, true});
}

const LoongLimits plain{.batch = {.rows_per_instance = 4000}, .sequences = 8};

TEST(LoongDispatch, TakesPromptsAsLongAsThereAreSlots) {
  const LoongView view = view_of({prompt(9000), prompt(9000), prompt(9000, 25000), prompt(5)});
  const Dispatched taken = dispatch(view, times_of(4), plain);
  EXPECT_EQ(taken.prompts, 2u) << "none comes before the one that waits";
  EXPECT_EQ(taken.instances, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(LoongDispatch, StopsWhereEveryInstanceComputesEnough) {
  // A pass's own tenth of a second is a twentieth of the whole at 2000 tokens.
  LoongView view = view_of(std::vector<PromptToRead>(20, prompt(1000)));
  EXPECT_EQ(dispatch(view, times_of(4), plain).prompts, 8u);
  view.instances[1].reads = view.instances[3].reads = true;
  const Dispatched taken = dispatch(view, times_of(4), plain);
  EXPECT_EQ(taken.prompts, 4u);
  EXPECT_EQ(taken.instances, (std::vector<int32_t>{0, 2}));
  view.instances[0].reads = view.instances[2].reads = true;
  EXPECT_EQ(dispatch(view, times_of(4), plain).prompts, 0u);
}

TEST(LoongDispatch, LetsAShortPromptInterruptLongAnswersAlone) {
  const auto taken_by = [](int64_t tokens, double rest_s) {
    LoongView view = view_of({prompt(tokens)});
    view.instances.resize(1);
    answer(view, {0}, 1000, rest_s, 0.01);  // an answer of 100 tokens
    return dispatch(view, times_of(1), plain).prompts;
  };
  // Gain: 50 s / 100. Cost: (0.1 + 0.1) s / 100.
  EXPECT_EQ(taken_by(100, 50), 1u);
  EXPECT_EQ(taken_by(100, 0.1), 0u) << "the answers end soon";
  // Gain: 50 s / 8000. Cost: (0.2 + 8) s / 100.
  EXPECT_EQ(taken_by(8000, 50), 0u) << "the answers would wait long";
}

TEST(LoongDispatch, OfAMakespanPromptsComeFirst) {
  LoongView view = view_of({prompt(8000)});
  view.instances.resize(1);
  answer(view, {0}, 1000, 50, 0.01);
  LoongLimits makespan = plain;
  makespan.goal = ReadingGoal::makespan;
  EXPECT_EQ(dispatch(view, times_of(1), makespan).prompts, 1u);
}

TEST(LoongDispatch, EmptiesTheInstanceWithTheFewestSlotsInUse) {
  LoongView view = view_of({prompt(8000)});
  answer(view, {1, 2}, 1000, 50, 0.001);  // an answer of 1000 tokens
  view.instances[2].used_slots = 100;
  view.answers[0].context = 1'000'000;
  view.instances[3].reads = true;
  Dispatched taken = dispatch(view, times_of(4), plain);
  ASSERT_EQ(taken.instances, (std::vector<int32_t>{0}));
  // Gain: (8.2 − 4.1) s / 8000 is less than the cost, 1 s / 1000.
  EXPECT_TRUE(shrink(view, times_of(4), plain, taken).empty());
  view.answers[0].weight = 0.0001;
  EXPECT_EQ(shrink(view, times_of(4), plain, taken), (std::vector<int32_t>{2}));
  EXPECT_EQ(taken.instances, (std::vector<int32_t>{0, 2}));
}

TEST(LoongDispatch, EmptiesNoneWhoseKeysHaveNoRoom) {
  LoongView view = view_of({prompt(8000)});
  answer(view, {1, 2}, 1000, 50, 0.0001);
  view.instances[3].reads = true;
  Dispatched taken = dispatch(view, times_of(4), plain);
  const Dispatched before = taken;
  view.instances[1].free_slots = view.instances[2].free_slots = 499;
  EXPECT_TRUE(shrink(view, times_of(4), plain, taken).empty());
  view.instances[1].free_slots = view.instances[2].free_slots = 500;
  view.answers[0].can_move = false;
  EXPECT_TRUE(shrink(view, times_of(4), plain, taken).empty());
  view.answers[0].can_move = true;
  LoongLimits without = plain;
  without.parts.shrinks = false;
  EXPECT_TRUE(shrink(view, times_of(4), without, taken).empty());
  EXPECT_EQ(taken.instances, before.instances);
  EXPECT_EQ(shrink(view, times_of(4), plain, taken).size(), 1u);
}

TEST(LoongDispatch, LetsAShortPromptJoinABatchUnderWay) {
  const std::vector<schedule::BatchUnderWay> batches{{0, {0, 1}, 5, 1e-4}, {1, {2, 3}, 9, 1e-4}};
  const auto anywhere = [](size_t) { return true; };
  EXPECT_EQ(joined_batch(prompt(100), batches, times_of(4), plain, anywhere), 1u);
  EXPECT_EQ(joined_batch(prompt(100), batches, times_of(4), plain,
                         [](size_t batch) { return batch == 0; }),
            0u);
  // Its own weight of 1 / 20 000 for 9 s is less than the batch's for 10 s.
  EXPECT_EQ(joined_batch(prompt(20000), batches, times_of(4), plain, anywhere), std::nullopt);
}

TEST(LoongDispatch, KeepsABatchOnTheFewestInstances) {
  const std::vector<PromptToRead> prompts{prompt(3000), prompt(2000), prompt(4000)};
  schedule::ReadingBatch batch{{0, 1, 2}, {3, 1, 0}, 0};
  std::vector<LoongInstance> instances(4, {.free_slots = 10000});
  auto slots = keepers(prompts, batch, times_of(4), plain, instances);
  const std::vector<int64_t> on_3_a{3000, 0, 0}, on_3_b{2000, 0, 0}, on_3_c{4000, 0, 0};
  EXPECT_EQ(slots, (std::vector{on_3_a, on_3_b, on_3_c}));
  EXPECT_EQ(instances[3].free_slots, 1000);
  EXPECT_EQ(instances[3].sequences, 3);

  // None has room for two of them.
  std::vector<LoongInstance> tight(4, {.free_slots = 4500});
  slots = keepers(prompts, batch, times_of(4), plain, tight);
  ASSERT_EQ(slots.size(), 3u);
  EXPECT_EQ(tight[3].free_slots + tight[1].free_slots + tight[0].free_slots, 3 * 4500 - 9000);
  EXPECT_EQ(tight[2].free_slots, 4500) << "it is not of the batch";

  // One is larger than any instance.
  std::vector<LoongInstance> small(4, {.free_slots = 3000});
  slots = keepers({prompt(5000)}, {{0}, {0, 1, 2}, 0}, times_of(4), plain, small);
  EXPECT_EQ(slots, (std::vector<std::vector<int64_t>>{{2500, 2500, 0}}));

  // Ten answers of a fiftieth of a second take twice the time of a pass on one instance.
  std::vector<LoongInstance> many(4, {.free_slots = 10000});
  const std::vector<PromptToRead> ten(10, prompt(10));
  const LoongLimits crowded{.batch = plain.batch, .sequences = 100};
  keepers(ten, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 1, 2}, 0}, times_of(4), crowded, many);
  EXPECT_EQ(many[0].sequences, 5);
  EXPECT_EQ(many[1].sequences, 5);
}

TEST(LoongDispatch, SpreadsABatchOverAllWithoutScaleDown) {
  LoongLimits without = plain;
  without.parts.scales_down = false;
  std::vector<LoongInstance> instances(2, {.free_slots = 10000});
  EXPECT_EQ(keepers({prompt(3000)}, {{0}, {0, 1}, 0}, times_of(2), without, instances),
            (std::vector<std::vector<int64_t>>{{1500, 1500}}));
}

}  // namespace
}  // namespace pecia::test
