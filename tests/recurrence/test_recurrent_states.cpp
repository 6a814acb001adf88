// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/base/device/device.hpp"
#include "lib/model/recurrence/recurrent_states.hpp"

namespace pecia::recurrence {
namespace {

/// Two layers of three heads; a tail has three rows of ten channels.
constexpr StateShape shape{2, 3, 4, 5, 3, 10};

TEST(RecurrentStates, GivesEachSequenceASlotOfItsOwn) {
  const auto device = device::make_host_device(1);
  RecurrentStates states(shape, 3, false, *device);
  for (const int64_t sequence : {7, 8, 9}) states.take(sequence);
  states.take(8);  // it has one
  std::vector<int64_t> slots{states.slot(7), states.slot(8), states.slot(9)};
  std::ranges::sort(slots);
  EXPECT_EQ(slots, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_THROW(states.take(10), InvalidArgument);
  const int64_t freed = states.slot(8);
  states.release_unless([](int64_t sequence) { return sequence != 8; });
  EXPECT_FALSE(states.contains(8));
  EXPECT_THROW(states.slot(8), InvalidArgument);
  states.take(10);
  EXPECT_EQ(states.slot(10), freed);
}

TEST(RecurrentStates, GoesBackToWhatIsKept) {
  const auto device = device::make_host_device(1);
  RecurrentStates states(shape, 3, false, *device);
  states.take(7), states.take(8);
  const int64_t before = states.slot(7);
  states.keep(7, 20);
  EXPECT_FALSE(states.contains(7));
  EXPECT_THROW(states.keep(7, 20), InvalidArgument) << "once";
  states.take(7);
  EXPECT_NE(states.slot(7), before);
  EXPECT_EQ(states.kept_slot(7), before);
  EXPECT_THROW(states.take(9), InvalidArgument) << "what is kept has a slot";
  EXPECT_THROW(states.go_back(7, 19), InvalidArgument);
  states.go_back(7, 20);
  EXPECT_EQ(states.slot(7), before);
  EXPECT_FALSE(states.keeps(7));
  states.go_back(8, 5);  // nothing is kept
  states.keep(8, 5);
  states.go_back(8, 5);  // before it had a slot again
  states.keep(8, 5);
  states.drop_kept_unless([](int64_t) { return false; });
  EXPECT_FALSE(states.keeps(8) || states.contains(8));
  states.take(9), states.take(10);
  EXPECT_THROW(states.take(11), InvalidArgument);
}

TEST(RecurrentStates, KeepsLayersAndSlotsApart) {
  const auto device = device::make_host_device(1);
  RecurrentStates states(shape, 3, false, *device);
  EXPECT_EQ(shape.bytes(), 2 * (3 * 4 * 5 + 3 * 10) * 4);
  const auto fill = [](const TensorView& view, float value) {
    ASSERT_TRUE(view.dense());
    std::fill_n(view.as<float>(), view.elements(), value);
  };
  for (int64_t layer = 0; layer < 2; ++layer)
    for (int64_t slot = 0; slot < 3; ++slot) {
      const auto value = static_cast<float>(10 * layer + slot);
      fill(states.matrices(layer, slot), value);
      fill(states.tail(layer, slot), value + 100);
    }
  for (int64_t layer = 0; layer < 2; ++layer) {
    const TensorView matrices = states.matrices(layer), tails = states.tails(layer);
    for (int64_t slot = 0; slot < 3; ++slot) {
      const auto value = static_cast<float>(10 * layer + slot);
      const auto* const matrix = static_cast<const float*>(matrices.row(slot));
      EXPECT_EQ(std::count(matrix, matrix + shape.matrix_elements(), value), 60);
      const auto* const tail = static_cast<const float*>(tails.row(slot * 3));
      EXPECT_EQ(std::count(tail, tail + shape.tail_elements(), value + 100), 30);
    }
  }
}

TEST(RecurrentStates, RefusesSizesBeyondMemory) {
  const auto device = device::make_host_device(1);
  EXPECT_THROW(RecurrentStates(shape, int64_t{1} << 60, false, *device), InvalidArgument);
  EXPECT_THROW(RecurrentStates(shape, -1, false, *device), InvalidArgument);
}

}  // namespace
}  // namespace pecia::recurrence
