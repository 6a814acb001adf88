// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How fast this machine attends and multiplies, and how fast its ranks send to each other. The
/// choices of the ring and of the shift configuration depend on these rates.

#include <spdlog/logger.h>

#include <functional>

#include "lib/model/attention/compute.hpp"
#include "lib/model/config/config.hpp"
#include "lib/model/weights/stored_codes.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/link_costs.hpp"
#include "lib/ranks/parallel/modes.hpp"
#include "lib/ranks/parallel/ring_rule.hpp"
#include "lib/ranks/parallel/shift_rule.hpp"

namespace pecia::measure {

struct AttentionShape {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  DType kv_dtype = DType::fp32;
  int64_t values_in_keys = 0;  ///< attention::KvShape::values_in_keys

  int64_t value_dim() const { return values_in_keys > 0 ? values_in_keys : head_dim; }
};

/// The heads of a rank.
AttentionShape attention_shape(const model::ModelConfig& config, const parallel::Degrees& degrees,
                               DType kv_dtype);

/// Seconds until every rank of `world` has done its work, when all begin together. This is what a
/// rank gets while all share cores and links. Collective over `world`; every rank gets the same.
double seconds_of_all(comm::Communicator& world, const std::function<void()>& work);

/// FLOP/s of attention on each rank, of calls in which `rows` queries see `keys` keys each; takes
/// about 20 ms. Collective over `world`; every rank gets the same.
double measure_attention_flops(comm::Communicator& world, const attention::Compute& compute,
                               const AttentionShape& shape, int64_t rows, int64_t keys);

/// Measures FLOP/s of attention and B/s round `ring` and from each of its ranks to all others;
/// takes about 120 ms. The rates are those of the slowest rank of `world` while all ranks do the
/// same. Collective over `world`, which is one or several rings; every rank gets the same.
parallel::RingRates measure_rates(comm::Communicator& world, comm::Communicator& ring,
                                  const attention::Compute& compute, const AttentionShape& shape);

/// Seconds of one exchange of a few bytes among the ranks of `group`, until the host of each knows of
/// its end; 0 for one rank. Tensors are where `compute` is. Such groups together make up `world`.
/// Collective over `world`; every rank gets the same.
double exchange_seconds(comm::Communicator& world, comm::Communicator& group,
                        const attention::Compute& compute);

/// Measures the links between the ranks of a replica: from each rank to one of another server, to one
/// of its own, and an exchange more; where racks have several servers each (GroupShape::has_racks),
/// from each rank to one of another server of its rack, and to one of another rack. Takes about
/// 120 ms. `labels` are by rank. Such replicas together make up `world`. Collective over `world`; every
/// rank gets the same.
parallel::LinkCosts measure_link_costs(comm::Communicator& world, comm::Communicator& replica,
                                       const comm::RankLabels& labels,
                                       const attention::Compute& compute);

/// A key of what rates depend on: device, CPU, instructions, threads, ranks, hosts, ring, shape and
/// build. Rank 0's CPU stands for all. Collective over `world`.
std::string rates_key(comm::Communicator& world, const comm::Communicator& ring,
                      const attention::Compute& compute, const AttentionShape& shape);

/// The rates kept under this key (rates_cache.hpp), or else rates measured now, which are then
/// kept. Rank 0 alone reads and writes the file; if it cannot, it says so in a line of `log`.
/// Collective over `world`; every rank gets the same.
parallel::RingRates calibrate(comm::Communicator& world, comm::Communicator& ring,
                              const attention::Compute& compute, const AttentionShape& shape,
                              spdlog::logger& log);

/// Measures what the rule of the shift configuration needs: figures of the model, and rates of the
/// slowest rank of `world` while all ranks do the same; takes about 100 ms. Collective over
/// `world`, which is one or several SP × TP blocks; every rank gets the same. `block` is the rank's
/// own.
parallel::ShiftInputs measure_shift_inputs(const model::ModelConfig& config, DType weights,
                                           const model::CodeUse& codes, int sp, int tp,
                                           parallel::SentPerToken sent, comm::Communicator& world,
                                           comm::Communicator& block,
                                           const attention::Compute& compute);

}  // namespace pecia::measure
