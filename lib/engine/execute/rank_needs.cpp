// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/rank_needs.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/engine/execute/phantom_rank.hpp"
#include "lib/engine/execute/trial_passes.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::execute {
namespace {

TrialPasses passes_of(const job::Job& job, const resources::Resources& resources) {
  return {
      resources.cp,
      job.reproducible == parallel::Reproducible::layout ? parallel::layout_ranks : resources.cp,
      parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                           resources.shift_threshold, resources.gather_threshold),
      resources.ring.value_or(parallel::AttentionExchange::pass_kv), resources.levels_from()};
}

}  // namespace

RankNeeds needs_of_rank(int rank, const job::Job& job, const model::ModelConfig& config,
                        const resources::Resources& resources, DType weights,
                        const kernels::BackendTraits& traits) {
  const TrialPasses passes = passes_of(job, resources);
  const int64_t prompt = resources.max_batch_tokens, sequences = resources.max_sequences;
  const int64_t kv_tokens = passes.slots(prompt + passes.short_tokens()) +
                            sequences * passes.slots(2 * passes.short_tokens());
  Replica::Settings settings = Replica::settings_of(job, resources);
  settings.kv_tokens = kv_tokens, settings.kv_recent_tokens = 0;
  settings.prompt_logprobs = 0;
  settings.states = sequences + 2, settings.states_may_be_any = true;
  const int64_t states = settings.states;
  PhantomRank phantom(config,
                      {.ranks = resources.replica_ranks(),
                       .rank = rank,
                       .weights = weights,
                       .quantize = resources::quantize_of(job),
                       .keeps_codes = resources::code_use(job, config, 1, 1, resources.gpus).kept,
                       .gpus = resources.gpus,
                       .memory_bytes = std::numeric_limits<int64_t>::max(),
                       .traits = traits,
                       .replica = std::move(settings)});
  const int64_t before = phantom.peak_bytes();
  const int64_t state_bytes =
      states * phantom.config().state_bytes(int64_t{resources.sp} * resources.tp);
  RankNeeds needs;
  needs.weight_bytes = before - phantom.replica().cache().bytes() - state_bytes;
  const auto windows = [&] { return phantom.replica().attention().window_totals(); };
  const auto run = [&](const schedule::Plan& plan, int64_t& sent,
                       attention::WindowTotals& in_windows) {
    const int64_t sent_before = phantom.sent().total();
    const attention::WindowTotals before_pass = windows();
    phantom.execute(plan);
    sent = phantom.sent().total() - sent_before;
    in_windows = windows() - before_pass;
  };
  run(passes.feed(0, 1, prompt), needs.prefill_sent_bytes, needs.prefill_windows);
  // A shorter prompt may be read in another way, in buffers of its own.
  if (const auto from = passes.modes.gather_threshold; from && *from > 1) {
    schedule::Plan shorter = passes.feed(0, 1, std::min(prompt, *from - 1));
    shorter.removed = {0};
    phantom.execute(shorter);
  }
  phantom.execute(passes.feed(1, sequences, passes.short_tokens()));
  run(passes.step(1, sequences, passes.short_tokens()), needs.decode_sent_bytes,
      needs.decode_windows);
  needs.work_bytes = phantom.peak_bytes() - before;
  return needs;
}

parallel::SentPerToken sent_per_token(const model::ModelConfig& config, int sp, int tp, int ep,
                                      DType wire) {
  const int ranks = sp * tp;
  const int64_t tokens = 16 * int64_t{ranks};  // the same number of rows on every rank
  const auto passes_in = [](parallel::Sharding sharding) {
    return TrialPasses{.modes = {.prefill = sharding}};
  };
  const TrialPasses in_base = passes_in(parallel::Sharding::base);
  const TrialPasses in_shift = passes_in(parallel::Sharding::shift);
  // As in decode steps, all rows go through the last layer: their outputs are asked for.
  const auto feed = [tokens](const TrialPasses& passes, int64_t sequence) {
    schedule::Plan plan = passes.feed(sequence, 1, tokens);
    plan.pools.push_back({.item = 0, .vector = 0, .begin = 0, .end = tokens});
    return plan;
  };
  int64_t base = 0, both = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    PhantomRank phantom(config, {.ranks = ranks,
                                 .rank = rank,
                                 .memory_bytes = std::numeric_limits<int64_t>::max(),
                                 .replica = {.sp = sp,
                                             .tp = tp,
                                             .kv_tokens = 2 * in_base.slots(tokens + 1),
                                             .states = 2,
                                             .ep = ep,
                                             .wire = wire}});
    phantom.execute(feed(in_base, 0));
    base += phantom.sent().in_layers;
    phantom.execute(feed(in_shift, 1));
    both += phantom.sent().in_layers;
  }
  const auto all = static_cast<double>(config.layers * ranks * tokens);
  return {static_cast<double>(base) / all, static_cast<double>(both - base) / all};
}

}  // namespace pecia::execute
