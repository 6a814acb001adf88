// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/team_times.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
namespace {

bool is_amount(double value) {
  return std::isfinite(value) && value >= 0;
}

void check_work(const PassWork& work) {
  PECIA_CHECK(is_amount(work.passes) && is_amount(work.rows) && is_amount(work.pairs) &&
                  is_amount(work.cached),
              "{} passes, {} rows, {} pairs, {} tokens cached", work.passes, work.rows, work.pairs,
              work.cached);
}

int64_t divided_up(int64_t count, int64_t parts) {
  return (count + parts - 1) / parts;
}

/// The share of a pass's rows, and so of its pairs, that its busiest instance has.
double busiest_share(int64_t rows, int degree) {
  return static_cast<double>(divided_up(rows, degree)) / static_cast<double>(rows);
}

}  // namespace

PassRates expected_rates(const PassRates& alone, const TeamCosts& costs, int degree,
                         PassKind kind) {
  PECIA_CHECK(degree >= 1, "a team of {} instances", degree);
  if (degree == 1) return alone;
  const double others = degree - 1;
  double messages = 0, row_bytes = 0, pass_bytes = 0;
  switch (kind) {
    case PassKind::prefill:
      messages = others, row_bytes = others * costs.kv_bytes_per_token;
      pass_bytes = 2 * others * costs.state_bytes;
      break;
    case PassKind::decode:
      messages = 2, row_bytes = others * costs.query_bytes_per_row;
      break;
  }
  constexpr PassRates least{1e-6, 1e-8, 1e-14};  // seconds, below those of any machine of 2026
  return {std::max(alone.pass_s, least.pass_s) + costs.layers * messages * costs.message_s +
              pass_bytes / costs.bytes_per_second,
          std::max(alone.row_s, least.row_s) + row_bytes / costs.bytes_per_second,
          std::max(alone.pair_s, least.pair_s)};
}

TeamTimes::TeamTimes(const PassTimes& alone, const TeamCosts& costs, int degrees) : costs_(costs) {
  PECIA_CHECK(degrees >= 1, "teams of up to {} instances", degrees);
  PECIA_CHECK(costs.bytes_per_second > 0 && is_amount(costs.message_s) && costs.layers >= 0 &&
                  is_amount(costs.kv_bytes_per_token) && is_amount(costs.query_bytes_per_row) &&
                  is_amount(costs.state_bytes),
              "{} s a message, {} B/s, {} B a token, {} B a row, {} layers, {} B a state",
              costs.message_s, costs.bytes_per_second, costs.kv_bytes_per_token,
              costs.query_bytes_per_row, costs.layers, costs.state_bytes);
  fits_.resize(degrees);
  fits_[0] = {alone.prefill, alone.decode};
}

const std::optional<RateFit>& TeamTimes::fit(int degree, PassKind kind) const {
  PECIA_CHECK(degree >= 1 && degree <= degrees(), "a team of {} of {} instances", degree,
              degrees());
  const Fits& fits = fits_[degree - 1];
  return kind == PassKind::prefill ? fits.prefill : fits.decode;
}

std::optional<RateFit>& TeamTimes::fit(int degree, PassKind kind) {
  return const_cast<std::optional<RateFit>&>(std::as_const(*this).fit(degree, kind));
}

void TeamTimes::add(int degree, PassKind kind, const PassWork& busiest, double seconds) {
  check_work(busiest);
  PECIA_CHECK(busiest.passes > 0 && is_amount(seconds), "{} passes in {} s", busiest.passes,
              seconds);
  constexpr double least_share = 0.1;
  // Keys travel no longer than the pass lasts.
  if (degree > 1 && kind == PassKind::prefill && seconds > 0)
    costs_.bytes_per_second =
        std::max(costs_.bytes_per_second, busiest.cached * costs_.kv_bytes_per_token / seconds);
  std::optional<RateFit>& own = fit(degree, kind);
  if (!own) own.emplace(rates(degree, kind));
  own->add(busiest, std::max(least_share * seconds, seconds - of(degree, kind).exposed_s(busiest)));
}

void TeamTimes::begin_with(int degree, PassKind kind, const PassRates& rates) {
  fit(degree, kind).emplace(rates);
}

bool TeamTimes::measured(int degree, PassKind kind) const {
  const std::optional<RateFit>& own = fit(degree, kind);
  return own && own->measured();
}

DegreeTimes TeamTimes::of(int degree, PassKind kind) const {
  const std::optional<RateFit>& own = fit(degree, kind);
  return {own ? own->rates() : expected_rates(fit(1, kind)->rates(), costs_, degree, kind),
          kind == PassKind::prefill ? travel_s(degree, 1) : 0, costs_.hides_keys};
}

double DegreeTimes::exposed_s(const PassWork& busiest) const {
  const double hidden_s = hides_keys ? busiest.pairs * rates.pair_s : 0;
  return std::max(0.0, busiest.cached * travel_s - hidden_s);
}

double DegreeTimes::seconds(const PassWork& busiest) const {
  return busiest.passes * rates.pass_s + busiest.rows * rates.row_s + busiest.pairs * rates.pair_s +
         exposed_s(busiest);
}

double TeamTimes::seconds(int degree, PassKind kind, const PassWork& busiest) const {
  check_work(busiest);
  return of(degree, kind).seconds(busiest);
}

double TeamTimes::travel_s(int degree, double cached) const {
  return degree == 1 ? 0 : cached * costs_.kv_bytes_per_token / costs_.bytes_per_second;
}

double TeamTimes::prefill_s(int degree, int64_t cached, int64_t tokens,
                            int64_t tokens_per_pass) const {
  return seconds(degree, PassKind::prefill,
                 busiest_prefill(degree, cached, tokens, tokens_per_pass));
}

double TeamTimes::decode_s(int degree, int masters, int64_t rows, int64_t context_pairs) const {
  PECIA_CHECK(masters >= 1 && masters <= degree, "{} masters of {} instances", masters, degree);
  PECIA_CHECK(rows >= 0 && context_pairs >= 0, "{} rows, {} pairs", rows, context_pairs);
  return seconds(degree, PassKind::decode,
                 {1, static_cast<double>(divided_up(rows, masters)),
                  static_cast<double>(context_pairs) / degree});
}

PassWork busiest_prefill(int degree, int64_t cached, int64_t tokens, int64_t tokens_per_pass) {
  PECIA_CHECK(degree >= 1 && cached >= 0 && tokens >= 0 && tokens_per_pass >= 1,
              "{} tokens after {}, {} a pass, {} instances", tokens, cached, tokens_per_pass,
              degree);
  const int64_t full = tokens / tokens_per_pass, rest = tokens % tokens_per_pass;
  PassWork work;
  const auto add = [&](int64_t of, int64_t rows, int64_t first) {
    if (of == 0 || rows == 0) return;
    const auto passes = static_cast<double>(of), begin = static_cast<double>(first);
    const double count = passes * static_cast<double>(rows);
    const double share = busiest_share(rows, degree);
    const double pairs = work_of(begin, count, count).pairs;
    work += {passes, share * count, share * pairs, passes * begin + 0.5 * (passes - 1) * count};
  };
  add(full, tokens_per_pass, cached);
  add(1, rest, cached + full * tokens_per_pass);
  return work;
}

}  // namespace pecia::schedule
