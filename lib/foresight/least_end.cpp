// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/least_end.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "lib/foresight/request_turns.hpp"

namespace pecia::foresight {
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

}  // namespace

double least_end_s(const Batch& batch, const resources::Resources& resources,
                   const ReplicaTimes& times) {
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
  return std::max({longest_s, seconds_of(all.prompts, all.answers) / resources.dp,
                   fullest_replica_s(std::move(shares_s), resources.dp)});
}

double least_first_token_s(const Batch& batch, const resources::Resources& resources,
                           const ReplicaTimes& times) {
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
  return sum_s / static_cast<double>(batch.requests().size());
}

}  // namespace pecia::foresight
