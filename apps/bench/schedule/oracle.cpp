// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/schedule/oracle.hpp"

#include <algorithm>
#include <limits>
#include <queue>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/reading_batches.hpp"

namespace pecia::bench {
namespace {

using schedule::PassKind;
using schedule::PassRates;
using schedule::PassWork;
using schedule::SimulatedRequest;

int64_t tokens_of(const SimulatedRequest& request) {
  return request.turns.front().prompt_tokens;
}

/// Seconds in which the best number of instances reads the prompt by itself.
double alone_s(const Readers& readers, const SimulatedRequest& request) {
  double least = std::numeric_limits<double>::infinity();
  for (int degree = 1; degree <= readers.instances; ++degree)
    least = std::min(least, reading_s(readers.times, {{.tokens = tokens_of(request)}}, degree,
                                      readers.rows_per_instance));
  return least;
}

/// Seconds of one instance for the rows and pairs of the prompt alone.
double work_s(const Readers& readers, const SimulatedRequest& request) {
  const PassRates rates = readers.times.rates(1, PassKind::prefill);
  const auto tokens = static_cast<double>(tokens_of(request));
  const PassWork work = schedule::work_of(0, tokens, tokens);
  return work.rows * rates.row_s + work.pairs * rates.pair_s;
}

/// Tries all ways to go on from a part of a schedule.
class Search {
 public:
  Search(const Readers& readers, const std::vector<SimulatedRequest>& requests)
      : readers_(readers), requests_(requests), free_s_(readers.instances) {
    const uint32_t sets = 1u << requests.size();
    batch_s_.resize(sets);
    for (uint32_t set = 1; set < sets; ++set) {
      std::vector<schedule::PromptToRead> prompts;
      for (size_t i = 0; i < requests.size(); ++i)
        if ((set >> i & 1) != 0) prompts.push_back({.tokens = tokens_of(requests[i])});
      for (int degree = 1; degree <= readers.instances; ++degree)
        batch_s_[set].push_back(
            reading_s(readers.times, prompts, degree, readers.rows_per_instance));
    }
    for (const SimulatedRequest& request : requests) alone_s_.push_back(alone_s(readers, request));
  }

  double best() {
    go_on((1u << requests_.size()) - 1, 0, 0);
    return best_ / static_cast<double>(requests_.size());
  }

 private:
  /// `left`: prompts in no batch yet. `now`: when the last batch began. `waited_s`: of all others.
  void go_on(uint32_t left, double now, double waited_s) {
    if (left == 0) {
      best_ = std::min(best_, waited_s);
      return;
    }
    double at_least_s = waited_s;
    for (size_t i = 0; i < requests_.size(); ++i)
      if ((left >> i & 1) != 0) at_least_s += std::max(0.0, now - arrival_s(i)) + alone_s_[i];
    if (at_least_s >= best_) return;
    for (uint32_t batch = left; batch != 0; batch = (batch - 1) & left) {
      double came_s = now, arrivals_s = 0, count = 0;
      for (size_t i = 0; i < requests_.size(); ++i)
        if ((batch >> i & 1) != 0) {
          came_s = std::max(came_s, arrival_s(i));
          arrivals_s += arrival_s(i);
          ++count;
        }
      for (int degree = readers_.instances; degree >= 1; --degree) {
        const std::vector<double> before = free_s_;
        std::ranges::sort(free_s_);
        const double begin_s = std::max(came_s, free_s_[degree - 1]);
        const double end_s = begin_s + batch_s_[batch][degree - 1];
        std::fill_n(free_s_.begin(), degree, end_s);
        go_on(left & ~batch, begin_s, waited_s + count * end_s - arrivals_s);
        free_s_ = before;
      }
    }
  }
  double arrival_s(size_t request) const { return requests_[request].arrival_s.value_or(0); }

  const Readers& readers_;
  const std::vector<SimulatedRequest>& requests_;
  std::vector<std::vector<double>> batch_s_;  ///< [set of prompts, degree − 1]
  std::vector<double> alone_s_;
  std::vector<double> free_s_;  ///< by instance
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace

double best_mean_ttft_s(const Readers& readers, const std::vector<SimulatedRequest>& requests) {
  PECIA_CHECK(!requests.empty() && requests.size() <= 6, "{} prompts", requests.size());
  return Search(readers, requests).best();
}

double least_mean_ttft_s(const Readers& readers, const std::vector<SimulatedRequest>& requests) {
  std::vector<std::pair<double, double>> coming;  // arrival, work
  double alone = 0;
  for (const SimulatedRequest& request : requests) {
    coming.emplace_back(request.arrival_s.value_or(0),
                        work_s(readers, request) / readers.instances);
    alone += alone_s(readers, request);
  }
  std::ranges::sort(coming);
  std::priority_queue<std::pair<double, double>, std::vector<std::pair<double, double>>,
                      std::greater<>>
      left;  // work left, arrival
  double now = 0, waited_s = 0;
  for (size_t next = 0; next < coming.size() || !left.empty();) {
    if (left.empty()) now = std::max(now, coming[next].first);
    while (next < coming.size() && coming[next].first <= now) {
      left.emplace(coming[next].second, coming[next].first);
      ++next;
    }
    auto [work, arrival] = left.top();
    left.pop();
    const double until =
        next < coming.size() ? coming[next].first : std::numeric_limits<double>::infinity();
    if (now + work <= until) {
      now += work;
      waited_s += now - arrival;
    } else {
      left.emplace(work - (until - now), arrival);
      now = until;
    }
  }
  return std::max(waited_s, alone) / static_cast<double>(requests.size());
}

double least_makespan_s(const Readers& readers, const std::vector<SimulatedRequest>& requests) {
  const PassRates decode = readers.times.rates(1, PassKind::decode);
  double all_s = 0, longest_s = 0;
  for (const SimulatedRequest& request : requests) {
    const auto steps =
        static_cast<double>(std::max<int64_t>(0, request.turns.front().answer_tokens - 1));
    const PassWork work =
        steps > 0 ? schedule::work_of(static_cast<double>(tokens_of(request)), steps, steps)
                  : PassWork{};
    all_s += work_s(readers, request) + work.rows * decode.row_s + work.pairs * decode.pair_s;
    longest_s =
        std::max(longest_s, alone_s(readers, request) + steps * (decode.pass_s + decode.row_s) +
                                work.pairs * decode.pair_s / readers.instances);
  }
  return std::max(all_s / readers.instances, longest_s);
}

}  // namespace pecia::bench
