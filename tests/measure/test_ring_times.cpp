// SPDX-License-Identifier: Apache-2.0
/// Nothing is asserted about speed, but that measuring ends.

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cmath>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/settle/measure/ring_times.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::measure {
namespace {

constexpr AttentionShape heads{2, 1, 32, DType::bf16};

std::unique_ptr<comm::Communicator> make_world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

TEST(RingTimes, AreOfPassesFromFewNewTokensToAll) {
  const auto world = make_world();
  test::CpuCompute compute;
  const int64_t keys = 512 * world->size();
  const auto times =
      measure_ring_times(*world, *world, compute, heads, DType::bf16, {1000, 4 * keys});
  ASSERT_EQ(times.size(), 12u) << "two lengths";
  for (size_t i = 0; i < times.size(); ++i) {
    const parallel::RingTimes& each = times[i];
    EXPECT_EQ(each.load.keys, i < 6 ? keys : 4 * keys);
    EXPECT_GT(each.pass_kv_s, 0);
    EXPECT_GT(each.pass_q_s, 0);
    if (i % 6 > 0) EXPECT_GT(each.load.new_tokens, times[i - 1].load.new_tokens);
    for (const double seconds : {each.pass_kv_s, each.pass_q_s})
      EXPECT_EQ(1e-9 * static_cast<double>(world->all_reduce_max(std::llround(1e9 * seconds))),
                1e-9 * static_cast<double>(-world->all_reduce_max(-std::llround(1e9 * seconds))))
          << "ranks have other times";
  }
  EXPECT_EQ(times[5].load.new_tokens, keys);
  EXPECT_EQ(times[5].load.cached_tokens(), 0);
  const parallel::FittedRule rule = parallel::fit_rule(times);
  EXPECT_GE(parallel::count_right(rule, times), 6);
}

TEST(RingTimes, EndWhenTheTimeIsOver) {
  const auto world = make_world();
  test::CpuCompute compute;
  const auto times = measure_ring_times(*world, *world, compute, heads, DType::fp32, {0, 1 << 20});
  EXPECT_EQ(times.size(), 6u) << "the shortest passes are measured in any case";
}

TEST(RingTimes, AreOfAllRingsTogether) {
  const auto world = make_world();
  if (world->size() < 4) GTEST_SKIP() << "two rings need four ranks";
  test::CpuCompute compute;
  const auto ring = world->split(world->rank() % 2, world->rank());
  const auto times = measure_ring_times(*world, *ring, compute, heads, DType::fp32, {0, 1 << 20});
  ASSERT_EQ(times.size(), 6u);
  EXPECT_EQ(times.front().load.keys, 512 * 2);
}

TEST(RingTimes, AreOfRingsWithKeysAndValues) {
  const auto world = make_world();
  test::CpuCompute compute;
  const auto alone = world->split(world->rank(), 0);
  EXPECT_THROW(measure_ring_times(*world, *alone, compute, heads, DType::fp32), InvalidArgument);
  AttentionShape latents = heads;
  latents.values_in_keys = 16;
  EXPECT_THROW(measure_ring_times(*world, *world, compute, latents, DType::fp32), InvalidArgument);
}

}  // namespace
}  // namespace pecia::measure
