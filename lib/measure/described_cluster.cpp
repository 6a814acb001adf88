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
      : timer_(world, compute, cache_bytes), heads_(heads), has_others_(world.size() > 1) {}

  /// Seconds of an op that has nothing to do.
  double smallest_op() { return elementwise_s(3 * 64 * size_of(DType::fp32)); }

  std::vector<RatesBySize> products() {
    const auto rate = [&](int64_t r, int64_t d, int64_t w) {
      const double seconds = best({'p', r, d, w}, [&] { return timer_.product(r, d, w); });
      return 2.0 * static_cast<double>(r * d * w) / beside_op(seconds);
    };
    return {{curve(Axis::rows, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
                   [&](int64_t r) { return rate(r, usual_depth, usual_width); }),
             usual_rows},
            {curve(Axis::depth, {64, 128, 256, 512, 1024, 2048},
                   [&](int64_t d) { return rate(usual_rows, d, usual_width); }),
             usual_depth},
            {curve(Axis::width, {32, 64, 128, 256, 512, 1024, 2048},
                   [&](int64_t w) { return rate(usual_rows, usual_depth, w); }),
             usual_width}};
  }

  /// By rows, for some depths. Queries see all tokens before the new ones and half of these, as in a
  /// prompt; so few keys go with few rows.
  std::vector<machines::Slice> attention() {
    const auto rate = [&](int64_t rows, int64_t depth) {
      const int64_t cached = depth - (rows + 1) / 2;
      const double seconds =
          best({'a', rows, depth}, [&] { return timer_.attention(heads_, rows, cached); });
      const double pairs = static_cast<double>(rows) * (cached + 0.5 * (rows + 1.0));
      return 4 * pairs * static_cast<double>(heads_.num_heads * heads_.head_dim) /
             beside_op(seconds);
    };
    std::vector<machines::Slice> slices;
    for (const int64_t depth : {32, 128, 512, 2048, 8192}) {
      Curve by_rows{Axis::rows, {}};
      for (const int64_t rows : {1, 4, 16, 64, 256, 1024})
        if (rows < 2 * depth) by_rows.points.push_back({1.0 * rows, rate(rows, depth)});
      slices.push_back({1.0 * depth, std::move(by_rows)});
    }
    return slices;
  }

  /// B/s of keys and values that no cache holds, by their bytes: one query of as many heads as theirs
  /// computes little.
  RatesBySize stream() {
    const AttentionShape heads{4, 4, 64, heads_.kv_dtype};
    const int64_t per_key = 2 * heads.num_kv_heads * heads.head_dim * size_of(heads.kv_dtype);
    return {curve(Axis::bytes, {64 << 10, 512 << 10, 4 << 20, 12 << 20}, [&](int64_t bytes) {
      const double seconds =
          best({'s', bytes}, [&] { return timer_.attention(heads, 1, bytes / per_key - 1); });
      return static_cast<double>(bytes) / beside_op(seconds);
    })};
  }

  /// B/s of products of one row, by the bytes of their weights.
  RatesBySize weights() {
    const auto rate = [&](int64_t bytes) {
      const int64_t width = bytes / (usual_depth * size_of(DType::bf16));
      const double seconds =
          best({'p', 1, usual_depth, width}, [&] { return timer_.product(1, usual_depth, width); });
      return static_cast<double>(bytes) / beside_op(seconds);
    };
    return {curve(Axis::bytes, {128 << 10, 512 << 10, usual_weights_bytes, 8 << 20}, rate),
            usual_weights_bytes};
  }

  /// Shares of the rate of dense weights, by bytes of a row of a slice of them.
  RatesBySize pieces() {
    constexpr int64_t parts = 2, bytes = 2 << 20;
    return {curve(Axis::bytes, {256, 512, 1024, 2048, 4096}, [&](int64_t piece) {
      const int64_t depth = piece / size_of(DType::bf16), width = bytes / piece;
      const double dense_s =
          best({'p', 1, depth, width}, [&] { return timer_.product(1, depth, width); });
      const double slice_s =
          best({'c', depth, width}, [&] { return timer_.product_of_slice(depth, width, parts); });
      return beside_op(dense_s) / beside_op(slice_s);
    })};
  }

  /// Seconds of one exchange of a sum.
  double exchange_s() {
    exchanges_s_.push_back(timer_.all_reduce() / 2);
    return mean_of_middle_half(exchanges_s_);
  }

  /// Spread over the rounds, as what others do to this machine changes within seconds.
  struct Shared {
    double lasting = 1;  ///< share of the best rate that all have in the mean
    double alone = 1;    ///< times the rate while the others wait
  };
  Shared products_of(int64_t rows) {
    Stretches& all = stretches_[rows];
    all.add(timer_.stretches(rows, pairs_of_round));
    const double best_s = best({'p', rows, usual_depth, usual_width},
                               [&] { return timer_.product(rows, usual_depth, usual_width); });
    return {measure::lasting_share(all, best_s), has_others_ ? gain_alone(all) : 1};
  }
  Shared computing() { return products_of(usual_rows); }
  Shared waiting_for_memory() { return products_of(1); }

  /// B/s.
  RatesBySize elementwise() {
    return {
        curve(Axis::bytes, {48 << 10, 384 << 10, 3 << 20, 24 << 20, 96 << 20}, [&](int64_t bytes) {
          return static_cast<double>(bytes) / beside_op(elementwise_s(bytes));
        })};
  }

 private:
  /// Sizes of products along the axes that are not measured just now.
  static constexpr int64_t usual_rows = 256, usual_depth = 1024, usual_width = 1024;
  static constexpr int64_t usual_weights_bytes = usual_depth * usual_width * size_of(DType::bf16);
  static constexpr int pairs_of_round = 50;
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
  bool has_others_;
  std::vector<double> exchanges_s_;
  std::map<Key, double> found_;
  std::map<int64_t, Stretches> stretches_;  ///< by rows
  double smallest_s_ = smallest_op();
};

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
void describe_rank(comm::Communicator& world, const context::Compute& compute, int64_t cache_bytes,
                   int rounds, machines::Cluster& cluster) {
  const DType operands = compute.backend.operand_type(DType::bf16);
  Describer describer(world, compute, cache_bytes, {8, 2, 64, operands});
  std::vector<RatesBySize> products;
  std::vector<machines::Slice> attention;
  RatesBySize copies, stream, weights, pieces;
  double op_s = 0, exchange_s = 0;
  Describer::Shared computing, memory_waits;
  for (int round = 0; round < rounds; ++round) {
    op_s = describer.smallest_op();
    products = describer.products();
    attention = describer.attention();
    copies = describer.elementwise();
    stream = describer.stream();
    weights = describer.weights();
    pieces = describer.pieces();
    exchange_s = describer.exchange_s();
    computing = describer.computing();
    memory_waits = describer.waiting_for_memory();
  }
  const auto [fp32_flops, bandwidth] = peaks(world, compute, DType::fp32, cache_bytes);
  cluster.rank.flops[DType::fp32] = rounded(fp32_flops);
  const double lasting = rounded(computing.lasting), memory_lasts = rounded(memory_waits.lasting);
  scale_waiting(products[0].curve,
                std::min(1.0, memory_lasts / lasting) * level_of_waiting(products, weights));
  double& flops = cluster.rank.flops[operands];
  if (operands != DType::fp32) flops = peaks(world, compute, operands, cache_bytes).first;
  // On a shared machine the peak may have been measured at a worse moment.
  flops = std::max(flops, products[0].most());
  for (const machines::Slice& slice : attention)
    flops = std::max(flops, RatesBySize{slice.rows}.most());
  flops = rounded(flops);
  const double memory = std::max({bandwidth, copies.most(), stream.most()});
  cluster.rank.memory_gbs = rounded(1e-9 * memory);
  cluster.rank.alone = rounded(memory_waits.alone);
  cluster.rank.alone_flops = rounded(computing.alone);
  cluster.efficiency.gemm = shares_of(products, flops, lasting);
  for (machines::Slice& slice : attention)
    for (auto& [rows, share] : slice.rows.points) share = share_of(share, flops);
  cluster.efficiency.attention = {lasting, {}, std::move(attention)};
  cluster.efficiency.copy = shares_of({copies}, memory, memory_lasts);
  cluster.efficiency.stream = shares_of({stream}, memory, memory_lasts);
  cluster.efficiency.weights = shares_of({weights}, weights.most(), 1);
  for (auto& [bytes, share] : pieces.curve.points) share = share_of(share, 1);
  cluster.efficiency.pieces = {1, {std::move(pieces.curve)}};
  cluster.overhead = {.op_us = rounded(1e6 * op_s), .step_us = 0, .exchange_us = 1e6 * exchange_s};
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
                                   int64_t memory_bytes, int rounds) {
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
  describe_rank(world, compute, cache_bytes, rounds, cluster);

  const parallel::RingRates rates = measure_rates(world, world, compute, {8, 2, 64, DType::fp32});
  cluster.links.fill({rounded(1e-9 * rates.bandwidth), 0, false});
  const auto pairs = cluster::representative_pairs(places, 1);
  for (const auto& [pair, latency_us, gb_s] : best_of_pairs(world, pairs)) {
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
