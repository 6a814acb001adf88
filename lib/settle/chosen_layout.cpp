// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/chosen_layout.hpp"

#include <fmt/format.h>

namespace pecia::settle {

void ChosenLayout::apply_to(job::Job& job) const {
  job.parallel = parallel;
  if (max_batch_tokens) job.batch.max_batch_tokens = max_batch_tokens;
}

std::vector<std::string> ChosenLayout::to_settings() const {
  std::vector<std::string> settings;
  const auto set = [&](const char* key, const auto& value) {
    settings.push_back(fmt::format("{}={}", key, value));
  };
  set("parallel.dp", *parallel.dp), set("parallel.sp", *parallel.sp);
  set("parallel.tp", *parallel.tp);
  if (*parallel.pp > 1) set("parallel.pp", *parallel.pp);
  if (parallel.ep.value_or(1) > 1) set("parallel.ep", *parallel.ep);
  if (parallel.cp.elastic)
    set("parallel.cp", "elastic");
  else
    set("parallel.cp", *parallel.cp.degree);
  if (parallel.prefill) set("parallel.prefill", name_of(*parallel.prefill));
  if (parallel.decode) set("parallel.decode", name_of(*parallel.decode));
  if (parallel.shift_threshold) set("parallel.shift_threshold", *parallel.shift_threshold);
  if (parallel.gather_threshold) set("parallel.gather_threshold", *parallel.gather_threshold);
  if (max_batch_tokens) set("batch.max_batch_tokens", *max_batch_tokens);
  return settings;
}

ChosenLayout ChosenLayout::of_settings(const job::Job& job,
                                       const std::vector<std::string>& settings) {
  const job::Job with = job::parse_job(to_yaml(job), "the job", settings);
  ChosenLayout layout{with.parallel};
  if (with.batch.max_batch_tokens != job.batch.max_batch_tokens)
    layout.max_batch_tokens = with.batch.max_batch_tokens;
  return layout;
}

}  // namespace pecia::settle
