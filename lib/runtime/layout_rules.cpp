#include "lib/runtime/layout_rules.hpp"

#include "lib/core/error.hpp"
#include "lib/parallel/virtual_ranks.hpp"

namespace pecia::runtime {
namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view reason,
                         std::string_view nearest) {
  fail<Unsupported>("{}: {} with reproducible: layout is not in this version: {}; use {}", key,
                    value, reason, nearest);
}

bool is_layout(const Job& job) {
  return job.reproducible == Reproducible::layout;
}

}  // namespace

void check_layout_rules(const Job& job) {
  if (!is_layout(job)) return;
  const Job::Parallel& parallel = job.parallel;
  if (parallel.sp > 1)
    refuse("parallel.sp", std::to_string(parallel.sp), "its cuts depend on the number of ranks",
           "sp: 1 and cp");
  if (parallel.tp > 1)
    refuse("parallel.tp", std::to_string(parallel.tp),
           "its sums of partial products depend on the number of ranks", "tp: 1 and cp");
  if (job.batch.policy == Policy::chunked)
    refuse("batch.policy", "chunked", "where a prompt is cut depends on what else is in the batch",
           "policy: prefill_first");
  if (parallel.cp) check_layout_ring(job, *parallel.cp);
}

void check_layout_ring(const Job& job, int cp) {
  if (!is_layout(job) || parallel::can_play_layout(cp)) return;
  refuse("parallel.cp", std::to_string(cp),
         fmt::format("{} virtual ranks are shared out evenly", parallel::layout_ranks),
         "cp: 1, 2, 4 or 8, and dp for more ranks");
}

}  // namespace pecia::runtime
