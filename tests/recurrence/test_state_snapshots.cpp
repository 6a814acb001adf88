// SPDX-License-Identifier: Apache-2.0
/// States that leave a rank with the keys of their sequences, and come back bit by bit.

#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "tests/recurrence/state_place.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::recurrence {
namespace {

constexpr StateShape sizes{2, 3, 4, 5, 3, 10};
constexpr int64_t numbers = 2 * (3 * 4 * 5 + 3 * 10);

std::vector<float> counted_from(float seed) {
  std::vector<float> all(numbers);
  for (size_t i = 0; i < all.size(); ++i) all[i] = seed + static_cast<float>(i);
  return all;
}

TEST(StateSnapshots, AreWhereTheLastTokenWasComputed) {
  StatePlace place(sizes);
  place.begin(1, 3);
  EXPECT_EQ(place.snapshots.bytes(1), 0) << "nobody has computed its state";
  place.fill(1, 10);
  EXPECT_EQ(place.snapshots.bytes(1), sizes.bytes());
  EXPECT_EQ(place.state(1), counted_from(10));
  place.begin(2, 0, 1);
  EXPECT_FALSE(goes_on_here(place.ledger, 2)) << "it begins with its parent's";
  place.read(2, 1);
  EXPECT_TRUE(goes_on_here(place.ledger, 2));
  place.read(2, 1, 0);
  EXPECT_FALSE(goes_on_here(place.ledger, 2)) << "it went on elsewhere";
  EXPECT_FALSE(goes_on_here(place.ledger, 3));
}

/// In each layer the matrices, and then the tail.
TEST(StateSnapshots, HaveTheShapesOfStates) {
  StatePlace place(sizes);
  place.begin(1, 1), place.begin(2, 1);
  place.fill(1, 0), place.fill(2, 1000);
  const TensorView matrices = place.states.matrices(1, place.states.slot(2));
  EXPECT_EQ(*matrices.as<float>(), 1000 + 3 * 4 * 5 + 3 * 10);
  EXPECT_EQ(*place.states.tail(1, place.states.slot(2)).as<float>(), 1000 + 2 * 3 * 4 * 5 + 3 * 10);
  std::vector<std::byte> short_one(7);
  EXPECT_THROW(place.snapshots.copy_in(1, short_one), InvalidArgument);
  EXPECT_THROW(place.snapshots.copy_out(1, short_one), InvalidArgument);
}

TEST(StateSnapshots, AreParkedWithKeys) {
  const test::TempFolder folder;
  for (const attention::ParkingPlaces& places :
       {attention::ParkingPlaces{}, attention::ParkingPlaces{0, folder / "kv"}}) {
    StatePlace place(sizes, 1, places);
    for (const int64_t sequence : {1, 2, 3, 4}) {
      place.begin(sequence, 3);
      place.fill(sequence, static_cast<float>(1000 * sequence));
    }
    const int64_t keys = 3 * place.cache.shape().bytes_per_token();
    EXPECT_EQ(place.parking.park(2), keys + sizes.bytes());
    EXPECT_EQ(place.snapshots.bytes(2), 0);
    place.begin(5, 3);
    place.fill(5, 5000);  // where the parked one was
    EXPECT_THROW(place.parking.bring_back(2, {100, 100}), InvalidArgument) << "four have a slot";
    place.parking.forget(2);
  }
  StatePlace place(sizes);
  place.begin(1, 3), place.begin(2, 3);
  place.fill(1, 1000), place.fill(2, 2000);
  place.parking.park(1);
  place.begin(3, 3);
  place.fill(3, 3000);
  place.parking.bring_back(1, {100, 100});
  for (const int64_t sequence : {1, 2, 3})
    EXPECT_EQ(place.state(sequence), counted_from(static_cast<float>(1000 * sequence)));
}

/// A sequence whose drafted tokens were dropped is parked with the state before them.
TEST(StateSnapshots, AreThoseBeforeTokensThatWereDropped) {
  StatePlace place(sizes);
  place.begin(1, 3);
  place.fill(1, 1000);
  place.states.keep(1, 3);
  place.ledger.append({1, 3, 4, 1, 0}, parallel::team_of_all(2));
  place.ledger.settle();
  place.fill(1, 2000);
  place.ledger.shorten(1, 3);
  place.snapshots.go_back(1, 3);
  EXPECT_EQ(place.state(1), counted_from(1000));
  place.parking.park(1);
  place.parking.bring_back(1, {100, 100});
  EXPECT_EQ(place.state(1), counted_from(1000));
  // Rank 0 computes drafted tokens; the state comes back to where it was.
  place.states.keep(1, 3);
  place.ledger.append({1, 3, 2, 0, 0}, parallel::team_of_all(2));
  EXPECT_FALSE(goes_on_here(place.ledger, 1));
  place.ledger.settle();
  place.ledger.shorten(1, 3);
  place.snapshots.go_back(1, 3);
  EXPECT_TRUE(goes_on_here(place.ledger, 1));
  EXPECT_EQ(place.state(1), counted_from(1000));
}

/// What is kept goes with the sequence that has it.
TEST(StateSnapshots, OfDraftsAreForgottenWithTheirSequences) {
  StatePlace place(sizes);
  for (const int64_t number : {1, 2}) {
    place.begin(number, 3);
    place.fill(number, 0);
    place.states.keep(number, 3);
    place.fill(number, 0);
  }
  place.parking.park(1);
  place.ledger.remove(2);
  for (const int64_t number : {3, 4, 5}) {
    place.begin(number, 3);
    place.fill(number, 0);
  }
  EXPECT_FALSE(place.states.keeps(1) || place.states.keeps(2));
  place.parking.bring_back(1, {100, 100});
}

/// A state that comes from another rank may do so within a pass, when others go on elsewhere.
TEST(StateSnapshots, ThatAreExpectedTakeNothingFromAPass) {
  StatePlace place(sizes);
  for (const int64_t sequence : {1, 2, 3}) {
    place.begin(sequence, 3);
    place.fill(sequence, static_cast<float>(1000 * sequence));
  }
  place.begin(4, 3);
  EXPECT_EQ(place.snapshots.expect(4), sizes.bytes());
  place.read(1, 1, 0);  // a pass in which a state goes elsewhere
  place.fill(4, 4000);
  EXPECT_TRUE(place.states.contains(1)) << "the pass still sends it";
  EXPECT_EQ(place.state(4), counted_from(4000));
  place.begin(5, 3);
  EXPECT_EQ(place.snapshots.expect(5), sizes.bytes());
  EXPECT_FALSE(place.states.contains(1)) << "between passes its slot is free";
}

TEST(StateSnapshots, OfOtherRanksAreNotParkedHere) {
  StatePlace place(sizes);
  place.begin(1, 3);
  place.fill(1, 1000);
  place.read(1, 1, 0);  // it goes on elsewhere; what is left here is of no use
  EXPECT_EQ(place.parking.park(1), 3 * place.cache.shape().bytes_per_token());
  place.parking.bring_back(1, {100, 100});
  EXPECT_EQ(place.snapshots.bytes(1), 0);
}

}  // namespace
}  // namespace pecia::recurrence
