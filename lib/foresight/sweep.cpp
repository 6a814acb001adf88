// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/sweep.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "lib/core/error.hpp"
#include "lib/foresight/in_parallel.hpp"
#include "lib/foresight/least_end.hpp"
#include "lib/resources/tuned_setting.hpp"

namespace pecia::foresight {
namespace {

/// A layout with seconds than which its own, of what is aimed at, are not fewer.
struct Candidate {
  Foreseen plan;
  const Batch* batch = nullptr;
  double least_s = 0;
};

ReplicaTimes times_of(const resources::Resources& resources, Passes& passes, const Batch& batch,
                      HowFar how_far) {
  return {passes, resources, span_of(batch, resources), how_far};
}

/// Gives the plan its memory; whether it fits.
bool fit(Foreseen& plan, const PassSetting& setting, const Batch& batch) {
  plan.memory = rank_memory(setting, plan.resources, batch);
  plan.resources.kv_tokens = plan.memory.kv_tokens;
  plan.resources.kv_recent_tokens = plan.memory.kv_recent_tokens;
  return !plan.memory.why_not;
}

/// The end of a batch with this plan, which has its memory and its times.
BatchEnd end_of(const Foreseen& plan, const PassSetting& setting, const Batch& batch) {
  BatchEnd end = play(batch, setting.job, setting.config, plan.resources, *plan.times);
  end.add_first_touch(
      first_touch_s(setting.cluster.rank, plan.memory.kv_bytes + plan.memory.work_bytes));
  return end;
}

/// Teams that change have many passes. On more ranks, once so many of the most promising ones gain
/// too little, the others are not played.
constexpr int most_teams_in_vain = 3, all_teams_ranks = 64;

/// Operations (Passes::cost) that may be spent on many ranks: on the layouts of a sweep, for rings and
/// again for teams that change; and on one more layout beside a sweep.
constexpr double most_operations = 4e6, most_operations_beside = 1e6;

/// How long requests wait for each other has no bound, so of many layouts few are found to be slower
/// without being played. Up to so many are all played.
constexpr int64_t all_with_arrivals = 40;

/// What the scheduler takes to play a batch, in the same operations.
double cost_of(const Batch& batch) {
  return static_cast<double>(batch.work().answer_tokens + 10 * batch.work().requests);
}

class Search {
 public:
  Search(Passes& passes, Batches& batches, const SweepQuestion& question)
      : passes_(passes), batches_(batches), question_(question) {}

  Sweep run() {
    std::vector<std::vector<job::Job::Parallel>> layouts;
    for (const int ranks : question_.ranks) {
      layouts.push_back(legal(ranks));
      found_.layouts += std::ssize(layouts.back());
    }
    for (size_t i = 0; i < layouts.size(); ++i) decide(question_.ranks[i], layouts[i]);
    const auto order = [this](const Foreseen& plan) {
      constexpr double never = std::numeric_limits<double>::infinity();
      const double later = plan.how_far == HowFar::alike ? 1 / (1 - least_gain) : 1;
      return plan.end ? std::pair(later * plan.seconds(question_.aim), plan.gpu_hours())
                      : std::pair(never, static_cast<double>(-plan.memory.free_bytes));
    };
    std::ranges::stable_sort(found_.plans, {}, order);
    found_.passes = passes_.num_played();
    return std::move(found_);
  }

 private:
  const PassSetting& setting() const { return passes_.setting(); }

  std::vector<job::Job::Parallel> legal(int ranks) const {
    const job::Job& job = setting().job;
    const auto shape = resources::shape_of(setting().config);
    auto layouts = layouts_of(ranks, job, question_.kept, shape);
    if (layouts.empty()) fail<InputError>("{}", why_no_layout(ranks, job, question_.kept, shape));
    return layouts;
  }

