// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/batch_end.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/core/error.hpp"

namespace pecia::foresight {
namespace {

using schedule::PassKind;
using schedule::PassWork;
using schedule::SimulatedRequest;

/// Does `each(turn, tokens before it)` for the turns of a request. Of a fork's first turn, the later
/// ones see the prompt alone.
template <typename Each>
void for_turns(const SimulatedRequest& request, const Each& each) {
  const bool chain = request.followup == io::Followup::chain;
  int64_t before = 0, of_branch = 0;
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const schedule::SimulatedTurn& turn = request.turns[i];
    each(turn, before + of_branch);
    const int64_t tokens = turn.prompt_tokens + turn.answer_tokens;
    if (chain)
      before += tokens;
    else if (i == 0)
      before = turn.prompt_tokens;
    else
      of_branch = turn.goes_on ? of_branch + tokens : 0;
  }
}

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

/// What a request of the batch, or one of joined requests, has by itself.
struct OwnTokens {
  int64_t shared = 0;  ///< of the common beginning, before these
  int64_t tokens = 0;  ///< of prompts and answers
  int64_t again = 0;   ///< of these, ends of a fork's first turn that its later turns compute again
};

std::vector<OwnTokens> own_tokens(const SimulatedRequest& request) {
  std::vector<OwnTokens> all;
  if (!request.is_joined()) all.emplace_back();
  for (const schedule::SimulatedTurn& turn : request.turns) {
    if (turn.shared_tokens > 0) all.push_back({turn.shared_tokens});
    if (all.empty()) continue;  // the common beginning
    all.back().tokens += turn.prompt_tokens + turn.answer_tokens;
    all.back().again += turn.stem_end_tokens;
  }
  return all;
}

}  // namespace

Batch::Batch(std::vector<SimulatedRequest> requests, const model::ModelConfig& config)
    : requests_(std::move(requests)) {
  PECIA_CHECK(!requests_.empty(), "a batch without requests");
  const double pair_flops =
      2.0 * static_cast<double>(config.num_heads * config.head_dim * config.layers);
  const auto flops_of = [&](int64_t tokens) {
    const auto length = static_cast<double>(tokens);
    return length * config.flops_per_token() + pair_flops * length * length;
  };
  double contexts = 0;
  int64_t turns = 0;
  for (const SimulatedRequest& request : requests_) {
    for_turns(request, [&](const schedule::SimulatedTurn& turn, int64_t before) {
      const int64_t prompt = before + turn.prompt_tokens;
      longest_sequence_ = std::max(longest_sequence_, prompt + turn.answer_tokens);
      longest_prompt_ = std::max(longest_prompt_, prompt);
      work_.prompt_tokens += turn.prompt_tokens;
      work_.answer_tokens += turn.answer_tokens;
      work_.answers += turn.answer_tokens > 0;
      contexts += static_cast<double>(turn.answer_tokens) *
                  static_cast<double>(before + turn.prompt_tokens + turn.answer_tokens / 2);
    });
    turns += std::ssize(request.turns);
    bool is_first = true;
    for (const OwnTokens& own : own_tokens(request)) {
      ++work_.requests;
      work_.flops += flops_of(own.shared + own.tokens - own.again) +
                     static_cast<double>(own.again) * config.flops_per_token() -
                     (is_first ? 0 : flops_of(own.shared));
      cached_.push_back(own.tokens + (is_first ? own.shared : 0));
      is_first = false;
    }
  }
  std::ranges::sort(cached_, std::greater());
  mean_prompt_ = std::max<int64_t>(1, work_.prompt_tokens / turns);
  if (work_.answer_tokens > 0)
    mean_context_ = std::max<int64_t>(
        1, static_cast<int64_t>(contexts / static_cast<double>(work_.answer_tokens)));
}

std::vector<SimulatedRequest> Batch::at_once() const {
  std::vector<SimulatedRequest> requests = requests_;
  for (SimulatedRequest& request : requests)
    for (schedule::SimulatedTurn& turn : request.turns)
      turn.answer_tokens = std::min<int64_t>(turn.answer_tokens, 1);
  return requests;
}

PassSpan span_of(const Batch& batch, const resources::Resources& resources) {
  const resources::BatchWork& work = batch.work();
  const int64_t of_replica = (work.answers + resources.dp - 1) / resources.dp;
  int64_t sequences = 1;  // a power of two: many grids then ask for the same passes
  while (2 * sequences <= std::min(of_replica, resources.max_sequences)) sequences *= 2;
  const int64_t prompts = (work.requests + resources.dp - 1) / resources.dp;
  return {batch.longest_prompt(), prompts, sequences, batch.mean_context(), batch.mean_prompt()};
}

