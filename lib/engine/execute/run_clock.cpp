// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/run_clock.hpp"

#include <chrono>
#include <thread>

namespace pecia::execute {

RunClock steady_run_clock() {
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  return {[begin] { return Seconds(std::chrono::steady_clock::now() - begin).count(); },
          [](double seconds) { std::this_thread::sleep_for(Seconds(seconds)); }};
}

}  // namespace pecia::execute
