// SPDX-License-Identifier: Apache-2.0
#include "lib/measure/described_cluster.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lib/cluster/link_measure.hpp"
#include "lib/cluster/machine.hpp"
#include "lib/core/error.hpp"
#include "lib/measure/calibration.hpp"
#include "lib/measure/op_timer.hpp"
#include "lib/measure/peak.hpp"
#include "lib/measure/rates_by_size.hpp"

namespace pecia::measure {
namespace {

using machines::Axis;
using machines::Curve;

/// FLOP/s and B/s of one rank, while all do the same.
std::pair<double, double> peaks(comm::Communicator& world, const context::Compute& compute,
                                DType weights, int64_t cache_bytes) {
  const report::PeakReport peak = measure_peak(world, compute, weights, cache_bytes);
  return {peak.start.best / world.size(), peak.bandwidth.best / world.size()};
}

/// What ops take on each rank while all ranks do the same. Each call measures again and returns the
/// best of all it has found so far: neighbours may take a part of the cores at any moment, and
/// curves of one moment each would have their shape.
class Describer {
 public:
  Describer(comm::Communicator& world, const context::Compute& compute, int64_t cache_bytes,
            const AttentionShape& heads)
      : timer_(world, compute, cache_bytes), heads_(heads) {}

  /// Seconds of an op that has nothing to do.
  double smallest_op() { return elementwise_s(3 * 64 * size_of(DType::fp32)); }

  double lasting_share() const { return timer_.lasting_share(); }

  std::vector<RatesBySize> products() {
    constexpr int64_t rows = 256, depth = 512, width = 512;
    const auto rate = [&](int64_t r, int64_t d, int64_t w) {
      const double seconds = best({'p', r, d, w}, [&] { return timer_.product(r, d, w); });
      return 2.0 * static_cast<double>(r * d * w) / beside_op(seconds);
    };
    return {{curve(Axis::rows, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
                   [&](int64_t r) { return rate(r, depth, width); }),
             rows},
            {curve(Axis::depth, {64, 128, 256, 512, 1024, 2048},
                   [&](int64_t d) { return rate(rows, d, width); }),
             depth},
            {curve(Axis::width, {32, 64, 128, 256, 512, 1024, 2048},
                   [&](int64_t w) { return rate(rows, depth, w); }),
             width}};
  }

  /// Queries see all tokens before the new ones and half of these, as in a prompt; so few keys go
  /// with few rows.
  std::vector<RatesBySize> attention() {
    constexpr int64_t rows = 16, depth = 1024;
    const auto rate = [&](int64_t r, int64_t d) {
      const int64_t cached = d - (r + 1) / 2;
      const double seconds = best({'a', r, d}, [&] { return timer_.attention(heads_, r, cached); });
      const double pairs = static_cast<double>(r) * (cached + 0.5 * (r + 1.0));
      return 4 * pairs * static_cast<double>(heads_.num_heads * heads_.head_dim) /
             beside_op(seconds);
    };
    const RatesBySize by_rows{
        curve(Axis::rows, {1, 2, 4, 8, 16, 64, 256}, [&](int64_t r) { return rate(r, depth); }),
        rows};
    return {by_rows,
            {curve(Axis::depth, {8, 32, 128, 512, 1024, 4096, 8192},
                   [&](int64_t d) {
                     const int64_t r = std::min(rows, 2 * d - 1);
                     return rate(r, d) * by_rows.at_reference() /
                            by_rows.curve.at(static_cast<double>(r));
                   }),
             depth}};
  }

  /// B/s.
  RatesBySize elementwise() {
    return {
        curve(Axis::bytes, {48 << 10, 384 << 10, 3 << 20, 24 << 20, 96 << 20}, [&](int64_t bytes) {
          return static_cast<double>(bytes) / beside_op(elementwise_s(bytes));
        })};
  }

 private:
  using Key = std::vector<int64_t>;

  double best(const Key& key, const std::function<double()>& measure) {
    double& found = found_.try_emplace(key, std::numeric_limits<double>::infinity()).first->second;
    return found = std::min(found, measure());
  }
  double elementwise_s(int64_t bytes) {
    return best({'e', bytes}, [&] { return timer_.elementwise(bytes); });
  }
  double beside_op(double seconds) { return std::max(seconds - smallest_s_, 0.1 * seconds); }

