// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/elastic_degree.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {

ChosenDegree reading_degree(const TeamTimes& times, const PromptLeft& prompt) {
  PECIA_CHECK(1 <= prompt.holders && 1 <= prompt.waiting,
              "{} instances hold a prompt for which {} wait", prompt.holders, prompt.waiting);
  int degree = prompt.holders;
  const auto seconds = [&] {
    return times.prefill_s(degree, prompt.cached, prompt.tokens, degree * prompt.rows_per_instance);
  };
  const double holders_s = seconds();
  ChosenDegree best{degree, holders_s, holders_s};
  auto waiting = static_cast<double>(prompt.waiting);
  double ready_s = 0, least = waiting * holders_s;
  for (const Reader& other : prompt.others) {
    ++degree;
    waiting += static_cast<double>(other.answers);
    ready_s = std::max(ready_s, other.ready_s);
    const double s = ready_s + seconds();
    if (waiting * s < least) best = {degree, s, holders_s}, least = waiting * s;
  }
  return best;
}

Masters masters(const TeamTimes& times, int degree, int64_t rows, int64_t context_pairs,
                std::optional<int64_t> answers) {
  constexpr double tolerance = 0.02;
  const int most = static_cast<int>(std::clamp<int64_t>(answers.value_or(rows), 1, degree));
  const auto seconds = [&](int count) {
    return times.decode_s(degree, count, rows, context_pairs);
  };
  Masters result{1, seconds(1), seconds(1), seconds(most)};
  // More masters never take longer by the rates, so most_s is the least.
  while (result.seconds > (1 + tolerance) * result.most_s) result.seconds = seconds(++result.count);
  return result;
}

GrownTeam grown_team(const TeamTimes& times, int degree, int candidates, int64_t rows,
                     int64_t context_pairs, std::optional<int64_t> answers) {
  constexpr double least_gain = 0.25;
  PECIA_CHECK(1 <= degree && degree <= candidates, "a team of {} that grows to {}", degree,
              candidates);
  const Masters before = masters(times, degree, rows, context_pairs, answers);
  const GrownTeam same{degree, before.count, before.seconds, before.seconds};
  GrownTeam best = same;
  for (int grown = degree + 1; grown <= candidates; ++grown) {
    const int64_t most = std::clamp<int64_t>(answers.value_or(rows), 1, grown);
    // What is held stays where it is, so its pairs are no fewer on these instances.
    const PassWork busiest{1, static_cast<double>((rows + most - 1) / most),
                           static_cast<double>(context_pairs) / degree};
    if (const double seconds = times.seconds(grown, PassKind::decode, busiest);
        seconds < best.seconds)
      best = {grown, static_cast<int>(most), seconds, before.seconds};
  }
  return best.seconds < (1 - least_gain) * before.seconds ? best : same;
}

ChosenDegree answering_degree(const TeamTimes& times, int holders, int readers,
                              const AnswersAhead& answers) {
  constexpr double least_gain = 0.1;
  PECIA_CHECK(1 <= holders && holders <= readers, "{} of {} readers hold a prompt", holders,
              readers);
  const auto seconds = [&](int degree) {
    const int64_t masters = std::min<int64_t>(degree, 1 + answers.others);
    const double pairs = static_cast<double>(answers.other_context) / holders +
                         static_cast<double>(answers.context) / degree;
    const int64_t rows = (1 + answers.others + masters - 1) / masters;
    return times.seconds(degree, PassKind::decode, {1, static_cast<double>(rows), pairs});
  };
  const double holders_s = seconds(holders), readers_s = seconds(readers);
  if (readers_s < (1 - least_gain) * holders_s) return {readers, readers_s, holders_s};
  return {holders, holders_s, holders_s};
}

}  // namespace pecia::schedule
