// SPDX-License-Identifier: Apache-2.0
#include "lib/execute/phantom_rank.hpp"

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

}  // namespace pecia::execute
