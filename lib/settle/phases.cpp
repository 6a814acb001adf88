// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/phases.hpp"

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "lib/ranks/comm/agree.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/settle/memory.hpp"
#include "lib/settle/team_forecast.hpp"

namespace pecia::settle {
namespace {

/// Minimum gain before `phases: auto` sets them apart.
constexpr double least_gain = 0.05;

/// Numbers of instances that may answer: all of few, eighths of many.
std::set<int> candidates(int instances) {
  std::set<int> numbers;
  for (int eighth = 1; eighth < 8; ++eighth) numbers.insert(std::max(1, instances * eighth / 8));
  numbers.erase(instances);
  return numbers;
}

/// The same with phases apart. Collective over all ranks.
resources::Resources apart(const Facts& facts, const Settled& begun) {
  if (begun.resources.answering > 0) return begun.resources;
  job::Job job = begun.job;
  job.parallel.phases = job::Phases::apart;
  job.parallel.cp.elastic = begun.resources.elastic;
  resources::Resources resources = begun.resources;
  resources::resolve_grid(job, facts.config, facts.ranks.world.size(), resources);
  return with_memory(facts, begun.job, std::move(resources));
}

resources::Resources with_answering(resources::Resources resources, int answering) {
  resources.answering = answering;
  return resources;
}

std::string in_words(int answering) {
  return answering == 0   ? "phases together"
         : answering == 1 ? "phases apart, 1 instance answers"
                          : fmt::format("phases apart, {} instances answer", answering);
}

}  // namespace

Settled choose_phases(const Facts& facts, const Rates& rates, Settled begun) {
  const job::Job::Parallel& parallel = begun.job.parallel;
  comm::Communicator& world = facts.ranks.world;
  const bool open = parallel.phases == job::Phases::any;
  if (parallel.phases == job::Phases::together || (!open && parallel.answering)) return begun;
  if (open && !resources::may_be_apart(begun.job, facts.config, begun.resources)) return begun;
  const auto kept = measure::kept_answering(facts.kept, begun.resources);
  if (rates.ring.bandwidth <= 0 || kept == 0) {
    begun.resources.reasons.add_first(fmt::format(
        "{}: {}", in_words(begun.resources.answering),
        kept == 0 ? "as this run began" : "parallel.ring is named, so no times are known"));
    return begun;
  }
  const resources::Resources parts = apart(facts, begun);
  const auto choose = [&](int answering, const std::string& why) {
    if (answering > 0) begun.resources = with_answering(parts, answering);
    begun.resources.reasons.add_first(fmt::format("{}: {}", in_words(answering), why));
    return std::move(begun);
  };
  if (kept) return choose(*kept, "as this run began");

  int best = 0;
  double best_s = std::numeric_limits<double>::infinity(), together_s = 0;
  comm::together(world, [&] {
    if (!facts.ranks.is_root()) return;
    const TeamForecast forecast(facts, rates, begun.job, parts);
    const std::set<int> numbers =
        parallel.answering ? std::set<int>{*parallel.answering} : candidates(parts.cp);
    for (const int answering : numbers)
      if (const double seconds = forecast.seconds(with_answering(parts, answering));
          seconds < best_s)
        best = answering, best_s = seconds;
    if (open) together_s = forecast.seconds(begun.resources);
  });
  if (open && best_s >= (1 - least_gain) * together_s) best = 0;
  best = static_cast<int>(world.all_reduce_max(facts.ranks.is_root() ? best : 0));
  const std::string text = forecast_text(begun.job);
  if (!open) return choose(best, fmt::format("as this should take the least time {}", text));
  return choose(best, fmt::format("setting them apart should take {:.0f} % {} time {}",
                                  100 * std::abs(1 - best_s / together_s),
                                  best_s < together_s ? "less" : "more", text));
}

}  // namespace pecia::settle
