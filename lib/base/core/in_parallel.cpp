// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/in_parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace pecia {

void in_parallel(int threads, size_t count, const std::function<void(size_t index)>& each) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t index = next++; index < count; index = next++) try {
        each(index);
      } catch (...) {
        failures[index] = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> others;
    const size_t wanted = std::min(count, static_cast<size_t>(std::max(threads, 1)));
    for (size_t i = 1; i < wanted; ++i) others.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace pecia
