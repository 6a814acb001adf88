// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/startup.hpp"

#include <utility>

namespace pecia::report {

Startup::Startup(std::string first, double unix_s, MonotonicClock clock)
    : unix_s_(unix_s), clock_(std::move(clock)), under_way_(std::move(first)), since_(clock_()) {}

void Startup::begin(std::string name) {
  end();
  under_way_ = std::move(name);
}

void Startup::end() {
  const auto now = clock_();
  if (!under_way_.empty())
    phases_.push_back(
        {std::exchange(under_way_, {}), std::chrono::duration<double>(now - since_).count()});
  since_ = now;
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace pecia::report