  /// The best of a number of ranks so far.
  struct Best {
    double seconds = std::numeric_limits<double>::infinity();  ///< of what is aimed at
    std::optional<Foreseen> nearest;                           ///< to fitting, while none fits
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
      found_.slower += static_cast<int64_t>(elsewhere);
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
      candidate.plan.resources = layout_resources(setting(), parallel, ranks, batches_);
      candidate.batch = &batches_.of(setting().job, candidate.plan.resources);
    }
    std::optional<double> left = question_.operations;
    const bool are_many = ranks > all_played_ranks || (question_.aim == Aim::first_token &&
                                                       std::ssize(layouts) > all_with_arrivals);
    if (!left && are_many && question_.pruning == Pruning::bounds) left = most_operations;
    if (left) leave_open_wide_steps(candidates);
    if (question_.pruning == Pruning::bounds)
      in_parallel(setting().threads, candidates.size(), [&](size_t i) {
        const resources::Resources& resources = candidates[i].plan.resources;
        const Batch& batch = *candidates[i].batch;
        candidates[i].least_s = least_s(batch, resources, HowFar::at_least);
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
        ++found_.slower;
        continue;
      }
      Foreseen& plan = candidate.plan;
      const Batch& batch = *candidate.batch;
      if (!fit(plan, setting(), batch)) {
        ++found_.too_large;
        if (!best.nearest || plan.memory.free_bytes > best.nearest->memory.free_bytes)
          best.nearest = std::move(plan);
        continue;
      }
      if (left) {
        // Something has to be compared, whatever it costs.
        const bool is_first = best.seconds == std::numeric_limits<double>::infinity();
        if (cost_of(batch) > *left && !is_first) {
          ++found_.open;
          continue;
        }
        *left -= cost_of(batch);
        const double cost = cost_of_times(passes_, plan.resources, span_of(batch, plan.resources));
        plan.how_far = cost <= *left ? HowFar::played : HowFar::alike;
        if (plan.how_far == HowFar::played) *left -= cost;
      }
      if (question_.pruning == Pruning::bounds && plan.how_far == HowFar::played &&
          least_s(batch, plan.resources, HowFar::steps_played) > target_s) {
        ++found_.slower;
        continue;
      }
      plan.times.emplace(times_of(plan.resources, passes_, batch, plan.how_far));
      if (question_.pruning == Pruning::bounds &&
          least_by(*plan.times, batch, plan.resources) > target_s) {
        teams_in_vain += is_open_team;
        ++found_.slower;
        continue;
      }
      plan.end = end_of(plan, setting(), batch);
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

  /// Leaves open layouts with so many sequences on so many instances that a step of them takes long
  /// to record, unless all are like that.
  void leave_open_wide_steps(std::vector<Candidate>& candidates) {
    constexpr int64_t most_places = 1 << 18;  // about 30 ms for each rank
    const auto is_wide = [](const Candidate& candidate) {
      const resources::Resources& resources = candidate.plan.resources;
      return span_of(*candidate.batch, resources).sequences * resources.cp > most_places;
    };
    if (std::ranges::all_of(candidates, is_wide)) return;
    const auto wide = static_cast<int64_t>(std::erase_if(candidates, is_wide));
    found_.open += wide;
    decided_ += wide;
  }

  double least_by(const ReplicaTimes& times, const Batch& batch,
                  const resources::Resources& resources) const {
    return question_.aim == Aim::batch_end ? least_end_s(batch, resources, times)
                                           : least_first_token_s(batch, resources, times);
  }

  /// The least seconds by times of which not all are played.
  double least_s(const Batch& batch, const resources::Resources& resources, HowFar how_far) {
    const ReplicaTimes times = times_of(resources, passes_, batch, how_far);
    // Lines may be so much above and below the passes that they were fitted to, and more beyond them.
    // Teams that change have to gain much in any case.
    const double of_fit = std::max(0.0, 1 - times.error()) / (1 + times.error());
    const double slack = resources.elastic ? of_fit : std::min(0.95, of_fit);
    return slack * least_by(times, batch, resources);
  }

  void tell() const {
    if (question_.on_progress) question_.on_progress(decided_, found_.layouts);
  }

  Passes& passes_;
  Batches& batches_;
  const SweepQuestion& question_;
  int64_t decided_ = 0;
  Sweep found_;
};

}  // namespace

resources::Resources layout_resources(const PassSetting& setting,
                                      const job::Job::Parallel& parallel, int ranks,
                                      Batches& batches) {
  job::Job job = setting.job;
  job.parallel = parallel;
  resources::Resources resources;
  resources.gpus = setting.cluster.rank.gpu;
  resources::resolve_grid(job, setting.config, ranks, resources);
  resources::settle_tuned(job, setting.config,
                          std::min(batches.alone().longest_prompt(), setting.config.max_positions),
                          {}, resources);
  resources.kv_dtype = setting.kv;
  parallel::Degrees team = resources.degrees();
  if (resources.elastic) team.cp = 1;  // for each instance of a team
  resources.max_batch_tokens = resources::resolve_batch_tokens(
      job, setting.config, parallel::row_ranks(team, resources.prefill), resources.gpus);
  resources.max_sequences = job.batch.max_sequences.value_or(resources::sequences_for(
      batches.of(setting.job, resources).work(), setting.config, resources));
  return resources;
}

Foreseen played_in(Passes& passes, Batches& batches, const job::Job::Parallel& parallel, int ranks,
                   std::optional<int64_t> batch_tokens) {
  const PassSetting& setting = passes.setting();
  Foreseen plan;
  plan.ranks = ranks;
  plan.parallel = parallel;
  plan.resources = layout_resources(setting, parallel, ranks, batches);
  if (batch_tokens) plan.resources.max_batch_tokens = *batch_tokens;
  const Batch& batch = batches.of(setting.job, plan.resources);
  if (!fit(plan, setting, batch)) return plan;
  if (ranks > all_played_ranks &&
      cost_of_times(passes, plan.resources, span_of(batch, plan.resources)) >
          most_operations_beside)
    plan.how_far = HowFar::alike;
  plan.times.emplace(times_of(plan.resources, passes, batch, plan.how_far));
  plan.end = end_of(plan, setting, batch);
  return plan;
}

Sweep sweep(Passes& passes, Batches& batches, const SweepQuestion& question) {
  return Search(passes, batches, question).run();
}

std::string limit_of(const Foreseen& plan) {
  const BatchEnd& end = *plan.end;
  const double compute_s = end.prefill.compute_s + end.decode.compute_s;
  const double memory_s = end.prefill.memory_s + end.decode.memory_s;
  std::string limit = "compute";
  double most = compute_s;
  if (memory_s > most) {
    most = memory_s;
    const bool few = plan.memory.kv_tokens < plan.memory.kv_wanted;
    limit = few && end.decode.memory_s > end.prefill.memory_s ? "memory" : "memory bandwidth";
  }
  for (size_t level = 0; level < comm::num_link_levels; ++level) {
    const double waits = end.prefill.waiting_s[level] + end.decode.waiting_s[level];
    if (waits <= most) continue;
    most = waits;
    limit = fmt::format("link {}", comm::link_level_names[level]);
  }
  return limit;
}

}  // namespace pecia::foresight
