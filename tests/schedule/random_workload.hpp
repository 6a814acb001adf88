// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests and limits drawn from a seed, for tests of what holds whatever they are.

#include <vector>

#include "lib/base/core/random.hpp"
#include "lib/engine/schedule/scheduler.hpp"

namespace pecia::test {

/// Numbers drawn one after the other from a seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  /// In [low, high].
  int64_t operator()(int64_t low, int64_t high) {
    return low +
           static_cast<int64_t>(uniform(seed_, index_++) * static_cast<double>(high - low + 1));
  }
  template <typename T>
  T of(const std::vector<T>& values) {
    return values[(*this)(0, static_cast<int64_t>(values.size()) - 1)];
  }
  bool one_in(int64_t count) { return (*this)(1, count) == 1; }

 private:
  uint64_t seed_;
  uint64_t index_ = 0;
};

/// A request of one turn, whose tokens follow from its row. `saved`: tokens of it whose keys and
/// values are kept.
batch::Request ask(int64_t row, int64_t tokens, int32_t new_tokens, int64_t saved = 0);

/// Chains and forks, some turns of which cannot run, and some of which have stop strings.
std::vector<batch::Request> random_requests(Draw& draw);

/// Memory is often just what the largest request needs.
schedule::SchedulerLimits random_limits(Draw& draw, const std::vector<batch::Request>& requests,
                                        int stages = 1);

/// What a pass with prompts may have.
int64_t batch_tokens(const schedule::SchedulerLimits& limits);

struct NewTokens {
  int64_t prompt = 0, decode = 0;
};
NewTokens new_tokens(const schedule::Plan& plan);

}  // namespace pecia::test
