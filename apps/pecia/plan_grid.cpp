// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_grid.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/core/error.hpp"
#include "lib/run/run_summary.hpp"

namespace pecia::app {

int fewest_ranks(const job::Job::Parallel& parallel) {
  int product = 1;
  const int dp = parallel.dp.value_or(1), cp = parallel.cp.degree.value_or(1);
  const int sp = parallel.sp.value_or(1), tp = parallel.tp.value_or(1);
  for (const int degree : {dp, cp, sp, tp})
    if (__builtin_mul_overflow(product, degree, &product) || product > max_ranks)
      fail<InputError>("parallel.dp {} × cp {} × sp {} × tp {} is more than {} ranks; lower one",
                       dp, cp, sp, tp, max_ranks);
  return product;
}

nlohmann::ordered_json outcome(const job::Job& job, const model::ModelConfig& config, int ranks,
                               resources::Resources& resources) try {
  resources::resolve_grid(job, config, ranks, resources);
  std::string why = resources.reasons.text();
  if (resources::may_become_elastic(job, config, resources))
    why += "; a run takes cp elastic if it expects that to end 5 % sooner";
  return {{"dp", resources.dp}, {"cp", resources.cp}, {"sp", resources.sp},
          {"tp", resources.tp}, {"ep", resources.ep}, {"mode", resources::mode_name(resources)},
          {"why", why}};
} catch (const InputError& error) {
  return {{"refused", error.what()}};
}

std::string outcome_text(const nlohmann::ordered_json& outcome) {
  if (outcome.contains("refused"))
    return fmt::format("this job is refused: {}\n", outcome["refused"].get<std::string>());
  const auto why = outcome["why"].get<std::string>();
  return fmt::format("this job runs as {}{}{}\n", outcome["mode"].get<std::string>(),
                     why.empty() ? "" : "; auto: ", why);
}

}  // namespace pecia::app
