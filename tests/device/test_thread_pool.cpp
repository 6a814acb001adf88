// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>

#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/base/device/thread_pool.hpp"

namespace pecia::device {
namespace {

struct EveryPool : testing::TestWithParam<int> {};

TEST_P(EveryPool, RunsTheBodyOnceOnEveryThreadEachTime) {
  const int size = GetParam();
  ThreadPool pool(size);
  std::vector<int> calls(
      size);  // each thread writes its own element; run is the only synchronisation
  for (int round = 1; round <= 2000; ++round) {
    pool.run([&](int thread) { ++calls[thread]; }, [] {});
    ASSERT_EQ(std::accumulate(calls.begin(), calls.end(), 0), round * size);
  }
  EXPECT_EQ(calls, std::vector<int>(size, 2000));
}

TEST_P(EveryPool, WakesThreadsThatWentToSleep) {
  ThreadPool pool(GetParam());
  std::atomic<int> calls = 0;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(5)) {
    }
    pool.run([&](int) { ++calls; }, [] {});
  }
  EXPECT_EQ(calls, 5 * GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sizes, EveryPool, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, CallsWaitingWhileOthersWork) {
  ThreadPool pool(2);
  std::atomic<bool> called = false;
  pool.run(
      [&](int thread) {
        while (thread == 1 && !called) std::this_thread::yield();
      },
      [&] { called = true; });
  EXPECT_TRUE(called);
}

TEST(ThreadPool, ThreadsStayWhereTheyAreBound) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  std::vector<int> seen(cpus.size(), -1);
  std::thread([&] {  // which the pool binds too
    ThreadPool pool(static_cast<int>(cpus.size()), cpus);
    pool.run(
        [&](int thread) {
          cpu_set_t own;
          if (::sched_getaffinity(0, sizeof own, &own) == 0 && CPU_COUNT(&own) == 1 &&
              CPU_ISSET(cpus[thread], &own))
            seen[thread] = cpus[thread];
        },
        [] {});
    EXPECT_THROW(ThreadPool(1, {CPU_SETSIZE - 1}), SystemError);
    EXPECT_THROW(ThreadPool(2, {0}), InvalidArgument);
  })
      .join();
  EXPECT_EQ(seen, cpus);
}

}  // namespace
}  // namespace pecia::device
