// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/elastic_place.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::schedule {
namespace {

constexpr PlacementLimits limits{.sequences = 4, .pass_tokens = 100};

TEST(PlaceOf, IsTheIdleInstanceWithTheFewestSequencesAndMostSlots) {
  std::vector<InstanceRoom> instances(4, {.free_slots = 50});
  instances[0].idle = false;
  instances[1].sequences = 2;
  instances[3].free_slots = 60;
  EXPECT_EQ(place_of(instances, 10, 0, limits), 3);
  instances[3].free_slots = 50;
  EXPECT_EQ(place_of(instances, 10, 0, limits), 2) << "the earlier of equal ones";
  instances[2].sequences = instances[3].sequences = 3;
  EXPECT_EQ(place_of(instances, 10, 0, limits), 1) << "fewest sequences before most slots";
}

TEST(PlaceOf, IsNoneWithoutSlotsPlacesOrTime) {
  for (const auto& spoil : std::vector<std::function<void(InstanceRoom&)>>{
           [](InstanceRoom& of) { of.idle = false; }, [](InstanceRoom& of) { of.free_slots = 9; },
           [](InstanceRoom& of) { of.sequences = 4; },
           [](InstanceRoom& of) {
             of.unread = {{.due_s = 1, .tokens = 60}, {.due_s = 2, .tokens = 40}};
           }}) {
    std::vector<InstanceRoom> instances(1, {.free_slots = 50});
    EXPECT_EQ(place_of(instances, 10, 2, limits), 0);
    spoil(instances[0]);
    EXPECT_FALSE(place_of(instances, 10, 2, limits));
  }
}

TEST(PlaceOf, DoesNotCountPromptsThatAreReadLater) {
  const std::vector<InstanceRoom> instances(
      1, {.free_slots = 50, .unread = {{.due_s = 1, .tokens = 60}, {.due_s = 3, .tokens = 1000}}});
  EXPECT_EQ(place_of(instances, 10, 2, limits), 0);
  EXPECT_FALSE(place_of(instances, 10, 3, limits));
}

/// The least number of instances with so many slots, found by trying all subsets.
size_t fewest(const std::vector<int64_t>& free, int64_t slots) {
  size_t least = free.size() + 1;
  for (size_t set = 1; set < size_t{1} << free.size(); ++set) {
    int64_t together = 0;
    size_t count = 0;
    for (size_t i = 0; i < free.size(); ++i)
      if (set >> i & 1) together += free[i], ++count;
    if (together >= slots) least = std::min(least, count);
  }
  return least;
}

TEST(SlotsOnFewest, HoldAllWithinWhatIsFree) {
  constexpr uint64_t seed = 6;
  RecordProperty("seed", std::to_string(seed));
  test::Draw draw(seed);
  int refused = 0;
  for (int attempt = 0; attempt < 500; ++attempt) {
    std::vector<int64_t> free(draw(1, 7));
    for (int64_t& slots : free) slots = draw(0, draw.of<int64_t>({10, 1000}));
    const int64_t slots = draw(1, 1500);
    const int most = static_cast<int>(draw(1, 8));
    const auto taken = slots_on_fewest(slots, free, 1, most);
    const size_t least = fewest(free, slots);
    ASSERT_EQ(taken.has_value(), least <= std::min<size_t>(free.size(), most));
    refused += !taken;
    if (!taken) continue;
    size_t used = 0;
    for (size_t i = 0; i < free.size(); ++i) {
      EXPECT_GE(taken->at(i), 0);
      EXPECT_LE(taken->at(i), free[i]);
      used += taken->at(i) > 0;
    }
    EXPECT_LE(used, least);
    EXPECT_EQ(std::accumulate(taken->begin(), taken->end(), int64_t{0}), slots);
  }
  EXPECT_GT(refused, 20);
}

TEST(SlotsOnFewest, AreOnAsManyAsAreAskedFor) {
  EXPECT_EQ(slots_on_fewest(60, {50, 90, 90}, 1, 3), (std::vector<int64_t>{0, 60, 0}));
  EXPECT_EQ(slots_on_fewest(60, {50, 90, 90}, 2, 3), (std::vector<int64_t>{0, 30, 30}));
}

TEST(SharesByFreeSlots, AreTheHeadersExamples) {
  EXPECT_EQ(shares_by_free_slots(10, {6, 6, 3}), (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(shares_by_free_slots(10, {7, 5, 5}), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(shares_by_free_slots(10, {7, 7, 7}), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(shares_by_free_slots(0, {0, 0}), (std::vector<int64_t>{0, 0}));
  EXPECT_THROW(shares_by_free_slots(8, {4, 3}), InvalidArgument);
}

TEST(GrownSlots, AreOnOwnInstancesBeforeOthers) {
  const auto grown = [](std::vector<int64_t> has, int64_t slots, const std::vector<int32_t>& near,
                        const std::vector<int64_t>& free, int most = 3) {
    return grown_slots(std::move(has), slots, near, free, most);
  };
  using Found = std::vector<int64_t>;
  EXPECT_EQ(grown({5, 0, 0}, 5, {0}, {0, 0, 0}), (Found{5, 0, 0})) << "it has them";
  EXPECT_EQ(grown({5, 7, 0}, 16, {1, 0}, {9, 4, 9}), (Found{5, 11, 0})) << "the first that has all";
  EXPECT_EQ(grown({5, 7, 0}, 17, {1, 0}, {9, 4, 9}), (Found{10, 7, 0}))
      << "else another of its own";
  EXPECT_EQ(grown({5, 7, 0}, 24, {1, 0}, {9, 4, 90}), (Found{13, 11, 0})) << "then both";
  EXPECT_EQ(grown({5, 0, 0}, 20, {0}, {3, 20, 30}), (Found{8, 0, 12})) << "then the emptiest";
  EXPECT_EQ(grown({5, 0, 0}, 50, {0}, {3, 20, 30}), (Found{8, 12, 30}));
  EXPECT_FALSE(grown({5, 0, 0}, 50, {0}, {3, 20, 30}, 2)) << "as many instances as it may have";
  EXPECT_FALSE(grown({5, 0, 0}, 59, {0}, {3, 20, 30}));
}

}  // namespace
}  // namespace pecia::schedule
