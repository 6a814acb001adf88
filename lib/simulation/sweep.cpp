// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/sweep.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "lib/base/core/error.hpp"
#include "lib/base/core/in_parallel.hpp"

namespace pecia::simulation {
namespace {

/// A layout with seconds than which its own, of what is aimed at, are not fewer.
struct Candidate {
  LayoutForecast plan;
  const Batch* batch = nullptr;
  double least_s = 0;
};

ReplicaCostModel times_of(const resources::Resources& resources, PassCosts& costs,
                          const Batch& batch, Fidelity fidelity) {
  return {costs, resources, lengths_of(batch, resources), fidelity};
}

/// Teams that change have many passes. On more ranks, once this number of the most promising ones gain
/// too little, the others are not played.
constexpr int most_teams_in_vain = 3, all_teams_ranks = 64;

/// Operations (PassCosts::replay_effort) that may be spent on many ranks: on the layouts of a sweep, for
/// rings and again for teams that change.
constexpr double most_operations = 4e6;

/// How long requests wait for each other has no bound, so of many layouts few are found to be slower
/// without being played. Up to this number, all are played.
constexpr int64_t all_with_arrivals = 40;

/// What the scheduler takes to play a batch, in the same operations.
double playing_effort(const Batch& batch) {
  return static_cast<double>(batch.work().answer_tokens + 10 * batch.work().requests);
}

class Search {
 public:
  Search(PassCosts& costs, Batches& batches, const SweepQuestion& question)
      : costs_(costs), batches_(batches), question_(question) {}

  Sweep run() {
    std::vector<std::vector<job::Job::Parallel>> layouts;
    for (const int ranks : question_.ranks) {
      layouts.push_back(legal(ranks));
      found_.counts.layouts += std::ssize(layouts.back());
    }
    for (size_t i = 0; i < layouts.size(); ++i) decide(question_.ranks[i], layouts[i]);
    const auto order = [this](const LayoutForecast& plan) {
      constexpr double never = std::numeric_limits<double>::infinity();
      const double later = plan.fidelity == Fidelity::one_rank ? 1 / (1 - least_gain) : 1;
      return plan.end ? std::pair(later * plan.seconds(question_.aim), plan.gpu_hours())
                      : std::pair(never, static_cast<double>(-plan.memory.free_bytes));
    };
    std::ranges::stable_sort(found_.plans, {}, order);
    found_.passes = costs_.num_replayed();
    return std::move(found_);
  }

 private:
  const Scenario& scenario() const { return costs_.scenario(); }

  std::vector<job::Job::Parallel> legal(int ranks) const {
    const job::Job& job = scenario().job;
    const model::ModelConfig& config = scenario().config;
    auto layouts = layouts_of(ranks, job, question_.kept, config);
    if (layouts.empty()) fail<InputError>("{}", why_no_layout(ranks, job, question_.kept, config));
    return layouts;
  }

  /// The best of a number of ranks so far.
  struct Best {
    double seconds = std::numeric_limits<double>::infinity();  ///< of what is aimed at
    std::optional<LayoutForecast> nearest;                     ///< to fitting, while none fits
    std::map<std::pair<int, int>, double> blocks = {};         ///< by SP and TP

    /// The best of the layout's block; 0: none was played.
    double block_s(const job::Job::Parallel& layout) const {
      const auto at = blocks.find({*layout.sp, *layout.tp});
      return at == blocks.end() ? 0 : at->second;
    }
  };

  void decide(int ranks, const std::vector<job::Job::Parallel>& layouts) {
    const auto is_elastic = [](const job::Job::Parallel& layout) { return layout.cp.elastic; };
    std::vector<job::Job::Parallel> rings, teams;
    std::ranges::partition_copy(layouts, std::back_inserter(teams), std::back_inserter(rings),
                                is_elastic);
    Best best;
    decide(ranks, rings, best);
    // Passes of teams are many, so they are played where they may gain much. Blocks that are slow as
    // rings are slow as teams, and those of the best rings come first.
    if (!rings.empty() && question_.pruning == Pruning::bounds) {
      const auto elsewhere = std::erase_if(
          teams, [&](const job::Job::Parallel& layout) { return best.block_s(layout) == 0; });
      found_.counts.slower += static_cast<int64_t>(elsewhere);
      decided_ += static_cast<int64_t>(elsewhere);
    }
    decide(ranks, teams, best);
    if (best.nearest && best.seconds == std::numeric_limits<double>::infinity())
      found_.plans.push_back(std::move(*best.nearest));
  }

