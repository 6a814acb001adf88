// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/fitted_times.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "lib/execute/trial_passes.hpp"

namespace pecia::foresight {
namespace {

using schedule::PassKind;
using schedule::PassWork;

execute::TrialPasses ring_passes_of(const Replica& replica) {
  const resources::Resources& resources = replica.resources;
  return {.instances = resources.cp,
          .virtual_ranks = resources.cp,
          .modes = parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                                        resources.shift_threshold),
          .prefill_ring = resources.ring == parallel::Ring::pass_q ? parallel::Ring::pass_q
                                                                   : parallel::Ring::pass_kv};
}

double seconds_of(const Replica& replica, const machines::Cluster& cluster,
                  const schedule::Plan& plan, int64_t kv_tokens) {
  const resources::Resources& resources = replica.resources;
  std::vector<Program> programs;
  for (int rank = 0; rank < replica.ranks(); ++rank)
    programs.push_back(record(replica.config,
                              {{.ranks = replica.ranks(),
                                .rank = rank,
                                .weights = replica.weights,
                                .quantize = resources::quantize_of(replica.job),
                                .memory_bytes = std::numeric_limits<int64_t>::max(),
                                .operand_type = replica.operand_type,
                                .worker = {.sp = resources.sp,
                                           .tp = resources.tp,
                                           .kv_dtype = resources.kv_dtype,
                                           .kv_tokens = kv_tokens,
                                           .places = cluster.places(replica.ranks())}},
                               {},
                               plan},
                              Layers::folded));
  return replay(programs, cluster).seconds;
}

}  // namespace

void fit_times(const Replica& replica, const machines::Cluster& cluster, int64_t longest,
               schedule::TeamTimes& times) {
  const execute::TrialPasses passes = ring_passes_of(replica);
  const int cp = replica.resources.cp;
  const int64_t chunk = std::min(replica.resources.max_batch_tokens, longest);
  const auto slots = [&](int64_t tokens) { return 2 * (passes.slots(tokens) + cp); };
  const std::set<std::pair<int64_t, int64_t>> chunks{
      {std::max<int64_t>(1, chunk / 8), 0}, {chunk, 0}, {chunk, longest - chunk}};
  for (const auto& [tokens, cached] : chunks)
    times.add(cp, PassKind::prefill, schedule::busiest_prefill(cp, cached, tokens, tokens),
              seconds_of(replica, cluster, passes.feed(0, 1, tokens, cached),
                         slots(cached) + slots(tokens)));
  const std::set<int64_t> counts{1, replica.resources.max_sequences};
  // Whole chunks on each instance, so that any of them has room for a step's token.
  const int64_t unit = 2 * int64_t{cp};
  const auto context = [&](int64_t tokens) { return std::max<int64_t>(1, tokens / unit) * unit; };
  const std::set<int64_t> contexts{context(longest / 8), context(longest)};
  for (const int64_t count : counts)
    for (const int64_t tokens : contexts) {
      const PassWork busiest{1, static_cast<double>((count + cp - 1) / cp),
                             static_cast<double>(count * tokens) / cp};
      times.add(
          cp, PassKind::decode, busiest,
          seconds_of(replica, cluster, passes.step(0, count, tokens, true), count * slots(tokens)));
    }
}

}  // namespace pecia::foresight
