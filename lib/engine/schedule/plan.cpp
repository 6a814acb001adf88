// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/plan.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace pecia::schedule {
namespace {

template <typename T>
void add(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

PassWork busiest(const std::vector<parallel::PassSequence>& rows, const parallel::Team& team,
                 int attending) {
  PassWork work;
  for (const parallel::PassSequence& of : rows) {
    const auto count = static_cast<double>(of.count);
    work.pairs += work_of(static_cast<double>(of.first), count, count).pairs;
    work.cached += static_cast<double>(of.first);
  }
  work.passes = rows.empty() ? 0 : 1;
  work.pairs /= attending;
  for (int index = 0; index < team.workers(); ++index)
    work.rows = std::max(work.rows, static_cast<double>(num_rows(rows, team, index)));
  return work;
}

/// Seconds in which the busiest instance sends keys and states to instances that will answer, while it
/// computes.
double leaving_s(const Plan& plan, const TeamTimes& times) {
  std::map<int32_t, double> leaving;  // by instance
  for (const parallel::KeyCopy& copy : plan.receiving.copies) {
    for (const parallel::KeySource& source : copy.sources)
      for (const parallel::StridedRange& positions : source.positions)
        leaving[source.instance] +=
            times.travel_s(times.degrees(), static_cast<double>(positions.count));
    if (copy.state_from != parallel::SequenceState::nobody)
      leaving[copy.state_from] += times.state_s();
  }
  double most = 0;
  for (const auto& [instance, seconds] : leaving) most = std::max(most, seconds);
  return most;
}

}  // namespace

std::vector<NewSequence> Receiving::added_at(int instance) const {
  std::vector<NewSequence> here;
  std::ranges::copy_if(added, std::back_inserter(here),
                       [&](const NewSequence& of) { return of.state.reserved.at(instance) > 0; });
  return here;
}

std::vector<parallel::KeyCopy> Receiving::copies_to(int instance) const {
  std::vector<parallel::KeyCopy> here;
  std::ranges::copy_if(copies, std::back_inserter(here), [&](const parallel::KeyCopy& of) {
    return std::ranges::count(of.places, instance) > 0;
  });
  return here;
}

std::vector<ShortenedSequence> Plan::shortened_at(int instance) const {
  const std::vector<LeftInstance>& leaving = receiving.has(instance) ? receiving.left : left;
  std::vector<ShortenedSequence> here;
  std::ranges::copy_if(shortened, std::back_inserter(here), [&](const ShortenedSequence& of) {
    return std::ranges::none_of(leaving, [&](const LeftInstance& leaves) {
      return leaves.sequence == of.sequence && leaves.instance == instance && leaves.parks == 0;
    });
  });
  return here;
}

std::vector<Sample> Plan::samples() const {
  std::vector<Sample> all;
  for (size_t i = 0; i < items.size(); ++i)
    for (int32_t ahead = 0; ahead < items[i].samples(); ++ahead)
      all.push_back({static_cast<int32_t>(i), ahead});
  return all;
}

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

int64_t count_rows(const Plan& plan) {
  int64_t rows = 0;
  for (const PlanItem& item : plan.items) rows += item.rows.count;
  return rows;
}

std::pair<PassWork, PassWork> work_of(const Plan& plan) {
  PassWork prompts, answers;
  for (const PlanItem& item : plan.items) {
    const auto rows = static_cast<double>(item.rows.count);
    (item.rows.is_shared() ? prompts : answers) +=
        work_of(static_cast<double>(item.rows.first), rows, rows);
  }
  prompts.passes = std::min(prompts.passes, 1.0);
  answers.passes = std::min(answers.passes, 1.0);
  return {prompts, answers};
}

std::pair<PassWork, PassWork> busiest_work(const Plan& plan) {
  const parallel::Team& team = plan.teams.front();
  std::vector<parallel::PassSequence> prompts, answers;
  for (const PlanItem& item : plan.items)
    (item.rows.is_shared() ? prompts : answers).push_back(item.rows);
  return {busiest(prompts, team, team.workers()), busiest(answers, team, team.size())};
}

bool moves_between(const Plan& plan) {
  return std::ranges::any_of(
      plan.items, [](const PlanItem& item) { return item.gathers != 0 && !item.rows.is_shared(); });
}

double expected_seconds(const Plan& plan, const TeamTimes& times) {
  const auto [prompts, answers] = busiest_work(plan);
  const int degree = plan.teams.front().size();
  // All keys go round the ring, and the states leave with them.
  const double moves_s =
      moves_between(plan) ? times.travel_s(degree, answers.cached) + answers.rows * times.state_s()
                          : 0;
  const double computed_s = times.seconds(degree, PassKind::prefill, prompts) +
                            times.seconds(degree, PassKind::decode, answers) + moves_s;
  return std::max(computed_s, leaving_s(plan, times));
}

void LogProbs::append(const LogProbs& other) {
  add(other.which, which);
  add(other.tokens, tokens);
  add(other.logprobs, logprobs);
  add(other.top_tokens, top_tokens);
  add(other.top_logprobs, top_logprobs);
}

}  // namespace pecia::schedule
