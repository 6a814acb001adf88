// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/pass_budget.hpp"

namespace pecia::schedule {

int64_t PassBudget::rows(const Plan& plan, int64_t first, int64_t count, int64_t unit) const {
  constexpr int64_t least = 64;
  if (times == nullptr || count == 0) return count;
  const auto [prompts, answers] = work_of(plan);
  const double left = left_s - (answers.rows > 0 ? times->decode.seconds(answers) : 0);
  const auto fits = [&, &beside = prompts](int64_t rows) {
    PassWork work =
        work_of(static_cast<double>(first), static_cast<double>(rows), static_cast<double>(rows));
    work += beside;
    work.passes = 1;
    return times->prefill.seconds(work) <= left;
  };
  const int64_t most = most_that_fits(count, unit, fits);
  const int64_t worth = worth_a_pass(least, count, unit);
  if (most >= worth) return most;
  const bool untried = !times->prefill.measured() && plan.items.empty() && left > 0;
  return untried ? worth : 0;
}

}  // namespace pecia::schedule
