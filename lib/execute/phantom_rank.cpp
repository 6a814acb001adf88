// SPDX-License-Identifier: Apache-2.0
#include "lib/execute/phantom_rank.hpp"

#include <limits>

#include "lib/comm/phantom.hpp"

namespace pecia::execute {

PhantomRank::PhantomRank(const model::ModelConfig& config, const PhantomSettings& settings)
    : device_(settings.device, settings.memory_bytes),
      stream_(device_.make_stream()),
      backend_(kernels::make_phantom_backend(
          [this](const kernels::OpWork& op) {
            work_.rows += op.rows;
            work_.flops += op.flops;
            work_.bytes_read += op.bytes_read;
            work_.bytes_written += op.bytes_written;
          },
          settings.operand_type)),
      replica_(comm::make_phantom_communicator(settings.rank, settings.ranks,
                                               [this](int64_t bytes) {
                                                 (recorder_.layer() < 0 ? sent_.outside
                                                                        : sent_.in_layers) += bytes;
                                               })),
      weights_(config, settings.weights, Worker::weight_cut(settings.rank, settings.worker.tp),
               device_, settings.quantize),
      worker_(*replica_, config, weights_, {device_, *stream_, *backend_, recorder_},
              settings.worker) {}

namespace {

/// Bytes that the rank sends in the layers of a pass of this many tokens.
int64_t sent_in_layers(PhantomRank& rank, parallel::Sharding sharding, int64_t tokens) {
  const int64_t before = rank.sent().in_layers;
  const int64_t sequence = rank.worker().attention().ledger().map().contains(0) ? 1 : 0;
  schedule::Plan plan;
  plan.teams = {parallel::team_of_all(1, parallel::Ring::pass_kv, sharding)};
  plan.added.push_back({sequence, schedule::NewSequence::no_parent, {tokens}, 0});
  plan.items.push_back({{sequence, 0, tokens}, std::vector<int32_t>(tokens), tokens, -1});
  rank.execute(plan);
  return rank.sent().in_layers - before;
}

}  // namespace

parallel::SentPerToken sent_per_token(const model::ModelConfig& config, int sp, int tp) {
  const int ranks = sp * tp;
  const int64_t tokens = 16 * int64_t{ranks};  // the same number of rows on every rank
  double base = 0, shift = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    PhantomRank phantom(config, {.ranks = ranks,
                                 .rank = rank,
                                 .memory_bytes = std::numeric_limits<int64_t>::max(),
                                 .worker = {.sp = sp, .tp = tp, .kv_tokens = 2 * tokens}});
    base += static_cast<double>(sent_in_layers(phantom, parallel::Sharding::base, tokens));
    shift += static_cast<double>(sent_in_layers(phantom, parallel::Sharding::shift, tokens));
  }
  const auto all = static_cast<double>(config.layers * ranks * tokens);
  return {base / all, shift / all};
}

}  // namespace pecia::execute
