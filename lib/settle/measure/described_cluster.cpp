// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/described_cluster.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/link_measure.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/settle/measure/calibration.hpp"
#include "lib/settle/measure/first_touch.hpp"
#include "lib/settle/measure/op_rates.hpp"
#include "lib/settle/measure/peak.hpp"
#include "lib/settle/measure/tensor_pairs.hpp"

namespace pecia::measure {
namespace {

using cluster_files::Curve;

/// FLOP/s and B/s of one rank, while all do the same.
std::pair<double, double> peaks(comm::Communicator& world, const attention::Compute& compute,
                                DType weights, int64_t cache_bytes) {
  const report::PeakReport peak = measure_peak(world, compute, weights, cache_bytes);
  return {peak.start.best / world.size(), peak.bandwidth.best / world.size()};
}

/// Whether tensor cores multiply fp8.
bool multiplies_fp8(const device::DeviceInfo& device) {
  constexpr int least_compute_capability = 89;
  return device.compute_capability >= least_compute_capability;
}

/// Scales the rates by rows of products that wait for memory: they read more than half of what the
/// product with the fewest rows reads in the same time.
void scale_waiting(Curve& by_rows, double factor) {
  const auto [fewest, rate] = by_rows.points.front();
  for (auto& [rows, share] : by_rows.points)
    if (2 * share / rows > rate / fewest) share *= factor;
}

/// What shares_of makes of rates of products at the reference sizes is relative to the best depth and
/// width. Products that wait for memory go by rows and the bytes of their weights instead.
double level_of_waiting(const std::vector<RatesBySize>& products, const RatesBySize& weights) {
  double level = weights.most() / weights.at_reference();
  for (size_t i = 1; i < products.size(); ++i)
    level *= products[i].at_reference() / products[i].most();
  return level;
}

/// Describes what each rank does alone, into `rank`, `efficiency` and `overhead`.
void describe_rank(comm::Communicator& world, const attention::Compute& compute,
                   const OpSizes& sizes, int rounds, cluster_files::Cluster& cluster) {
  const bool on_gpu = compute.device.info().is_gpu();
  const DType operands = compute.backend.operand_type(DType::bf16);
  // First, as they take memory of their own.
  const auto [fp32_flops, bandwidth] = peaks(world, compute, DType::fp32, sizes.cache_bytes);
  double flops = fp32_flops, fp8_flops = 0;
  if (operands != DType::fp32) flops = peaks(world, compute, operands, sizes.cache_bytes).first;
  if (multiplies_fp8(compute.device.info()))
    fp8_flops = peaks(world, compute, DType::fp8, sizes.cache_bytes).first;
  OpRates rates(world, compute, sizes);
  std::vector<RatesBySize> products;
  std::vector<cluster_files::Slice> attention;
  RatesBySize copies, stream, weights, pieces;
  double op_s = 0, exchange_s = 0, recurrence = 0, recurrent_row_s = 0;
  OpRates::Shared computing, memory_waits;
  for (int round = 0; round < rounds; ++round) {
    op_s = on_gpu ? rates.smallest_op_in_step() : rates.smallest_op();
    products = rates.products();
    attention = rates.attention();
    copies = rates.elementwise();
    stream = rates.stream();
    recurrence = rates.recurrence();
    recurrent_row_s = rates.recurrent_row_s();
    weights = rates.weights();
    if (on_gpu) continue;
    pieces = rates.pieces();
    exchange_s = rates.exchange_s();
    computing = rates.computing();
    memory_waits = rates.waiting_for_memory();
  }
  cluster.rank.flops[DType::fp32] = rounded(fp32_flops);
  const double lasting = rounded(computing.lasting), memory_lasts = rounded(memory_waits.lasting);
  scale_waiting(products[0].curve,
                std::min(1.0, memory_lasts / lasting) * level_of_waiting(products, weights));
  const double fp8_gain = fp8_flops / flops;
  // On a shared machine the peak may have been measured at a worse moment.
  flops = std::max(flops, products[0].most());
  for (const cluster_files::Slice& slice : attention)
    flops = std::max(flops, RatesBySize{slice.rows}.most());
  flops = cluster.rank.flops[operands] = rounded(flops);
  if (fp8_flops > 0) cluster.rank.flops[DType::fp8] = rounded(fp8_gain * flops);
  const double memory = std::max({bandwidth, copies.most(), stream.most()});
  cluster.rank.memory_gbs = rounded(1e-9 * memory);
  cluster.rank.alone = rounded(memory_waits.alone);
  cluster.rank.alone_flops = rounded(computing.alone);
  cluster.efficiency.gemm = shares_of(products, flops, lasting);
  for (cluster_files::Slice& slice : attention)
    for (auto& [rows, share] : slice.rows.points) share = share_of(share, flops);
  cluster.efficiency.attention = {lasting, {}, std::move(attention)};
  cluster.efficiency.recurrence = {share_of(recurrence, cluster.rank.flops[DType::fp32])};
  cluster.efficiency.copy = shares_of({copies}, memory, memory_lasts);
  cluster.efficiency.stream = shares_of({stream}, memory, memory_lasts);
  cluster.efficiency.weights = shares_of({weights}, weights.most(), 1);
  for (auto& [bytes, share] : pieces.curve.points) share = share_of(share, 1);
  if (!on_gpu) cluster.efficiency.pieces = {1, {std::move(pieces.curve)}};
  const double step_s = on_gpu ? std::max(0.0, rates.op_and_wait() - op_s) : 0;
  cluster.overhead = {rounded(1e6 * op_s), rounded(1e6 * step_s), 1e6 * exchange_s,
                      rounded(1e6 * recurrent_row_s)};
  if (on_gpu) return;
  // Last, while what was touched before is still held.
  const double most_bytes = std::min(0x1p30, 0x1p30 * cluster.rank.memory_gib / 16);
  cluster.rank.first_touch_gbs =
      rounded(1e-9 * first_touch_rate(world, compute, static_cast<int64_t>(most_bytes)));
}

/// The best of some measurements, since a rank may lose its core during one.
std::vector<cluster::PairFigures> best_of_pairs(comm::Communicator& world,
                                                const std::vector<cluster::RankPair>& pairs) {
  constexpr int times = 5;
  auto best = cluster::measure_pairs(world, pairs, {});
  for (int time = 1; time < times; ++time) {
    const auto again = cluster::measure_pairs(world, pairs, {});
    for (size_t i = 0; i < best.size(); ++i) {
      best[i].latency_us = std::min(best[i].latency_us, again[i].latency_us);
      best[i].bandwidth_gb_s = std::max(best[i].bandwidth_gb_s, again[i].bandwidth_gb_s);
    }
  }
  return best;
}

}  // namespace

cluster_files::Cluster describe_cluster(comm::Communicator& world, comm::Communicator& tensors,
                                        const std::vector<comm::RackServerGpu>& places,
                                        const attention::Compute& compute, const OpSizes& sizes,
                                        int64_t host_bytes, int rounds) {
  const bool on_gpu = compute.device.info().is_gpu();
  cluster_files::Cluster cluster;
  const std::vector<int> servers = comm::server_of_rank(places), racks = comm::rack_of_rank(places);
  cluster.ranks_per_server = static_cast<int>(std::ranges::count(servers, servers.front()));
  std::map<int, int> ranks_of_rack;
  for (const int rack : racks) ++ranks_of_rack[rack];
  for (const auto& [rack, ranks] : ranks_of_rack)
    cluster.servers_per_rack = std::max(cluster.servers_per_rack, ranks / cluster.ranks_per_server);

  cluster.rank.gpu = on_gpu;
  cluster.rank.name = on_gpu ? compute.device.info().name
                             : fmt::format("{}, {} threads", cluster::cpu_facts().model,
                                           compute.stream.num_threads());
  const int64_t bytes = on_gpu ? -world.all_reduce_max(-compute.device.memory().total_bytes)
                               : host_bytes / cluster.ranks_per_server;
  cluster.rank.memory_gib = rounded(static_cast<double>(bytes) / 0x1p30);
  describe_rank(world, compute, sizes, rounds, cluster);
  if (on_gpu) cluster.overhead.exchange_us = 1e6 * exchange_seconds(world, tensors, compute);

  AttentionShape heads = sizes.stream;
  if (!on_gpu) heads = {8, 2, 64, DType::fp32};
  const parallel::RingRates rates = measure_rates(world, tensors, compute, heads);
  cluster.links.fill({rounded(1e-9 * rates.bandwidth), 0, false});
  const auto pairs = cluster::representative_pairs(places, 1);
  const auto figures =
      on_gpu ? measure_tensor_pairs(world, tensors, compute, pairs) : best_of_pairs(world, pairs);
  for (const auto& [pair, latency_us, gb_s] : figures) {
    const auto level = static_cast<size_t>(link_level(places[pair.from], places[pair.to]));
    for (size_t wider = level; wider < cluster.links.size(); ++wider)
      cluster.links[wider] = {rounded(gb_s), rounded(latency_us), false};
  }
  double& exchange_us = cluster.overhead.exchange_us;  // with a message's time up to here
  exchange_us = rounded(std::max(0.0, exchange_us - cluster.links.back().us));
  const double widest = 1e9 * cluster.links.back().gbs;
  cluster.efficiency.send = {share_of(rates.bandwidth, widest)};
  cluster.efficiency.collective = {share_of(rates.all_to_all_bandwidth, widest)};
  return cluster;
}

}  // namespace pecia::measure
