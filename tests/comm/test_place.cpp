// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/ranks/comm/place.hpp"

namespace pecia::comm {
namespace {

TEST(RackServerGpu, IsPrintedInOneWord) {
  EXPECT_EQ(to_string(RackServerGpu{"spine.rack1", "n1", 2}), "spine.rack1:n1:2");
  EXPECT_EQ(to_string(RackServerGpu{"", "n1", 0}), "-:n1:0");
}

TEST(LinkLevel, IsTheWidestStepBetweenTwoPlaces) {
  const RackServerGpu place{"a", "n1", 0};
  EXPECT_EQ(link_level(place, {"a", "n1", 5}), LinkLevel::server);
  EXPECT_EQ(link_level(place, {"a", "n2", 0}), LinkLevel::rack);
  EXPECT_EQ(link_level(place, {"b", "n2", 0}), LinkLevel::system);
  EXPECT_EQ(link_level(place, {"b", "n1", 0}), LinkLevel::system);  // racks may reuse a name
  EXPECT_EQ(link_level({"", "n1", 0}, {"", "n2", 0}), LinkLevel::rack);
}

TEST(ServerOfRank, NumbersServersInTheirOrder) {
  const std::vector<RackServerGpu> places{
      {"b", "n3", 0}, {"a", "n1", 0}, {"b", "n3", 1}, {"a", "n3", 0}, {"a", "n1", 1}};
  EXPECT_EQ(server_of_rank(places), (std::vector{0, 1, 0, 2, 1}));
}

}  // namespace
}  // namespace pecia::comm
