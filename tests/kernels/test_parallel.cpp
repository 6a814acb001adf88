// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::test {
namespace {

using kernels::cpu::for_each_range;
using kernels::cpu::for_each_task;
using kernels::cpu::Worker;

TEST(ForEachTask, RunsEveryTaskOnce) {
  for (const int num_threads : {1, 2, 5})
    for (const int64_t num_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> times(num_tasks);
      for_each_task(device::Stream(num_threads), num_tasks,
                    [&](int64_t task, const Worker& worker) {
                      EXPECT_LT(worker.thread, num_threads);
                      ++times[task];
                    });
      for (const auto& count : times) EXPECT_EQ(count, 1);
    }
}

TEST(ForEachTask, PollsOnlyInTheCallingThreadAndWhileOthersWork) {
  device::Stream stream(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> polls{0}, begun{0};
  stream.set_poll([&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    ++polls;
  });
  // Each thread has one of the tasks, and the other thread's ends only once the caller, which is
  // done with its own, has polled a hundred times.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto in_time = [&] { return std::chrono::steady_clock::now() < deadline; };
  for_each_task(stream, 2, [&](int64_t, const Worker& worker) {
    ++begun;
    while (begun < 2 && in_time()) std::this_thread::yield();
    while (worker.thread != 0 && polls < 100 && in_time()) std::this_thread::yield();
  });
  EXPECT_GE(polls, 100);
}

TEST(ForEachTask, ThrowsTheErrorOfABodyOrOfPollInTheCaller) {
  for (const int num_threads : {1, 3}) {
    device::Stream stream(num_threads);
    EXPECT_THROW(for_each_task(stream, 50,
                               [](int64_t task, const Worker&) {
                                 if (task == 20) throw std::runtime_error("task");
                               }),
                 std::runtime_error);
    stream.set_poll([] { throw std::logic_error("poll"); });
    EXPECT_THROW(for_each_task(stream, 50, [](int64_t, const Worker&) {}), std::logic_error);
  }
}

TEST(ForEachRange, CoversTheRangeOnce) {
  for (const int num_threads : {1, 3, 70})  // more than there are shares
    for (const int64_t count : {0, 1, 9, 103, 5000}) {
      std::vector<std::atomic<int>> times(count);
      for_each_range(device::Stream(num_threads), count, 10, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++times[i];
      });
      for (const auto& once : times) ASSERT_EQ(once, 1);
    }
}

TEST(ForEachRange, OfAThreadThatIsHeldUpIsDoneByOthers) {
  std::atomic<int> others{0};
  // Whoever has the first task waits until all of the rest is done.
  for_each_range(device::Stream(3), 12, 1, [&](int64_t task, int64_t) {
    if (task != 0) ++others;
    while (task == 0 && others < 11) std::this_thread::yield();
  });
  EXPECT_EQ(others, 11);
}

TEST(TaskShares, AreNeighboursForEachThread) {
  kernels::cpu::TaskShares tasks(10, 3);
  EXPECT_EQ(tasks.take(1), 3);
  EXPECT_EQ(tasks.take(0), 0);
  EXPECT_EQ(tasks.take(1), 4);
  EXPECT_EQ(tasks.take(1), 5);
  EXPECT_EQ(tasks.take(1), 6);  // of the third's
  EXPECT_EQ(tasks.take(2), 7);
}

}  // namespace
}  // namespace pecia::test
