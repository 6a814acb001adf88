// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a rank waits for other ranks.

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "lib/base/core/error.hpp"

namespace pecia::comm {

/// Calls `test` until it returns true. A short wait yields, so that ranks that share a core
/// continue at once. A long wait sleeps, so that a waiting rank does not take a core from a
/// computing one. After `timeout` (zero: never) it throws SystemError that begins with
/// `describe()`. A long wait calls `show(true)` when it becomes long and `show(false)` when it
/// ends, but not when it fails.
template <typename Test, typename Describe, typename Show>
void wait_until(Test test, Describe describe, Show show, std::chrono::seconds timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr int yields = 2000;
  const auto begin = Clock::now();
  int64_t tries = 0;
  for (; !test(); ++tries) {
    if (tries < yields) {
      ::sched_yield();
      continue;
    }
    if (tries == yields) show(true);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (tries % 1024 == 0 && timeout > timeout.zero() && Clock::now() - begin > timeout)
      fail<SystemError>("{} has not finished for {} s; another rank is stopped or lost", describe(),
                        timeout.count());
  }
  if (tries > yields) show(false);
}

}  // namespace pecia::comm
