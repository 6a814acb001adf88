// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/phantom_rank.hpp"

#include "lib/model/config/stage.hpp"
#include "lib/ranks/parallel/stages.hpp"

namespace pecia::execute {
namespace {

model::CodeUse codes_of(const model::ModelConfig& config, const PhantomSettings& settings) {
  const Replica::Settings& replica = settings.replica;
  if (!settings.keeps_codes) return {.kept = false};
  return model::codes_kept(config, replica.sp * replica.tp, replica.layout_invariant, replica.ep,
                           settings.gpus);
}

model::ModelConfig stage_of_rank(const model::ModelConfig& config,
                                 const PhantomSettings& settings) {
  if (config.stage.count > 1) return config;
  const int stages = settings.replica.stages;
  return model::stage_of(config, stages,
                         parallel::stage_place(settings.rank, settings.ranks, stages).stage);
}

}  // namespace

PhantomRank::PhantomRank(const model::ModelConfig& config, const PhantomSettings& settings)
    : config_(stage_of_rank(config, settings)),
      watcher_(settings.watcher),
      device_(settings.device, settings.memory_bytes),
      stream_(device_.make_stream()),
      backend_(kernels::make_phantom_backend(
          [this](const kernels::OpWork& op) {
            work_.rows += op.rows;
            work_.flops += op.flops;
            work_.bytes_read += op.bytes_read;
            work_.bytes_written += op.bytes_written;
            if (watcher_ != nullptr) watcher_->computed(op);
          },
          settings.traits)),
      ranks_(comm::make_phantom_communicator(settings.rank, settings.ranks, this)),
      weights_(config_, settings.weights,
               Replica::weight_cut(settings.rank, settings.replica.sp, settings.replica.tp,
                                   settings.replica.ep),
               device_, settings.quantize, codes_of(config_, settings), !settings.gpus),
      replica_(*ranks_, config_, weights_, {device_, *stream_, *backend_, recorder_},
               settings.replica) {
  recorder_.publish_to(activity_);
  if (watcher_ != nullptr) device_.on_copy([this](int64_t bytes) { watcher_->copied(bytes); });
}

int64_t PhantomRank::started(const comm::PhantomStart& start) {
  for (const comm::PhantomMessage& message : start.sends)
    (recorder_.layer() < 0 ? sent_.outside : sent_.in_layers) += message.bytes;
  return watcher_ != nullptr ? watcher_->started(start) : starts_++;
}

void PhantomRank::waited(int64_t number) {
  if (watcher_ != nullptr) watcher_->waited(number);
}

}  // namespace pecia::execute