  static Curve curve(Axis axis, std::initializer_list<int64_t> sizes,
                     const std::function<double(int64_t size)>& rate) {
    Curve curve{axis, {}};
    for (const int64_t size : sizes)
      curve.points.push_back({static_cast<double>(size), rate(size)});
    return curve;
  }

  OpTimer timer_;
  AttentionShape heads_;
  std::map<Key, double> found_;
  double smallest_s_ = smallest_op();
};

/// Describes what each rank does alone, into `rank`, `efficiency` and `overhead`.
void describe_rank(comm::Communicator& world, const context::Compute& compute, int64_t cache_bytes,
                   machines::Cluster& cluster) {
  constexpr int rounds = 4;
  const DType operands = compute.backend.operand_type(DType::bf16);
  Describer describer(world, compute, cache_bytes, {4, 2, 64, operands});
  std::vector<RatesBySize> products, attention;
  RatesBySize copies;
  double op_s = 0;
  for (int round = 0; round < rounds; ++round) {
    op_s = describer.smallest_op();
    products = describer.products();
    attention = describer.attention();
    copies = describer.elementwise();
  }
  const auto [fp32_flops, bandwidth] = peaks(world, compute, DType::fp32, cache_bytes);
  cluster.rank.flops[DType::fp32] = rounded(fp32_flops);
  const double lasting = rounded(describer.lasting_share());
  double& flops = cluster.rank.flops[operands];
  if (operands != DType::fp32) flops = peaks(world, compute, operands, cache_bytes).first;
  // On a shared machine the peak may have been measured at a worse moment.
  for (const RatesBySize* rates : {&products[0], &attention[0]})
    flops = std::max(flops, rates->most());
  flops = rounded(flops);
  const double memory = std::max(bandwidth, copies.most());
  cluster.rank.memory_gbs = rounded(1e-9 * memory);
  cluster.efficiency.gemm = shares_of(products, flops, lasting);
  cluster.efficiency.attention = shares_of(attention, flops, lasting);
  cluster.efficiency.copy = shares_of({copies}, memory, lasting);
  cluster.overhead = {.op_us = rounded(1e6 * op_s), .step_us = 0};
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

machines::Cluster describe_cluster(comm::Communicator& world,
                                   const std::vector<comm::RackServerGpu>& places,
                                   const context::Compute& compute, int64_t cache_bytes,
                                   int64_t memory_bytes) {
  if (compute.device.info().is_gpu())
    fail<Unsupported>("clusters of GPUs are not measured in this version; write the file by hand");
  machines::Cluster cluster;
  const std::vector<int> servers = comm::server_of_rank(places), racks = comm::rack_of_rank(places);
  cluster.ranks_per_server = static_cast<int>(std::ranges::count(servers, servers.front()));
  std::map<int, int> ranks_of_rack;
  for (const int rack : racks) ++ranks_of_rack[rack];
  for (const auto& [rack, ranks] : ranks_of_rack)
    cluster.servers_per_rack = std::max(cluster.servers_per_rack, ranks / cluster.ranks_per_server);

  cluster.rank.name =
      fmt::format("{}, {} threads", cluster::cpu_facts().model, compute.stream.num_threads());
  cluster.rank.memory_gib =
      rounded(static_cast<double>(memory_bytes) / 0x1p30 / cluster.ranks_per_server);
  describe_rank(world, compute, cache_bytes, cluster);

  const parallel::RingRates rates = measure_rates(world, world, compute, {8, 2, 64, DType::fp32});
  cluster.links.fill({rounded(1e-9 * rates.bandwidth), 0, false});
  const auto pairs = cluster::representative_pairs(places, 1);
  for (const auto& [pair, latency_us, gb_s] : best_of_pairs(world, pairs)) {
    const auto level = static_cast<size_t>(link_level(places[pair.from], places[pair.to]));
    for (size_t wider = level; wider < cluster.links.size(); ++wider)
      cluster.links[wider] = {rounded(gb_s), rounded(latency_us), false};
  }
  const double widest = 1e9 * cluster.links.back().gbs;
  cluster.efficiency.send = {share_of(rates.bandwidth, widest)};
  cluster.efficiency.collective = {share_of(rates.all_to_all_bandwidth, widest)};
  return cluster;
}

}  // namespace pecia::measure
