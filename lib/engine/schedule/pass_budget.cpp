// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/pass_budget.hpp"

#include <algorithm>

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
  if (fits(count)) return count;
  int64_t some = 0, too_many = count / unit + 1;
  while (too_many - some > 1) {
    const int64_t middle = (some + too_many) / 2;
    (fits(middle * unit) ? some : too_many) = middle;
  }
  const int64_t worth = std::min(count, (least + unit - 1) / unit * unit);
  if (some * unit >= worth) return some * unit;
  const bool untried = !times->prefill.measured() && plan.items.empty() && left > 0;
  return untried ? worth : 0;
}

}  // namespace pecia::schedule
