// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/layouts.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/model/config/stage.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::simulation {
namespace {

template <typename T>
bool is_kept(const std::optional<T>& wanted, const T& value) {
  return !wanted || *wanted == value;
}

struct Grid {
  int dp, pp;
  parallel::Degrees degrees;  ///< of a stage
};

/// The grids of `ranks` ranks with the degrees that are kept. A pp that is kept may be more than the
/// model allows.
std::vector<Grid> grids_of(int ranks, const KeptDegrees& kept, const model::ModelConfig& config) {
  std::vector<Grid> grids;
  const int most = kept.pp.value_or(std::min(ranks, model::most_stages(config)));
  for (int pp = kept.pp.value_or(1); pp <= most; ++pp)
    for (int dp = ranks / pp; dp >= 1; --dp) {
      if (ranks % (int64_t{pp} * dp) != 0 || !is_kept(kept.dp, dp)) continue;
      for (const parallel::Degrees& degrees : parallel::grids_of(ranks / pp / dp))
        if (is_kept(kept.cp, degrees.cp) && is_kept(kept.sp, degrees.sp) &&
            is_kept(kept.tp, degrees.tp))
          grids.push_back({dp, pp, degrees});
    }
  return grids;
}

/// The degrees of EP with these others: the one that is kept, legal or not, or all that are legal.
std::vector<int> eps_of(const parallel::Degrees& degrees, const KeptDegrees& kept,
                        const parallel::ModelShape& model) {
  return kept.ep ? std::vector{*kept.ep} : parallel::expert_degrees(degrees, model);
}

parallel::Setting setting_of(const parallel::Degrees& degrees, const job::Job& job,
                             const job::Job::Parallel& parallel) {
  return {degrees,
          parallel.prefill,
          parallel.ring,
          parallel.decode,
          parallel.shift_threshold,
          job.reproducible,
          parallel.cp.elastic || parallel.phases == job::Phases::apart,
          parallel.gather_threshold};
}

/// Whether this version runs the job in this layout.
bool is_implemented(job::Job job, const job::Job::Parallel& layout) try {
  job.parallel = layout;
  job::refuse_unimplemented(job);
  if (job.backend == job::BackendKind::cpu) job::refuse_on_cpus(job);
  return true;
} catch (const Unsupported&) {
  return false;
}

/// Whether it is open if the instances of a replica are one ring, or teams that change.
bool leaves_teams_open(const job::Job& job, const KeptDegrees& kept) {
  const job::Job::Parallel& parallel = job.parallel;
  return !kept.cp && kept.pp.value_or(1) == 1 && !parallel.cp.degree && !parallel.cp.elastic &&
         !parallel.prefill && !parallel.ring && !parallel.decode && !parallel.shift_threshold &&
         job.attention.sparse == job::Sparse::off;
}

}  // namespace

std::vector<job::Job::Parallel> layouts_of(int ranks, const job::Job& job, const KeptDegrees& kept,
                                           const model::ModelConfig& config) {
  PECIA_CHECK(ranks >= 1, "{} ranks", ranks);
  const job::Job::Parallel& parallel = job.parallel;
  const parallel::ModelShape model = resources::shape_of(config);
  const int most_instances = std::max(parallel.elastic.min, parallel.elastic.max.value_or(1));
  const bool by_levels = job.attention.sparse == job::Sparse::csa;
  const std::vector<bool> elastic = leaves_teams_open(job, kept)
                                        ? std::vector{false, true}
                                        : std::vector<bool>{parallel.cp.elastic};
  const bool any_implemented = is_implemented(job, parallel);
  std::vector<job::Job::Parallel> layouts;
  for (const auto& [dp, pp, degrees] : grids_of(ranks, kept, config)) {
    if (by_levels && degrees.sp > 1 && !kept.sp) continue;
    if (parallel.cp.elastic && most_instances > degrees.cp && degrees.cp > 1) continue;
    if (parallel.phases == job::Phases::apart && degrees.cp <= parallel.answering.value_or(1))
      continue;  // none would read
    const parallel::Degrees cut =
        by_levels ? parallel::Degrees{degrees.cp * degrees.sp, 1, degrees.tp} : degrees;
    const parallel::ModeRow& row = parallel::row_of(cut);
    for (const parallel::PrefillMode prefill : row.prefill)
      for (const parallel::DecodeMode decode : row.decode) {
        if (!is_kept(parallel.prefill, prefill) || !is_kept(parallel.decode, decode)) continue;
        job::Job::Parallel layout = parallel;
        layout.dp = dp, layout.pp = pp, layout.sp = degrees.sp, layout.tp = degrees.tp;
        if (degrees.ranks() > 1) layout.prefill = prefill, layout.decode = decode;
        for (const int ep : eps_of(cut, kept, model))
          for (const bool teams : elastic) {
            if (teams && degrees.cp == 1 && elastic.size() > 1) continue;  // it is the other one
            if (teams && pp > 1 && elastic.size() > 1) continue;           // it is refused
            layout.cp = {degrees.cp, teams && degrees.cp > 1};
            layout.ep = ep;
            const parallel::Degrees dealt{cut.cp, cut.sp, cut.tp, ep};
            if (!parallel.prefill && parallel::gathers_weights(dealt, prefill))
              layout.gather_threshold =
                  parallel::gather_threshold(parallel::moved_shape(dealt, model), dealt.tp);
            if (!parallel::refusal(setting_of(dealt, job, layout), model) &&
                (!any_implemented || is_implemented(job, layout)))
              layouts.push_back(layout);
          }
      }
  }
  return layouts;
}

std::string why_no_layout(int ranks, const job::Job& job, const KeptDegrees& kept,
                          const model::ModelConfig& config) {
  const parallel::ModelShape model = resources::shape_of(config);
  const auto grids = grids_of(ranks, kept, config);
  for (const auto& [dp, pp, degrees] : grids) {
    const parallel::Degrees dealt{degrees.cp, degrees.sp, degrees.tp, kept.ep.value_or(1)};
    if (const auto refused = parallel::refusal(setting_of(dealt, job, job.parallel), model))
      return refused->text();
  }
  PECIA_CHECK(grids.empty(), "a legal grid of {} ranks has no layout", ranks);
  std::string given = kept.pp.value_or(1) > 1 ? fmt::format("pp {}", *kept.pp) : "";
  for (const auto& [name, degree] :
       {std::pair("dp", kept.dp), std::pair("cp", kept.cp), std::pair("sp", kept.sp),
        std::pair("tp", kept.tp), std::pair("ep", kept.ep)})
    if (degree) given += fmt::format("{}{} {}", given.empty() ? "" : " × ", name, *degree);
  return fmt::format(
      "no grid of {} ranks has parallel.{}: use other --ranks, or leave one of the degrees out",
      ranks, given);
}

}  // namespace pecia::simulation
