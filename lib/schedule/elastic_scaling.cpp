// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/elastic_scaling.hpp"

#include <algorithm>
#include <numeric>

#include "lib/core/error.hpp"

namespace pecia::schedule {

std::vector<int64_t> shares_by_free_slots(int64_t tokens, const std::vector<int64_t>& free_slots) {
  int64_t all = 0;
  for (const int64_t slots : free_slots) {
    PECIA_CHECK(slots >= 0, "{} free slots", slots);
    all += slots;
  }
  PECIA_CHECK(tokens >= 0 && tokens <= all, "{} tokens on {} free slots", tokens, all);
  std::vector<int64_t> shares(free_slots.size());
  if (tokens == 0) return shares;
  std::vector<int64_t> fraction(free_slots.size());  // times `all`
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i] = tokens * free_slots[i] / all;
    fraction[i] = tokens * free_slots[i] % all;
  }
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return fraction[a] > fraction[b]; });
  const int64_t left = tokens - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  for (int64_t i = 0; i < left; ++i) ++shares[order[i]];
  return shares;
}

Keepers keepers(const TeamTimes& times, const std::vector<FreeSlots>& team, int64_t tokens,
                int64_t answer_tokens) {
  PECIA_CHECK(!team.empty() && tokens >= 0 && answer_tokens >= 0,
              "{} tokens and an answer of {} on {} instances", tokens, answer_tokens, team.size());
  const auto decode_s = [&](size_t degree) {
    return times.decode_s(static_cast<int>(degree), 1, 1, tokens + answer_tokens);
  };
  Keepers result;
  result.whole_team_s = decode_s(team.size());
  std::vector<FreeSlots> order = team;
  std::stable_sort(order.begin(), order.end(),
                   [](const FreeSlots& a, const FreeSlots& b) { return a.slots > b.slots; });
  std::vector<int64_t> free_slots;
  int64_t missing = tokens + answer_tokens;
  for (const FreeSlots& instance : order) {
    if (missing <= 0 && !free_slots.empty()) break;
    free_slots.push_back(instance.slots);
    missing -= instance.slots;
  }
  if (missing > 0) {
    result.missing_slots = missing;
    return result;
  }
  const std::vector<int64_t> shares = shares_by_free_slots(tokens, free_slots);
  for (size_t i = 0; i < shares.size(); ++i) free_slots[i] -= shares[i];
  const std::vector<int64_t> answer = shares_by_free_slots(answer_tokens, free_slots);
  for (size_t i = 0; i < shares.size(); ++i)
    result.shares.push_back({order[i].instance, shares[i], answer[i]});
  result.seconds = decode_s(shares.size());
  return result;
}

Masters masters(const TeamTimes& times, int degree, int64_t rows, int64_t context_pairs) {
  constexpr double tolerance = 0.02;
  const int most = static_cast<int>(std::clamp<int64_t>(rows, 1, degree));
  const auto seconds = [&](int count) {
    return times.decode_s(degree, count, rows, context_pairs);
  };
  Masters result{1, seconds(1), seconds(1), seconds(most)};
  // More masters never take longer by the rates, so most_s is the least.
  while (result.seconds > (1 + tolerance) * result.most_s) result.seconds = seconds(++result.count);
  return result;
}

DegreeChoice degree_alone(const std::vector<double>& seconds, double work_s, int instances) {
  PECIA_CHECK(!seconds.empty() && seconds.size() <= static_cast<size_t>(instances),
              "{} degrees on {} instances", seconds.size(), instances);
  for (const double s : seconds) PECIA_CHECK(s > 0, "a request of {} s", s);
  PECIA_CHECK(work_s >= (1 - 1e-9) * seconds[0], "{} s of work with a request of {} s", work_s,
              seconds[0]);
  const auto end_s = [&](int degree) {
    const double own_s = seconds[degree - 1];
    return std::max(own_s, (work_s - seconds[0] + degree * own_s) / instances);
  };
  DegreeChoice result{1, seconds[0], end_s(1), end_s(1), 1, 0};
  for (int degree = 2; degree <= static_cast<int>(seconds.size()); ++degree) {
    if (seconds[degree - 1] < seconds[result.fastest - 1]) result.fastest = degree;
    if (end_s(degree) < result.end_s)
      result.degree = degree, result.seconds = seconds[degree - 1], result.end_s = end_s(degree);
  }
  result.fastest_end_s = end_s(result.fastest);
  return result;
}

}  // namespace pecia::schedule
