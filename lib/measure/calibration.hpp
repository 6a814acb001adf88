// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How fast this machine attends and multiplies, and how fast its ranks send to each other: what
/// the choices of the ring and of the shift configuration depend on.

#include <spdlog/logger.h>

#include "lib/comm/communicator.hpp"
#include "lib/context/compute.hpp"
#include "lib/model/config.hpp"
#include "lib/parallel/ring_rule.hpp"
#include "lib/parallel/shift_rule.hpp"

namespace pecia::measure {

struct AttentionShape {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  DType kv_dtype = DType::fp32;
};

/// FLOP/s of attention, B/s round `ring` and from each of its ranks to all others, of
/// the slowest rank of `world` while all ranks do the same; some 120 ms. Every rank gets the same.
/// Collective over `world`, which is one or several rings.
parallel::RingRates measure_rates(comm::Communicator& world, comm::Communicator& ring,
                                  const context::Compute& compute, const AttentionShape& shape);

/// What rates depend on: device, CPU, instructions, threads, ranks, hosts, ring, shape, build. Rank
/// 0's CPU stands for all. Collective over `world`.
std::string rates_key(comm::Communicator& world, const comm::Communicator& ring,
                      const context::Compute& compute, const AttentionShape& shape);

/// The rates kept under this key (rates_cache.hpp), else measured now and kept. Rank 0 alone reads
/// and writes the file, and says in a line of `log` when it could not. Collective over `world`;
/// every rank gets the same.
parallel::RingRates calibrate(comm::Communicator& world, comm::Communicator& ring,
                              const context::Compute& compute, const AttentionShape& shape,
                              spdlog::logger& log);

/// What the rule of the shift configuration counts with: the model, and rates of the slowest rank
/// of `world` while all ranks do the same; some 100 ms. Every rank gets the same. Collective over
/// `world`, which is one or several SP × TP blocks; `block` is the rank's own.
parallel::ShiftInputs measure_shift_inputs(const model::ModelConfig& config, DType weights, int sp,
                                           int tp, comm::Communicator& world,
                                           comm::Communicator& block,
                                           const context::Compute& compute);

}  // namespace pecia::measure