  void decide(int ranks, const std::vector<job::Job::Parallel>& layouts, Best& best) {
    std::vector<Candidate> candidates;
    for (const job::Job::Parallel& parallel : layouts) {
      Candidate& candidate = candidates.emplace_back();
      candidate.plan.ranks = ranks;
      candidate.plan.parallel = parallel;
      candidate.plan.resources = layout_resources(scenario(), parallel, ranks, batches_);
      candidate.batch = &batches_.of(scenario().job, candidate.plan.resources);
    }
    std::optional<double> left = question_.operations;
    const bool are_many = ranks > all_played_ranks || (question_.aim == Aim::first_token &&
                                                       std::ssize(layouts) > all_with_arrivals);
    if (!left && are_many && question_.pruning == Pruning::bounds) left = most_operations;
    if (left) leave_open_wide_steps(candidates);
    if (question_.pruning == Pruning::bounds)
      in_parallel(scenario().threads, candidates.size(), [&](size_t i) {
        const resources::Resources& resources = candidates[i].plan.resources;
        const Batch& batch = *candidates[i].batch;
        candidates[i].least_s = least_s(batch, resources, Fidelity::lower_bound);
      });
    std::ranges::stable_sort(candidates, {}, [&](const Candidate& candidate) {
      const job::Job::Parallel& layout = candidate.plan.parallel;
      return std::pair(layout.cp.elastic ? best.block_s(layout) : 0, candidate.least_s);
    });
    int teams_in_vain = 0;
    for (Candidate& candidate : candidates) {
      ++decided_;
      const bool is_open_team = question_.pruning == Pruning::bounds &&
                                candidate.plan.resources.elastic && !best.blocks.empty();
      const double target_s = (is_open_team ? 1 - least_gain : 1) * best.seconds;
      if (candidate.least_s > target_s ||
          (ranks > all_teams_ranks && teams_in_vain >= most_teams_in_vain)) {
        ++found_.counts.slower;
        continue;
      }
      LayoutForecast& plan = candidate.plan;
      const Batch& batch = *candidate.batch;
      if (!fit_memory(plan, scenario(), batch)) {
        ++found_.counts.too_large;
        if (!best.nearest || plan.memory.free_bytes > best.nearest->memory.free_bytes)
          best.nearest = std::move(plan);
        continue;
      }
      if (left) {
        // Something has to be compared, whatever it costs.
        const bool is_first = best.seconds == std::numeric_limits<double>::infinity();
        if (playing_effort(batch) > *left && !is_first) {
          ++found_.counts.open;
          continue;
        }
        *left -= playing_effort(batch);
        const double effort =
            replay_effort(costs_, plan.resources, lengths_of(batch, plan.resources));
        plan.fidelity = effort <= *left ? Fidelity::replayed : Fidelity::one_rank;
        if (plan.fidelity == Fidelity::replayed) *left -= effort;
      }
      if (question_.pruning == Pruning::bounds && plan.fidelity == Fidelity::replayed &&
          least_s(batch, plan.resources, Fidelity::steps_replayed) > target_s) {
        ++found_.counts.slower;
        continue;
      }
      plan.times.emplace(times_of(plan.resources, costs_, batch, plan.fidelity));
      if (question_.pruning == Pruning::bounds &&
          least_by(*plan.times, batch, plan.resources) > target_s) {
        teams_in_vain += is_open_team;
        ++found_.counts.slower;
        continue;
      }
      plan.end = end_of(plan, scenario(), batch);
      const double seconds = plan.seconds(question_.aim);
      teams_in_vain += is_open_team && seconds > target_s;
      best.seconds = std::min(best.seconds, seconds);
      const std::pair block(*plan.parallel.sp, *plan.parallel.tp);
      double& of_block = best.blocks.try_emplace(block, seconds).first->second;
      of_block = std::min(of_block, seconds);
      found_.plans.push_back(std::move(plan));
      tell();
    }
  }

  /// Leaves layouts open whose numbers of sequences and instances are so large that a step takes long
  /// to record, unless all are like that.
  void leave_open_wide_steps(std::vector<Candidate>& candidates) {
    constexpr int64_t most_places = 1 << 18;  // about 30 ms for each rank
    const auto is_wide = [](const Candidate& candidate) {
      const resources::Resources& resources = candidate.plan.resources;
      return lengths_of(*candidate.batch, resources).sequences * resources.cp > most_places;
    };
    if (std::ranges::all_of(candidates, is_wide)) return;
    const auto wide = static_cast<int64_t>(std::erase_if(candidates, is_wide));
    found_.counts.open += wide;
    decided_ += wide;
  }

  double least_by(const ReplicaCostModel& times, const Batch& batch,
                  const resources::Resources& resources) const {
    return question_.aim == Aim::batch_end ? end_lower_bound_s(batch, resources, times)
                                           : first_token_lower_bound_s(batch, resources, times);
  }

  /// The least seconds by times of which not all are played.
  double least_s(const Batch& batch, const resources::Resources& resources, Fidelity fidelity) {
    const ReplicaCostModel times = times_of(resources, costs_, batch, fidelity);
    // Lines may be so much above and below the passes that they were fitted to, and more beyond them.
    // Teams that change have to gain much in any case.
    const double of_fit = std::max(0.0, 1 - times.error()) / (1 + times.error());
    const double slack = resources.elastic ? of_fit : std::min(0.95, of_fit);
    return slack * least_by(times, batch, resources);
  }

  void tell() const {
    if (question_.on_progress) question_.on_progress(decided_, found_.counts.layouts);
  }

  PassCosts& costs_;
  Batches& batches_;
  const SweepQuestion& question_;
  int64_t decided_ = 0;
  Sweep found_;
};

}  // namespace

Sweep sweep(PassCosts& costs, Batches& batches, const SweepQuestion& question) {
  return Search(costs, batches, question).run();
}

}  // namespace pecia::simulation
