// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/batch_end.hpp"

#include <algorithm>
#include <cmath>

#include "lib/core/error.hpp"
#include "lib/foresight/least_end.hpp"
#include "lib/foresight/request_turns.hpp"
#include "lib/resources/scheduler_limits.hpp"

namespace pecia::foresight {
namespace {

using schedule::PassKind;
using schedule::PassWork;
using schedule::SimulatedRequest;

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
  // Not fewer than there are, so that all passes lie between those that are played; a power of two, so
  // that many grids ask for the same passes.
  int64_t sequences = 1;
  while (sequences < std::min(of_replica, resources.max_sequences)) sequences *= 2;
  int64_t prompts = (work.requests + resources.dp - 1) / resources.dp;
  // On many ranks, a pass of millions of rows says no more of a row than one of fewer.
  constexpr int64_t most_rows = 1 << 19;
  if (resources.dp * resources.degrees().ranks() > all_played_ranks)
    prompts = std::min(prompts, std::max<int64_t>(2, most_rows / batch.mean_prompt()));
  return {batch.longest_prompt(), prompts, sequences, batch.mean_context(), batch.mean_prompt()};
}

namespace {

schedule::SchedulerLimits limits_of(const Batch& batch, const job::Job& job,
                                    const model::ModelConfig& config,
                                    const resources::Resources& resources,
                                    const schedule::TeamTimes& times) {
  schedule::SchedulerLimits limits = resources::scheduler_limits(job, config, resources);
  if (resources.elastic) limits.team_times = times;
  limits.max_positions = std::max(config.max_positions, batch.longest_sequence() + 1);
  limits.ring = parallel::Ring::pass_kv;  // `times` know what travels
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

void BatchEnd::add_first_touch(double seconds) {
  for (double* const each : {&end_s, &soonest_s, &latest_s, &first_touch_s}) *each += seconds;
}

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