double least_end_s(const Batch& batch, const resources::Resources& resources,
                   const ReplicaTimes& times) {
  const schedule::TeamTimes& teams = times.teams();
  // Teams that change waste least as instances alone, and read a request alone fastest as any team.
  const int degree = resources.shares();
  const double teams_at_once = static_cast<double>(resources.dp) * resources.cp / degree;
  PassWork prompts, answers;
  double longest_s = 0,
         held = 0;  // held: slots of a team, each as often as an answer's pass needs it
  for (const SimulatedRequest& request : batch.requests()) {
    const bool is_fork = request.followup == io::Followup::fork;
    double own_s = std::numeric_limits<double>::infinity();
    for (int own = degree; own <= resources.cp; ++own) {
      PassWork own_prompts, own_answers;
      LongestBranch branches;
      for_turns(request, [&](const schedule::SimulatedTurn& turn, int64_t before) {
        const int64_t batch_tokens = resources.batch_tokens_of_team(own);
        const auto [prompt, answer] = work_of(turn, before, batch_tokens, own);
        own_prompts += prompt, own_answers += answer;
        branches.add(turn, prompt.passes, answer.passes);
        if (own != degree) return;
        const int64_t of_stem = is_fork && &turn != &request.turns.front()
                                    ? request.turns.front().prompt_tokens
                                    : 0;  // all branches have it together
        held += answer.passes * static_cast<double>(before + turn.prompt_tokens - of_stem) / degree;
      });
      if (own == degree) prompts += own_prompts, answers += own_answers;
      // A fork's branches may be in a pass together.
      if (is_fork) {
        own_prompts.passes = branches.prompts;
        own_answers.passes = branches.answers;
      }
      own_s = std::min(own_s, teams.seconds(own, PassKind::prefill, own_prompts) +
                                  teams.seconds(own, PassKind::decode, own_answers));
    }
    longest_s = std::max(longest_s, own_s);
  }
  // Prompts share passes up to max_batch_tokens, and answers up to max_sequences and kv_tokens.
  const auto batch_tokens = static_cast<double>(resources.max_batch_tokens);
  prompts.passes = static_cast<double>(batch.work().prompt_tokens) / batch_tokens;
  answers.passes /= static_cast<double>(resources.max_sequences);
  if (resources.kv_tokens > 0)
    answers.passes = std::max(answers.passes, held / static_cast<double>(resources.kv_tokens));
  const double all_s = teams.seconds(degree, PassKind::prefill, prompts) +
                       teams.seconds(degree, PassKind::decode, answers);
  return std::max(longest_s, all_s / teams_at_once);
}

namespace {

schedule::SchedulerLimits limits_of(const Batch& batch, const job::Job& job,
                                    const model::ModelConfig& config,
                                    const resources::Resources& resources,
                                    const schedule::TeamTimes& times) {
  schedule::SchedulerLimits limits;
  limits.ring_size = resources.cp;
  limits.elastic = resources.elastic;
  limits.objective = resources.objective;
  limits.min_instances = resources.min_instances;
  limits.max_instances = resources.max_instances;
  if (resources.elastic) limits.team_times = times;
  limits.kv_tokens = resources.kv_tokens;
  limits.max_sequences = resources.max_sequences;
  limits.max_batch_tokens = resources.max_batch_tokens;
  limits.max_positions = std::max(config.max_positions, batch.longest_sequence() + 1);
  limits.vocab = config.vocab;
  limits.policy = job.batch.policy;
  limits.levels_from = resources.levels_from();
  limits.layout_invariant = job.reproducible == parallel::Reproducible::layout;
  limits.modes = parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                                      resources.shift_threshold);
  return limits;
}

/// A replica's instances share its time, so a team's passes count by its share of them.
PassFigures all_of(const ReplicaTimes& times, PassKind kind, const std::vector<PassWork>& works) {
  PassFigures sum;
  const auto instances = static_cast<double>(works.size());
  for (size_t i = 0; i < works.size(); ++i) {
    const auto degree = static_cast<int>(i) + 1;
    const PassFigures all = times.of(kind, degree, works[i]);
    sum.work += works[i];
    const auto sent = sum.sent_bytes;
    sum.add(all, degree / instances);
    for (size_t level = 0; level < sent.size(); ++level)
      sum.sent_bytes[level] = sent[level] + all.sent_bytes[level];
  }
  return sum;
}

}  // namespace

BatchEnd play(const Batch& batch, const job::Job& job, const model::ModelConfig& config,
              const resources::Resources& resources, const ReplicaTimes& times) {
  const schedule::Simulation found =
      schedule::simulate(limits_of(batch, job, config, resources, times.teams()), times.teams(),
                         batch.requests(), resources.dp);
  BatchEnd end;
  end.end_s = found.seconds;
  const double soonest_s =
      job.generation.ignore_eos
          ? found.seconds
          : std::min(found.seconds, least_end_s({batch.at_once(), config}, resources, times));
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

}  // namespace pecia::foresight
