// SPDX-License-Identifier: Apache-2.0
/// `pecia-bench ops --neighbours`: what it tries, and what it calls faster.

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "apps/bench/ops/neighbours.hpp"
#include "kernels/api/measured_constants.hpp"

namespace pecia::bench::ops {
namespace {

kernels::MeasuredConstant nap_ms("nap.ms", 40, {1, 80});
kernels::MeasuredConstant of_another_op("nap_of_others.ms", 1, {2});

TEST(Neighbours, AreTriedInTurnAndPutBack) {
  const auto device = device::make_host_device(1);
  const auto stream = device->make_stream();
  const auto backend = kernels::make_reference_backend();
  std::vector<int64_t> naps;
  const Case one{"nap", "one", 0, 0, [&](const Place&) {
                   return [&] {
                     naps.push_back(nap_ms);
                     std::this_thread::sleep_for(std::chrono::milliseconds(nap_ms));
                   };
                 }};
  std::vector<std::pair<int64_t, bool>> found;
  try_neighbours({one}, {*backend, *device, *stream}, 2, [&](const NeighbourTimes& times) {
    EXPECT_EQ(times.constant, "nap.ms");
    EXPECT_EQ(times.value, 40);
    EXPECT_GE(times.value_s, 40e-3);
    EXPECT_GE(times.neighbour_s, static_cast<double>(times.neighbour) * 1e-3);
    found.emplace_back(times.neighbour, times.faster);
  });
  EXPECT_EQ(found, (std::vector<std::pair<int64_t, bool>>{{1, true}, {80, false}}));
  EXPECT_EQ(nap_ms, 40);
  EXPECT_EQ(std::count(naps.begin(), naps.end(), 1), std::count(naps.begin(), naps.end(), 80));
}

}  // namespace
}  // namespace pecia::bench::ops
