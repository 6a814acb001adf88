// SPDX-License-Identifier: Apache-2.0
#include "lib/measure/described_cluster.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "lib/cluster/link_measure.hpp"
#include "lib/cluster/machine.hpp"
#include "lib/core/error.hpp"
#include "lib/measure/calibration.hpp"
#include "lib/measure/peak.hpp"
#include "lib/measure/product_rates.hpp"

namespace pecia::measure {
namespace {

using machines::Axis;
using machines::Curve;

constexpr double least_share = 0.001;

double share_of(double rate, double peak) {
  return std::clamp(rate / peak, least_share, 1.0);
}

/// Three digits: no more are known, and files stay readable.
double rounded(double value) {
  return std::stod(fmt::format("{:.3g}", value));
}

class Describer {
 public:
  Describer(comm::Communicator& world, const context::Compute& compute)
      : world_(world), compute_(compute) {}

  /// Seconds of a call while all ranks call it: the median of a few stretches of about 10 ms.
  double seconds_of(const std::function<void()>& call) {
    constexpr double wanted_s = 0.01;
    constexpr int stretches = 3;
    const auto run = [&](int64_t calls) {
      return seconds_of_all(world_, [&] {
        for (int64_t i = 0; i < calls; ++i) call();
        compute_.stream.synchronize();
      });
    };
    run(1);  // wakes threads and touches pages
    const int64_t calls = 1 + static_cast<int64_t>(wanted_s / run(1));
    std::vector<double> seconds;
    for (int i = 0; i < stretches; ++i) seconds.push_back(run(calls));
    std::ranges::sort(seconds);
    return seconds[stretches / 2] / static_cast<double>(calls);
  }

  /// What an op takes that has nothing to do.
  double op_seconds() {
    constexpr int64_t width = 64;
    device::Buffer buffers[] = {compute_.buffer(), compute_.buffer()};
    const TensorView x = zeroed(buffers[0], 1, width), y = zeroed(buffers[1], 1, width);
    return seconds_of([&] { compute_.backend.add({x, y}, compute_.stream); });
  }

  /// B/s of an op that reads two rows for each that it writes, beside what it takes anyway.
  double copy_bandwidth(double op_s) {
    constexpr int64_t rows = 2048, width = 2048;  // 32 MiB, more than most caches
    device::Buffer buffers[] = {compute_.buffer(), compute_.buffer()};
    const TensorView x = zeroed(buffers[0], rows, width), y = zeroed(buffers[1], rows, width);
    const double seconds = seconds_of([&] { compute_.backend.add({x, y}, compute_.stream); });
    return 3.0 * rows * width * sizeof(float) / std::max(seconds - op_s, 0.1 * seconds);
  }

  /// Shares of the peak by rows of products.
  machines::Efficiency products(double peak, double op_s) {
    constexpr int64_t width = 1024;
    Curve curve{Axis::rows, {}};
    for (const int64_t rows : {4, 16, 64, 256, 1024}) {
      RandomProduct product(compute_, rows, width, width, DType::bf16);
      const double seconds = seconds_of([&] { product.run(1); });
      const double flops = 2.0 * static_cast<double>(rows) * width * width;
      curve.points.push_back(
          {static_cast<double>(rows),
           rounded(share_of(flops / std::max(seconds - op_s, 0.1 * seconds), peak))});
    }
    return {1, {curve}};
  }

  /// Shares of the peak by rows of queries, times those by keys relative to the most.
  machines::Efficiency attention(double peak, DType keys_type) {
    constexpr int64_t many_rows = 256, many_keys = 1024;
    const AttentionShape shape{8, 2, 64, keys_type};
    const auto rate = [&](int64_t rows, int64_t keys) {
      return measure_attention_flops(world_, compute_, shape, rows, keys);
    };
    Curve rows{Axis::rows, {}}, depth{Axis::depth, {}};
    for (const int64_t count : {1, 4, 16, 64, 256})
      rows.points.push_back(
          {static_cast<double>(count), rounded(share_of(rate(count, many_keys), peak))});
    const double most = rate(many_rows, many_keys);
    for (const int64_t count : {16, 64, 256, 1024})
      depth.points.push_back(
          {static_cast<double>(count), rounded(share_of(rate(many_rows, count), most))});
    return {1, {rows, depth}};
  }

 private:
  TensorView zeroed(device::Buffer& buffer, int64_t rows, int64_t width) {
    const TensorView tensor = buffer.tensor(DType::fp32, {rows, width});
    compute_.device.zero(tensor.data(), rows * width * size_of(DType::fp32), compute_.stream);
    return tensor;
  }

  comm::Communicator& world_;
  context::Compute compute_;
};

/// FLOP/s and B/s of one rank, while all do the same.
std::pair<double, double> peaks(comm::Communicator& world, const context::Compute& compute,
                                DType weights, int64_t cache_bytes) {
  const report::PeakReport peak = measure_peak(world, compute, weights, cache_bytes);
  return {peak.start.best / world.size(), peak.bandwidth.best / world.size()};
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

  const auto [flops, bandwidth] = peaks(world, compute, DType::fp32, cache_bytes);
  const DType operands = compute.backend.operand_type(DType::bf16);
  cluster.rank = {
      fmt::format("{}, {} threads", cluster::cpu_facts().model, compute.stream.num_threads()),
      false,
      {{DType::fp32, rounded(flops)}},
      rounded(1e-9 * bandwidth),
      rounded(static_cast<double>(memory_bytes) / 0x1p30 / cluster.ranks_per_server)};
  double peak = flops;
  if (operands != DType::fp32) {
    peak = peaks(world, compute, operands, cache_bytes).first;
    cluster.rank.flops[operands] = rounded(peak);
  }
  Describer describer(world, compute);
  const double op_s = describer.op_seconds();
  cluster.overhead = {.op_us = rounded(1e6 * op_s), .step_us = 0};
  cluster.efficiency.gemm = describer.products(peak, op_s);
  cluster.efficiency.attention = describer.attention(peak, operands);
  cluster.efficiency.copy = {rounded(share_of(describer.copy_bandwidth(op_s), bandwidth))};

  const parallel::RingRates rates = measure_rates(world, world, compute, {8, 2, 64, DType::fp32});
  cluster.links.fill({rounded(1e-9 * rates.bandwidth), 0, false});
  for (const auto& [pair, latency_us, gb_s] : cluster::measure_pairs(
           world, cluster::representative_pairs(places, 1), cluster::MeasureOptions{})) {
    const auto level = static_cast<size_t>(link_level(places[pair.from], places[pair.to]));
    for (size_t wider = level; wider < cluster.links.size(); ++wider)
      cluster.links[wider] = {rounded(gb_s), rounded(latency_us), false};
  }
  const double widest = 1e9 * cluster.links.back().gbs;
  cluster.efficiency.send = {rounded(share_of(rates.bandwidth, widest))};
  cluster.efficiency.collective = {rounded(share_of(rates.all_to_all_bandwidth, widest))};
  return cluster;
}

}  // namespace pecia::measure
