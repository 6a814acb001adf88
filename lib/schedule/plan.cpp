// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/plan.hpp"

#include <algorithm>

namespace pecia::schedule {
namespace {

template <typename T>
void add(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

std::vector<parallel::TeamPass> Plan::passes() const {
  std::vector<parallel::TeamPass> all;
  for (const parallel::Team& team : teams) all.push_back({team, {}});
  for (const PlanItem& item : items) {
    parallel::TeamPass& pass = all.at(item.team);
    pass.rows.push_back(item.rows);
    if (!item.kept.empty())
      pass.placements.push_back({item.rows.sequence, item.kept, item.gathers});
  }
  return all;
}

std::pair<PassWork, PassWork> work_of(const Plan& plan) {
  PassWork prompts, answers;
  for (const PlanItem& item : plan.items) {
    const auto rows = static_cast<double>(item.rows.count);
    (item.rows.owner == parallel::PassSequence::balanced ? prompts : answers) +=
        work_of(static_cast<double>(item.rows.first), rows, rows);
  }
  prompts.passes = std::min(prompts.passes, 1.0);
  answers.passes = std::min(answers.passes, 1.0);
  return {prompts, answers};
}

void LogProbs::append(const LogProbs& other) {
  add(other.which, which);
  add(other.tokens, tokens);
  add(other.logprobs, logprobs);
  add(other.top_tokens, top_tokens);
  add(other.top_logprobs, top_logprobs);
}

}  // namespace pecia::schedule
