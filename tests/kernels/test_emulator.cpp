// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "lib/base/core/error.hpp"
#include "tests/kernels/emulator/cuda.hpp"

namespace pecia::test {
namespace {

using kernels::cuda::Bf16;
using kernels::cuda::Grid;

TEST(Emulator, RunsEveryThreadOfEveryBlock) {
  std::vector<int> times(3 * 2 * 64);
  emulator::run({.x = 3, .y = 2, .threads = 64},
                [&] { ++times[(blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x]; });
  EXPECT_EQ(times, std::vector<int>(times.size(), 1));
}

TEST(Emulator, ThreadsMeetAtBarriers) {
  emulator::run({.x = 1, .threads = 64}, [] {
    __shared__ int values[64];
    values[threadIdx.x] = static_cast<int>(threadIdx.x);
    __syncthreads();
    EXPECT_EQ(values[63 - threadIdx.x], 63 - static_cast<int>(threadIdx.x));
    EXPECT_EQ(__shfl_xor_sync(0xffffffffu, static_cast<int>(threadIdx.x), 5),
              static_cast<int>(threadIdx.x) ^ 5);
  });
}

TEST(Emulator, FindsABarrierThatNotAllReach) {
  EXPECT_THROW(emulator::run({.x = 1, .threads = 64},
                             [] {
                               if (threadIdx.x != 40) __syncthreads();
                             }),
               InvalidArgument);
}

TEST(Emulator, GivesOnWhatAThreadThrows) {
  EXPECT_THROW(emulator::run({.x = 1, .threads = 32},
                             [] {
                               if (threadIdx.x == 7) fail<Unsupported>("seven");
                             }),
               Unsupported);
}

TEST(Emulator, CopiesArriveWhenTheyAreWaitedFor) {
  alignas(16) static float from[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  emulator::run({.x = 1, .threads = 32, .shared_bytes = 64}, [] {
    if (threadIdx.x != 0) return;
    auto* const to = reinterpret_cast<float*>(kernels::cuda::dynamic_shared());
    EXPECT_TRUE(std::isnan(to[0]));
    kernels::cuda::copy_16_async(to, from[0], true);
    kernels::cuda::commit_copies();
    kernels::cuda::copy_16_async(to + 4, from[1], false);
    kernels::cuda::commit_copies();
    EXPECT_TRUE(std::isnan(to[0]));
    kernels::cuda::wait_for_copies<1>();
    EXPECT_EQ(to[3], 4.0f);
    EXPECT_TRUE(std::isnan(to[4]));
    kernels::cuda::wait_for_copies<0>();
    EXPECT_EQ(to[4], 0.0f);
  });
}

}  // namespace
}  // namespace pecia::test
