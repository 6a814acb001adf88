// SPDX-License-Identifier: Apache-2.0
/// Which sequences a pass needs whole whose keys others send.

#include <gtest/gtest.h>

#include "lib/engine/execute/awaited_copies.hpp"

namespace pecia::test {
namespace {

using execute::awaited_copies;
using parallel::SequenceId;
using schedule::Plan;

schedule::PlanItem row_of(SequenceId sequence) {
  schedule::PlanItem item;
  item.rows = {sequence, 4, 1, 0};
  item.tokens = {7};
  return item;
}

schedule::NewSequence new_branch(SequenceId sequence, SequenceId prefix) {
  return {sequence, {prefix, 0, {0, 8}, {}}};
}

TEST(AwaitedCopies, AreOfTheSequencesOfThePass) {
  parallel::KvMap map(2);
  map.add(3, {0, 8});
  map.add(9, {0, 8});
  Plan plan;
  plan.items = {row_of(3)};
  EXPECT_EQ(awaited_copies(plan, map), (std::vector<SequenceId>{3}));
}

/// The prefix was read elsewhere, and its last keys are still under way when its branches begin.
TEST(AwaitedCopies, AreOfThePrefixesOfBranchesThatBeginInThePass) {
  parallel::KvMap map(2);
  map.add(3, {0, 8});
  Plan plan;
  plan.added = {new_branch(5, 3), new_branch(6, 3)};
  plan.items = {row_of(6), row_of(5)};
  EXPECT_EQ(awaited_copies(plan, map), (std::vector<SequenceId>{3, 5, 6}));
}

/// The rank knows the branch, whose first pass was of other instances.
TEST(AwaitedCopies, AreOfThePrefixesOfBranchesThatAreKnown) {
  parallel::KvMap map(2);
  map.add(3, {0, 8});
  map.add(5, {0, 8}, 3);
  Plan plan;
  plan.items = {row_of(5)};
  EXPECT_EQ(awaited_copies(plan, map), (std::vector<SequenceId>{3, 5}));
}

TEST(AwaitedCopies, AreNoneOfWhatBeginsByItself) {
  Plan plan;
  plan.added = {{4, {schedule::NewSequence::no_parent, 0, {8, 0}, {}}}};
  plan.items = {row_of(4)};
  EXPECT_EQ(awaited_copies(plan, parallel::KvMap(2)), (std::vector<SequenceId>{4}));
}

}  // namespace
}  // namespace pecia::test
