// SPDX-License-Identifier: Apache-2.0
#include "lib/execute/rank_needs.hpp"

#include <limits>
#include <utility>

#include "lib/parallel/pass_modes.hpp"
#include "lib/parallel/virtual_ranks.hpp"

namespace pecia::execute {
namespace {

using parallel::PassSequence;

/// Passes of a job, one after the other.
class Passes {
 public:
  Passes(const job::Job& job, const resources::Resources& resources)
      : resources_(resources),
        modes_(parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                                    resources.shift_threshold)),
        virtual_ranks_(job.reproducible == parallel::Reproducible::layout ? parallel::layout_ranks
                                                                          : resources.cp) {}

  /// A pass with the next `tokens` tokens of sequences [first, first + count).
  schedule::Plan feed(int64_t first, int64_t count, int64_t tokens) const {
    schedule::Plan plan = plan_of(count * tokens, true);
    plan.teams.front().ring = resources_.ring.value_or(parallel::Ring::pass_kv);
    for (int64_t i = first; i < first + count; ++i) {
      // Room for one more token, whoever gets it.
      plan.added.push_back({i, schedule::NewSequence::no_parent,
                            std::vector<int64_t>(resources_.cp, slots(tokens + virtual_ranks_)),
                            0});
      plan.turns.push_back({i, {}, 0, tokens});
      plan.items.push_back({{i, 0, tokens, PassSequence::balanced, virtual_ranks_},
                            std::vector<int32_t>(tokens),
                            tokens,
                            0});
    }
    return plan;
  }

  /// A step of sequences [first, first + count), which have `tokens` tokens.
  schedule::Plan step(int64_t first, int64_t count, int64_t tokens) const {
    schedule::Plan plan = plan_of(count, false);
    plan.teams.front().ring = modes_.decode_ring;
    for (int64_t i = first; i < first + count; ++i)
      plan.items.push_back(
          {{i, tokens, 1, static_cast<int32_t>(i % virtual_ranks_), virtual_ranks_},
           {0},
           tokens,
           1});
    return plan;
  }

  /// Slots on each rank of a ring for sequences that are cut evenly.
  int64_t slots(int64_t tokens) const {
    const int64_t unit = 2 * int64_t{virtual_ranks_};
    return (tokens + unit - 1) / unit * unit;
  }
  /// Tokens of a short sequence of which every instance holds some.
  int64_t short_tokens() const { return 2 * int64_t{virtual_ranks_}; }

 private:
  schedule::Plan plan_of(int64_t new_tokens, bool prefills) const {
    schedule::Plan plan;
    plan.teams = {parallel::team_of_all(resources_.cp)};
    plan.teams.front().sharding = modes_.sharding(new_tokens, prefills);
    return plan;
  }

  const resources::Resources& resources_;
  parallel::PassModes modes_;
  int32_t virtual_ranks_;
};

}  // namespace

RankNeeds needs_of_rank(int rank, const job::Job& job, const model::ModelConfig& config,
                        const resources::Resources& resources, DType weights,
                        std::function<DType(DType)> operand_type) {
  const Passes passes(job, resources);
  const int64_t prompt = resources.max_batch_tokens, sequences = resources.max_sequences;
  const int64_t kv_tokens = passes.slots(prompt + passes.short_tokens()) +
                            sequences * passes.slots(2 * passes.short_tokens());
  PhantomRank phantom(
      config, {.ranks = resources.cp * resources.sp * resources.tp,
               .rank = rank,
               .weights = weights,
               .quantize = resources::quantize_of(job),
               .memory_bytes = std::numeric_limits<int64_t>::max(),
               .operand_type = std::move(operand_type),
               .worker = {.sp = resources.sp,
                          .tp = resources.tp,
                          .kv_dtype = resources.kv_dtype,
                          .kv_tokens = kv_tokens,
                          .logprobs = job.generation.logprobs,
                          .prompt_logprobs = 0,
                          .layout_invariant = job.reproducible == parallel::Reproducible::layout}});
  const int64_t before = phantom.peak_bytes();
  RankNeeds needs;
  needs.weight_bytes = before - kv_tokens * phantom.worker().cache().shape().bytes_per_token();
  const auto sent_by = [&](const schedule::Plan& plan) {
    const int64_t sent = phantom.sent().total();
    phantom.execute(plan);
    return phantom.sent().total() - sent;
  };
  needs.prefill_sent_bytes = sent_by(passes.feed(0, 1, prompt));
  phantom.execute(passes.feed(1, sequences, passes.short_tokens()));
  needs.decode_sent_bytes = sent_by(passes.step(1, sequences, passes.short_tokens()));
  needs.work_bytes = phantom.peak_bytes() - before;
  return needs;
}

}  // namespace pecia::execute
