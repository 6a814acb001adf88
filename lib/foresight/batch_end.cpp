// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/batch_end.hpp"

#include <algorithm>

#include "lib/core/error.hpp"

namespace pecia::foresight {
namespace {

using schedule::PassKind;
using schedule::PassWork;
using schedule::SimulatedRequest;

/// Does `each(turn, tokens before it)` for the turns of a request.
template <typename Each>
void for_turns(const SimulatedRequest& request, const Each& each) {
  const bool chain = request.followup == io::Followup::chain;
  int64_t before = 0;
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const schedule::SimulatedTurn& turn = request.turns[i];
    each(turn, before);
    if (chain || i == 0) before += turn.prompt_tokens + turn.answer_tokens;
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

schedule::SchedulerLimits limits_of(const Batch& batch, const job::Job& job,
                                    const model::ModelConfig& config,
                                    const resources::Resources& resources) {
  schedule::SchedulerLimits limits;
  limits.ring_size = resources.cp;
  limits.kv_tokens = resources.kv_tokens;
  limits.max_sequences = resources.max_sequences;
  limits.max_batch_tokens = resources.max_batch_tokens;
  limits.max_positions = std::max(config.max_positions, batch.cached().front() + 1);
  limits.vocab = config.vocab;
  limits.policy = job.batch.policy;
  limits.modes = parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                                      resources.shift_threshold);
  return limits;
}

}  // namespace

Batch::Batch(std::vector<SimulatedRequest> requests, const model::ModelConfig& config)
    : requests_(std::move(requests)) {
  PECIA_CHECK(!requests_.empty(), "a batch without requests");
  const double pair_flops =
      2.0 * static_cast<double>(config.num_heads * config.head_dim * config.layers);
  double contexts = 0;
  work_.requests = std::ssize(requests_);
  for (const SimulatedRequest& request : requests_) {
    int64_t cached = 0, prompt = 0;
    double length = 0;
    for_turns(request, [&](const schedule::SimulatedTurn& turn, int64_t before) {
      const int64_t tokens = turn.prompt_tokens + turn.answer_tokens;
      cached = std::max(cached, before + tokens);
      prompt = std::max(prompt, before + turn.prompt_tokens);
      length += static_cast<double>(tokens);
      work_.prompt_tokens += turn.prompt_tokens;
      work_.answer_tokens += turn.answer_tokens;
      work_.answers += turn.answer_tokens > 0;
      contexts += static_cast<double>(turn.answer_tokens) *
                  static_cast<double>(before + turn.prompt_tokens + turn.answer_tokens / 2);
    });
    work_.flops += length * config.flops_per_token() + pair_flops * length * length;
    longest_prompt_ = std::max(longest_prompt_, prompt);
    cached_.push_back(cached);
  }
  std::ranges::sort(cached_, std::greater());
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
  return {resources.max_batch_tokens, batch.longest_prompt(), sequences, batch.mean_context()};
}

double least_end_s(const Batch& batch, const resources::Resources& resources,
                   const ReplicaTimes& times) {
  const int cp = resources.cp;
  const schedule::TeamTimes& team = times.team();
  PassWork prompts, answers;
  double longest_s = 0,
         held = 0;  // held: slots of a rank, each as often as an answer's pass needs it
  for (const SimulatedRequest& request : batch.requests()) {
    PassWork own_prompts, own_answers;
    int64_t most_steps = 0;
    for_turns(request, [&](const schedule::SimulatedTurn& turn, int64_t before) {
      const auto [prompt, answer] = work_of(turn, before, resources.max_batch_tokens, cp);
      own_prompts += prompt, own_answers += answer;
      held += answer.passes * static_cast<double>(before + turn.prompt_tokens) / cp;
      most_steps = std::max(most_steps, turn.answer_tokens - 1);
    });
    prompts += own_prompts, answers += own_answers;
    // A fork's branches may decode together.
    if (request.followup == io::Followup::fork)
      own_answers.passes = static_cast<double>(std::max<int64_t>(0, most_steps));
    longest_s = std::max(longest_s, team.seconds(cp, PassKind::prefill, own_prompts) +
                                        team.seconds(cp, PassKind::decode, own_answers));
  }
  // Prompts share passes up to max_batch_tokens, and answers up to max_sequences and kv_tokens.
  const auto batch_tokens = static_cast<double>(resources.max_batch_tokens);
  prompts.passes = static_cast<double>(batch.work().prompt_tokens) / batch_tokens;
  answers.passes /= static_cast<double>(resources.max_sequences);
  if (resources.kv_tokens > 0)
    answers.passes = std::max(answers.passes, held / static_cast<double>(resources.kv_tokens));
  const double all_s =
      team.seconds(cp, PassKind::prefill, prompts) + team.seconds(cp, PassKind::decode, answers);
  return std::max(longest_s, all_s / resources.dp);
}

BatchEnd play(const Batch& batch, const job::Job& job, const model::ModelConfig& config,
              const resources::Resources& resources, const ReplicaTimes& times) {
  const schedule::Simulation found = schedule::simulate(
      limits_of(batch, job, config, resources), times.team(), batch.requests(), resources.dp);
  BatchEnd end;
  end.end_s = found.seconds;
  const double soonest_s =
      job.generation.ignore_eos
          ? found.seconds
          : std::min(found.seconds, least_end_s({batch.at_once(), config}, resources, times));
  end.soonest_s = soonest_s / (1 + times.error());
  end.latest_s = found.seconds * (1 + times.error());
  end.busy = found.seconds > 0 ? found.busy_s / (resources.dp * found.seconds) : 0;
  end.prefill = times.of(PassKind::prefill, found.prompts);
  end.decode = times.of(PassKind::decode, found.answers);
  end.refused = found.refused;
  return end;
}

}  // namespace pecia::foresight
