// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/held_out.hpp"

#include <fmt/ranges.h>

#include <cmath>

#include "lib/base/core/error.hpp"
#include "lib/engine/execute/estimated_times.hpp"

namespace pecia::bench {

schedule::PassTimes expected_times(const LoadedModel& model, const ReplicaSettings& settings,
                                   const Floors& floors) {
  resources::Resources resources = settings.resources;
  resources.elastic = true;
  return execute::estimated_times(model.config, resources,
                                  model.config.stored_dtype.value_or(DType::fp32),
                                  model::codes_kept(model.config, resources.sp * resources.tp,
                                                    false, resources.ep, resources.gpus),
                                  floors.peak.start.best);
}

std::vector<double> held_out_errors(const std::vector<TimedWork>& measured,
                                    const schedule::RateFit& expected) {
  PECIA_CHECK(measured.size() >= 2, "{} measured works", measured.size());
  std::vector<double> errors;
  for (size_t held_out = 0; held_out < measured.size(); ++held_out) {
    schedule::RateFit fit = expected;
    for (size_t i = 0; i < measured.size(); ++i)
      if (i != held_out) fit.add(measured[i].work, measured[i].seconds);
    errors.push_back(
        std::abs(fit.seconds(measured[held_out].work) / measured[held_out].seconds - 1));
  }
  return errors;
}

void print_held_out(const Results& results, const std::vector<TimedWork>& measured,
                    const schedule::RateFit& expected) {
  constexpr size_t enough = 5;  // three rates follow from four times
  if (measured.size() < enough) return;
  const std::vector<double> errors = held_out_errors(measured, expected);
  std::vector<std::string> percent;
  for (const double error : errors) percent.push_back(fmt::format("{:.1f}", 100 * error));
  const Spread all = spread(errors);
  results.line(fmt::format(
      "each time, foretold from the others, is off by {} %: {:.1f} in the median, {:.1f} "
      "at most",
      fmt::join(percent, ", "), 100 * all.median, 100 * all.max));
  results.write({{"held_out_errors", errors}});
}

}  // namespace pecia::bench
