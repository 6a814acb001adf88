// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/batch_end.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lib/engine/schedule/job_limits.hpp"

namespace pecia::simulation {
namespace {

using schedule::PassKind;
using schedule::PassWork;
using schedule::SimulatedRequest;

/// Work of a turn's prompt, and of its answer, of one of `instances` instances that share evenly.
std::pair<PassWork, PassWork> work_of(const schedule::SimulatedTurn& turn, int64_t before,
                                      int64_t batch_tokens, int instances) {
  const auto prompt = static_cast<double>(turn.prompt_tokens), first = static_cast<double>(before);
  const auto rest = static_cast<double>(std::max<int64_t>(0, turn.answer_tokens - 1));
  return {schedule::work_of(first, prompt, static_cast<double>(batch_tokens)).shared(instances),
          schedule::work_of(first + prompt, rest, 1).shared(instances)};
}

/// Passes that a fork has one after the other: of its first turn, and of the branch with most.
struct LongestBranch {
  double prompts = 0, answers = 0;

  /// The fork's next turn, with the passes of its prompt and its answer.
  void add(const schedule::SimulatedTurn& turn, double of_prompt, double of_answer) {
    if (is_first_) {
      prompts = stem_ = of_prompt, answers = of_answer;
      is_first_ = false;
      return;
    }
    prompts_ += of_prompt, answers_ += of_answer;
    prompts = std::max(prompts, stem_ + prompts_);
    answers = std::max(answers, answers_);
    if (!turn.goes_on) prompts_ = answers_ = 0;
  }

