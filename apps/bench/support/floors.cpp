// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/floors.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <numeric>

#include "apps/bench/support/timing.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/settle/measure/peak.hpp"
#include "lib/settle/measure/product_rates.hpp"

namespace pecia::bench {
namespace {

constexpr int repeats = 5;

double copy_bandwidth(const attention::Compute& compute) {
  constexpr int64_t bytes = int64_t{1} << 30;
  const device::Buffer from = compute.buffer(bytes), to = compute.buffer(bytes);
  compute.device.zero(from.data(), bytes, compute.stream);
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    compute.stream.synchronize();
    const Stopwatch watch;
    compute.device.copy(to.data(), from.data(), bytes, compute.stream);
    compute.stream.synchronize();
    best = std::min(best, watch.seconds());
  }
  return 2 * static_cast<double>(bytes) / best;
}

}  // namespace

double read_bandwidth(const device::Stream& stream) {
  const int64_t count = int64_t{32} << 20;
  const device::Buffer buffer(count * static_cast<int64_t>(sizeof(uint64_t)));
  uint64_t* const data = buffer.as<uint64_t>();
  const auto slices = [&](const auto& body) {  // each thread touches its slice first
    const int64_t threads = stream.num_threads();
    stream.pool().run(
        [&](int thread) { body(count * thread / threads, count * (thread + 1) / threads); }, [] {});
  };
  slices([&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, 1); });
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::atomic<uint64_t> sum = 0;
    const Stopwatch watch;
    slices([&](int64_t begin, int64_t end) {
      sum += std::accumulate(data + begin, data + end, uint64_t{0});
    });
    best = std::min(best, watch.seconds());
    PECIA_CHECK(sum == static_cast<uint64_t>(count), "the sum is {}, expected {}", sum.load(),
                count);
  }
  return static_cast<double>(buffer.bytes()) / best;
}

Floors::Reached Floors::reached(double bytes, double flops_done, double seconds) const {
  const double bytes_s = bytes / read_bandwidth, flops_s = flops_done / flops;
  return {std::max(bytes_s, flops_s) / seconds, bytes_s >= flops_s ? "memory" : "compute"};
}

Floors measure_floors(comm::Communicator& world, const resources::ComputePlace& place,
                      DType weights) {
  report::Recorder recorder;
  const attention::Compute compute{*place.device, *place.stream, *place.backend, recorder};
  Floors mine;
  world.barrier();
  for (int repeat = 0; repeat < repeats; ++repeat)
    mine.flops = std::max(mine.flops, measure::measure_product_flops(compute, weights));
  world.barrier();
  mine.read_bandwidth = place.on_gpu() ? copy_bandwidth(compute) : read_bandwidth(compute.stream);
  constexpr int64_t cache_bytes = 64 << 20;  // only the bandwidth above is used
  return {world.all_reduce_sum(mine.flops), world.all_reduce_sum(mine.read_bandwidth),
          measure::measure_peak(world, compute, weights, cache_bytes)};
}

}  // namespace pecia::bench
