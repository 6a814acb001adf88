// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/replica_times.hpp"

#include <algorithm>
#include <cmath>

#include "lib/core/error.hpp"

namespace pecia::foresight {
namespace {

using parallel::Ring;
using schedule::PassKind;
using schedule::PassRates;
using schedule::PassWork;

/// sequences × tokens after cached.
struct Lengths {
  int64_t sequences, tokens, cached;
  bool operator==(const Lengths&) const = default;
};

/// The first and the last chunk of the longest prompt, a short one, and a pass that several prompts
/// fill.
std::vector<Lengths> prefills_of(const PassSpan& span) {
  const int64_t whole = std::min(span.batch_tokens, span.longest_prompt);
  std::vector<Lengths> all{{1, whole, 0}};
  if (span.longest_prompt > whole) all.push_back({1, whole, span.longest_prompt - whole});
  if (const int64_t part = whole / 4; part > 0) all.push_back({1, part, 0});
  if (const int64_t together = span.batch_tokens / whole; together > 1)
    all.push_back({together, whole, 0});
  return all;
}

/// All sequences, all of them with half the context, and one. Contexts are multiples of 2 · CP, so that
/// all instances hold equally many tokens.
std::vector<Lengths> steps_of(const PassSpan& span, int cp) {
  const auto rounded = [&](int64_t tokens) { return (tokens + 2 * cp - 1) / (2 * cp) * (2 * cp); };
  const int64_t context = rounded(span.context), half = rounded(span.context / 2);
  std::vector<Lengths> all{{span.sequences, 1, context}};
  if (half > 0 && half < context) all.push_back({span.sequences, 1, half});
  if (span.sequences > 1) all.push_back({1, 1, context});
  return all;
}

const PassFigures& pass_of(Passes& passes, const PassShape& shape, HowFar how_far) {
  return how_far == HowFar::played ? passes.played(shape) : passes.at_least(shape);
}

/// The prefill with the job's ring, or the one that takes less by itself.
PassFigures prefill_of(Passes& passes, const resources::Resources& resources, PassShape shape,
                       HowFar how_far) {
  shape.ring = resources.ring.value_or(Ring::pass_kv);
  if (resources.cp > 1 && !resources.ring) {
    PassShape other = shape;
    other.ring = Ring::pass_q;
    if (passes.at_least(other).seconds < passes.at_least(shape).seconds) shape = other;
  }
  return pass_of(passes, shape, how_far);
}

PassRates fitted(const std::vector<PassFigures>& figures) {
  const PassFigures& first = figures.front();
  schedule::RateFit fit({0.1 * first.seconds, 0.5 * first.seconds / first.work.rows,
                         0.4 * first.seconds / first.work.pairs});
  constexpr int rounds = 8;  // until the estimate counts little beside the passes
  for (int round = 0; round < rounds; ++round)
    for (const PassFigures& each : figures) fit.add(each.work, each.seconds);
  constexpr double least = 1e-20;  // a rate of nothing is no rate that a fit can begin with
  const PassRates& rates = fit.rates();
  return {std::max(rates.pass_s, least), std::max(rates.row_s, least),
          std::max(rates.pair_s, least)};
}

void add(PassFigures& sum, const PassFigures& more, double times) {
  sum.seconds += times * more.seconds;
  sum.times.gemm_s += times * more.times.gemm_s;
  sum.times.attention_s += times * more.times.attention_s;
  sum.times.other_s += times * more.times.other_s;
  sum.times.exposed_comm_s += times * more.times.exposed_comm_s;
  sum.times.end_s += times * more.times.end_s;
  sum.compute_s += times * more.compute_s;
  sum.memory_s += times * more.memory_s;
  for (size_t level = 0; level < sum.waiting_s.size(); ++level) {
    sum.waiting_s[level] += times * more.waiting_s[level];
    sum.sent_bytes[level] += times * more.sent_bytes[level];
  }
}

}  // namespace

ReplicaTimes::ReplicaTimes(Passes& passes, const resources::Resources& resources,
                           const PassSpan& span, HowFar how_far)
    : instances_(resources.cp) {
  const parallel::ModePair modes{resources.degrees(), resources.prefill, resources.decode};
  const parallel::PassModes sharded = parallel::pass_modes(modes, span.sequences);
  for (const auto& [sequences, tokens, cached] : prefills_of(span))
    prefill_.push_back(prefill_of(passes, resources,
                                  {.kind = PassKind::prefill,
                                   .degrees = modes.degrees,
                                   .sharding = sharded.prefill,
                                   .sequences = sequences,
                                   .tokens = tokens,
                                   .cached = cached},
                                  how_far));
  for (const auto& [sequences, tokens, cached] : steps_of(span, instances_))
    decode_.push_back(pass_of(passes,
                              {.kind = PassKind::decode,
                               .degrees = modes.degrees,
                               .ring = sharded.decode_ring,
                               .sharding = sharded.sharding(sequences, false),
                               .sequences = sequences,
                               .tokens = tokens,
                               .cached = cached},
                              how_far));
  const PassRates prefill = fitted(prefill_), decode = fitted(decode_);
  team_.emplace(schedule::PassTimes{schedule::RateFit(prefill), schedule::RateFit(decode)},
                schedule::TeamCosts{.bytes_per_second = 1}, instances_);
  team_->begin_with(instances_, PassKind::prefill, prefill);
  team_->begin_with(instances_, PassKind::decode, decode);
  for (const PassKind kind : {PassKind::prefill, PassKind::decode})
    for (const PassFigures& each : figures(kind))
      error_ = std::max(error_,
                        std::abs(team_->seconds(instances_, kind, each.work) / each.seconds - 1));
}

PassFigures ReplicaTimes::of(PassKind kind, const PassWork& work) const {
  PassFigures sum;
  sum.work = work;
  if (work.passes == 0) return sum;
  std::vector<PassWork> works;
  for (const PassFigures& each : figures(kind)) works.push_back(each.work);
  const std::vector<double> times = mix_of(works, work);
  PassFigures mixed;
  for (size_t i = 0; i < times.size(); ++i) add(mixed, figures(kind)[i], times[i]);
  PECIA_CHECK(mixed.seconds > 0, "no pass is like {} passes of {} rows", work.passes, work.rows);
  add(sum, mixed, team_->seconds(instances_, kind, work) / mixed.seconds);
  return sum;
}

std::vector<double> mix_of(const std::vector<PassWork>& passes, const PassWork& work) {
  // Coordinate descent on the squared relative errors of passes, rows and pairs.
  const auto terms = [&](const PassWork& of) {
    return std::array{of.passes / work.passes, of.rows / work.rows, of.pairs / work.pairs};
  };
  std::array<double, 3> missing{1, 1, 1};
  std::vector<double> times(passes.size(), 0);
  constexpr int rounds = 400;
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < passes.size(); ++i) {
      const auto own = terms(passes[i]);
      double along = 0, norm = 0;
      for (size_t k = 0; k < own.size(); ++k) along += own[k] * missing[k], norm += own[k] * own[k];
      const double step = std::max(-times[i], along / norm);
      times[i] += step;
      for (size_t k = 0; k < own.size(); ++k) missing[k] -= step * own[k];
    }
  return times;
}

}  // namespace pecia::foresight