 private:
  bool is_first_ = true;
  double stem_ = 0, prompts_ = 0, answers_ = 0;
};

/// What all prompts and all answers of a request are at least, on a team of `own` instances.
struct RequestWork {
  PassWork prompts, answers;
  LongestBranch branches;
  double held = 0;  ///< slots of an instance, each as often as an answer's pass needs it
};

RequestWork work_of(const SimulatedRequest& request, const resources::Resources& resources,
                    int own) {
  const bool is_fork = request.followup == io::Followup::fork;
  const int64_t batch_tokens = resources.batch_tokens_of_team(own);
  RequestWork work;
  for_turns(request, [&](const schedule::SimulatedTurn& turn, int64_t before) {
    const auto [prompt, answer] = work_of(turn, before, batch_tokens, own);
    work.prompts += prompt, work.answers += answer;
    work.branches.add(turn, prompt.passes, answer.passes);
    const bool is_branch = is_fork && &turn != &request.turns.front();
    const int64_t of_stem = is_branch ? request.turns.front().prompt_tokens : 0;  // all share it
    work.held += answer.passes * static_cast<double>(before + turn.prompt_tokens - of_stem) / own;
  });
  return work;
}

/// Seconds of a request alone. Passes of a fork's branches may be the same ones. Teams that change may
/// read it as one team and answer it as another.
double alone_s(const SimulatedRequest& request, const resources::Resources& resources,
               const schedule::TeamTimes& teams) {
  constexpr double never = std::numeric_limits<double>::infinity();
  double prompts_s = never, answers_s = never;
  for (int own = resources.shares(); own <= resources.cp; ++own) {
    RequestWork work = work_of(request, resources, own);
    if (request.followup == io::Followup::fork) {
      work.prompts.passes = work.branches.prompts;
      work.answers.passes = work.branches.answers;
    }
    work.answers.rows = std::max(work.answers.rows, work.answers.passes);
    prompts_s = std::min(prompts_s, teams.seconds(own, PassKind::prefill, work.prompts));
    answers_s = std::min(answers_s, teams.seconds(own, PassKind::decode, work.answers));
  }
  return prompts_s + answers_s;
}

/// Some of `replicas` replicas has k of the (k − 1) · replicas + 1 largest, whatever k is. `seconds`: of
/// each request, on a replica.
double fullest_replica_s(std::vector<double> seconds, int replicas) {
  std::ranges::sort(seconds, std::greater());
  double most = 0, sum = 0;  // sum: of the k smallest of them
  size_t begin = 0, end = 0;
  for (size_t k = 1; (k - 1) * replicas < seconds.size(); ++k) {
    const size_t last = (k - 1) * replicas;
    while (end <= last) sum += seconds[end++];
    while (end - begin > k) sum -= seconds[begin++];
    most = std::max(most, sum);
  }
  return most;
}

schedule::SchedulerLimits limits_of(const Batch& batch, const job::Job& job,
                                    const model::ModelConfig& config,
                                    const resources::Resources& resources,
                                    const schedule::TeamTimes& times) {
  schedule::SchedulerLimits limits = schedule::limits_of(job, config, resources);
  if (limits.decides_by_times()) limits.team_times = times;
  limits.max_positions = std::max(config.max_positions, batch.longest_sequence() + 1);
  limits.ring = parallel::AttentionExchange::pass_kv;  // `times` know what travels
  return limits;
}

/// A replica's instances share its time, so a team's passes count by its share of them.
PassCost all_of(const ReplicaCostModel& times, PassKind kind, const std::vector<PassWork>& works) {
  PassCost sum;
  const auto instances = static_cast<double>(works.size());
  for (size_t i = 0; i < works.size(); ++i) {
    const auto degree = static_cast<int>(i) + 1;
    const PassCost all = times.of(kind, degree, works[i]);
    sum.work += works[i];
    const auto sent = sum.sent_bytes;
    sum.add(all, degree / instances);
    for (size_t level = 0; level < sent.size(); ++level)
      sum.sent_bytes[level] = sent[level] + all.sent_bytes[level];
  }
  return sum;
}

}  // namespace

PassLengths lengths_of(const Batch& batch, const resources::Resources& resources) {
  const resources::BatchWork& work = batch.work();
  const int64_t of_replica = (work.answers + resources.dp - 1) / resources.dp;
  // Not fewer than there are, so that all passes lie between those that are played; a power of two, so
  // that many grids ask for the same passes.
  int64_t sequences = 1;
  while (sequences < std::min(of_replica, resources.max_sequences)) sequences *= 2;
  int64_t prompts = (work.requests + resources.dp - 1) / resources.dp;
  // On many ranks, a pass of millions of rows says no more of a row than one of fewer.
  constexpr int64_t most_rows = 1 << 19;
  if (resources.dp * resources.replica_ranks() > all_played_ranks)
    prompts = std::min(prompts, std::max<int64_t>(2, most_rows / batch.mean_prompt()));
  return {batch.longest_prompt(), prompts, sequences, batch.mean_context(), batch.mean_prompt()};
}

void BatchEnd::add_first_touch(double seconds) {
  for (double* const each : {&end_s, &soonest_s, &latest_s, &first_touch_s}) *each += seconds;
}

BatchEnd play(const Batch& batch, const job::Job& job, const model::ModelConfig& config,
              const resources::Resources& resources, const ReplicaCostModel& times,
              double parking_s) {
  schedule::SchedulerLimits limits = limits_of(batch, job, config, resources, times.teams());
  limits.parking_s = parking_s;
  const schedule::Simulation found =
      schedule::simulate(limits, times.teams(), batch.requests(), resources.dp);
  BatchEnd end;
  end.end_s = found.seconds;
  const double soonest_s =
      job.generation.ignore_eos
          ? found.seconds
          : std::min(found.seconds, end_lower_bound_s({batch.at_once(), config}, resources, times));
  end.soonest_s = soonest_s / (1 + times.error());
  end.latest_s = found.seconds * (1 + times.error());
  double first_tokens = 0;
  for (const double each : found.ttft_s)
    if (!std::isnan(each)) end.mean_ttft_s += each, ++first_tokens;
  end.mean_ttft_s /= std::max(1.0, first_tokens);
  end.busy = found.seconds > 0 ? found.busy_s / (resources.dp * found.seconds) : 0;
  end.prefill = all_of(times, PassKind::prefill, found.prompts);
  end.decode = all_of(times, PassKind::decode, found.answers);
  end.refused = found.refused;
  end.sharing = found.sharing;
  return end;
}

double end_lower_bound_s(const Batch& batch, const resources::Resources& resources,
                         const ReplicaCostModel& times) {
  const schedule::TeamTimes& teams = times.teams();
  // Teams that change waste least as instances alone.
  const int degree = resources.shares();
  const double teams_of_replica = static_cast<double>(resources.cp) / degree;
  const auto batch_tokens = static_cast<double>(resources.max_batch_tokens);
  const auto seconds_of = [&](const PassWork& prompts, const PassWork& answers) {
    return (teams.seconds(degree, PassKind::prefill, prompts) +
            teams.seconds(degree, PassKind::decode, answers)) /
           teams_of_replica;
  };
  RequestWork all;
  std::vector<double> shares_s;
  double longest_s = 0;
  for (const SimulatedRequest& request : batch.requests()) {
    longest_s = std::max(longest_s, alone_s(request, resources, teams));
    RequestWork work = work_of(request, resources, degree);
    // Prompts share passes up to max_batch_tokens, and answers up to max_sequences.
    work.prompts.passes = work.prompts.rows * degree / batch_tokens;
    work.answers.passes /= static_cast<double>(resources.max_sequences);
    all.prompts += work.prompts, all.answers += work.answers, all.held += work.held;
    shares_s.push_back(seconds_of(work.prompts, work.answers));
  }
  if (resources.kv_tokens > 0)
    all.answers.passes =
        std::max(all.answers.passes, all.held / static_cast<double>(resources.kv_tokens));
  all.answers.rows = std::max(all.answers.rows, all.answers.passes);
  // Stages work beside each other, also on chunks of one prompt.
  if (resources.pp > 1)
    return seconds_of(all.prompts, all.answers) / (int64_t{resources.dp} * resources.pp);
  return std::max({longest_s, seconds_of(all.prompts, all.answers) / resources.dp,
                   fullest_replica_s(std::move(shares_s), resources.dp)});
}

double first_token_lower_bound_s(const Batch& batch, const resources::Resources& resources,
                                 const ReplicaCostModel& times) {
  double sum_s = 0;
  for (const SimulatedRequest& request : batch.requests()) {
    const schedule::SimulatedTurn& first = request.turns[request.is_joined() ? 1 : 0];
    double least_s = std::numeric_limits<double>::infinity();
    for_turns(request, [&](const schedule::SimulatedTurn& turn, int64_t before) {
      if (&turn != &first) return;
      for (int own = resources.shares(); own <= resources.cp; ++own) {
        const PassWork prompt =
            work_of(turn, before, resources.batch_tokens_of_team(own), own).first;
        least_s = std::min(least_s, times.teams().seconds(own, PassKind::prefill, prompt));
      }
    });
    sum_s += least_s;
  }
  return sum_s / static_cast<double>(batch.requests().size() * resources.pp);
}

}  // namespace pecia::simulation
