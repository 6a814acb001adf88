#pragma once
/// How a rank waits for others.

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "lib/core/error.hpp"

namespace pecia::comm {

/// Calls `test` until it returns true. Short waits yield, so that ranks sharing a core go on at
/// once; long ones sleep, so that a waiting rank does not take a core from one that computes.
/// After `timeout` (zero: never) throws SystemError that begins with `describe()`.
template <typename Test, typename Describe>
void wait_until(Test test, Describe describe, std::chrono::seconds timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr int yields = 2000;
  const auto begin = Clock::now();
  for (int64_t tries = 0; !test(); ++tries) {
    if (tries < yields) {
      ::sched_yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (tries % 1024 == 0 && timeout > timeout.zero() && Clock::now() - begin > timeout)
      fail<SystemError>("{} has not finished for {} s; another rank is stopped or lost", describe(),
                        timeout.count());
  }
}

}  // namespace pecia::comm
