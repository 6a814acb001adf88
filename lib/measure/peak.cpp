// SPDX-License-Identifier: Apache-2.0
#include "lib/measure/peak.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/peak_loops.hpp"
#include "lib/measure/product_rates.hpp"
#include "lib/measure/windows.hpp"
#include "lib/report/format.hpp"

namespace pecia::measure {
namespace {

using kernels::cpu::PeakLoop;

/// Many short windows are used, as the best one counts: a neighbour may leave the cores alone
/// during a short window.
constexpr int num_windows = 12;
constexpr double window_s = 8e-3;

struct Flops {
  report::MeasuredRate rate;
  std::string instructions;
};

/// Rounds of the loop that last about ten microseconds. Each length is tried several times and the
/// best counts, since a try that loses its core takes longer.
int64_t rounds_of_piece(const PeakLoop& loop) {
  constexpr double least_s = 10e-6;
  const auto best_seconds = [&](int64_t rounds) {
    double best = own_seconds([&] { loop.run(rounds); });
    for (int i = 1; i < 5; ++i) best = std::min(best, own_seconds([&] { loop.run(rounds); }));
    return best;
  };
  int64_t rounds = 64;
  while (best_seconds(rounds) < least_s) rounds *= 2;
  return rounds;
}

/// Each kind of instructions has its part of the windows, because wider ones may run at a lower
/// clock.
Flops cpu_flops(comm::Communicator& world, const device::Stream& stream,
                const std::vector<PeakLoop>& all) {
  std::vector<PeakLoop> loops;
  std::ranges::copy_if(all, std::back_inserter(loops),
                       [](const PeakLoop& loop) { return loop.why_not.empty(); });
  PECIA_CHECK(!loops.empty(), "no instructions multiply what the backend multiplies");
  // Ranks on older CPUs measure their last kind again while others have a better one.
  const auto kinds = static_cast<int>(world.all_reduce_max(std::ssize(loops)));
  Flops best;
  for (int kind = 0; kind < kinds; ++kind) {
    const PeakLoop& loop = loops[std::min<size_t>(kind, loops.size() - 1)];
    const int64_t rounds = rounds_of_piece(loop);
    const auto rates = rates_of_all(world, stream, {num_windows / kinds, window_s}, [&](int) {
      loop.run(rounds);
      return static_cast<double>(rounds) * loop.flops_of_round;
    });
    const report::MeasuredRate rate = report::measured_rate(rates, window_s);
    if (rate.best > best.rate.best) best = {rate, loop.instructions};
  }
  return best;
}

/// Measures large products: a GPU has no loop on registers alone, and they come nearest to it.
Flops gpu_flops(comm::Communicator& world, const context::Compute& compute, DType weights) {
  constexpr int windows = 3, products = 6;
  constexpr int64_t size = 8192;
  RandomProduct product(compute, size, size, size, weights);
  std::vector<double> rates;
  double seconds = 0;
  for (int window = 0; window < windows; ++window) {
    world.barrier();
    seconds = own_seconds([&] { product.run(products); });
    rates.push_back(
        world.all_reduce_sum(products * 2.0 * static_cast<double>(size * size * size) / seconds));
  }
  return {report::measured_rate(rates, seconds),
          fmt::format("product of {} {}", name_of(weights), size)};
}

Flops flops_of(comm::Communicator& world, const context::Compute& compute, DType weights) {
  if (compute.device.info().is_gpu()) return gpu_flops(world, compute, weights);
  return cpu_flops(world, compute.stream,
                   kernels::cpu::peak_loops(compute.backend.operand_type(weights)));
}

/// Memory that a thread reads again and again, going on where it stopped.
struct alignas(64) Slice {
  const std::byte* begin = nullptr;
  int64_t bytes = 0, at = 0;
};

report::MeasuredRate read_bandwidth(comm::Communicator& world, const device::Stream& stream,
                                    int64_t bytes_per_thread) {
  constexpr int64_t piece_bytes = 128 << 10;
  const int threads = stream.num_threads();
  const device::Buffer buffer(threads * bytes_per_thread);
  std::vector<Slice> slices(threads);
  stream.pool().run(
      [&](int thread) {
        std::byte* const begin = buffer.as<std::byte>() + thread * bytes_per_thread;
        std::memset(begin, 1, bytes_per_thread);  // puts pages near the thread that reads them
        slices[thread] = {begin, bytes_per_thread};
      },
      [] {});
  const auto rates = rates_of_all(world, stream, {num_windows / 2, window_s}, [&](int thread) {
    Slice& slice = slices[thread];
    kernels::cpu::read_memory(slice.begin + slice.at, piece_bytes);
    slice.at = (slice.at + piece_bytes) % slice.bytes;
    return static_cast<double>(piece_bytes);
  });
  return report::measured_rate(rates, window_s);
}

report::MeasuredRate copy_bandwidth(comm::Communicator& world, const context::Compute& compute,
                                    int64_t bytes) {
  constexpr int windows = 3, copies = 4;
  const device::Buffer from = compute.buffer(bytes), to = compute.buffer(bytes);
  compute.device.zero(from.data(), bytes, compute.stream);
  compute.device.zero(to.data(), bytes, compute.stream);
  std::vector<double> rates;
  double seconds = 0;
  for (int window = 0; window < windows; ++window) {
    compute.stream.synchronize();
    world.barrier();
    seconds = own_seconds([&] {
      for (int copy = 0; copy < copies; ++copy)
        compute.device.copy(to.data(), from.data(), bytes, compute.stream);
      compute.stream.synchronize();
    });
    rates.push_back(world.all_reduce_sum(copies * 2.0 * static_cast<double>(bytes) / seconds));
  }
  return report::measured_rate(rates, seconds);
}

}  // namespace

report::PeakReport measure_peak(comm::Communicator& world, const context::Compute& compute,
                                DType weights, int64_t cache_bytes) {
  const Flops flops = flops_of(world, compute, weights);
  report::PeakReport peak{.operands = std::string(name_of(weights)),
                          .instructions = flops.instructions,
                          .how = "a large product of random numbers on all ranks",
                          .start = flops.rate,
                          .bandwidth = {},
                          .bandwidth_how = {}};
  if (compute.device.info().is_gpu()) {
    constexpr int64_t bytes = 256 << 20;
    peak.bandwidth = copy_bandwidth(world, compute, bytes);
    peak.bandwidth_how =
        fmt::format("copying {} within the memory of each rank's GPU, read and written",
                    report::format_bytes(bytes));
    return peak;
  }
  const DType operands = compute.backend.operand_type(weights);
  peak.operands = name_of(operands);
  peak.how = "a loop that touches registers alone, on all threads of all ranks";
  for (const PeakLoop& loop : kernels::cpu::peak_loops(operands))
    if (!loop.why_not.empty()) peak.not_measured.emplace_back(loop.instructions, loop.why_not);
  // Twice the caches, so that little of a slice is cached when its thread comes round again.
  constexpr int64_t unit = 1 << 20, least_bytes = 16 * unit;
  const int threads = compute.stream.num_threads();
  const int64_t bytes_per_thread =
      std::max(least_bytes, (2 * cache_bytes / threads + unit - 1) / unit * unit);
  peak.bandwidth = read_bandwidth(world, compute.stream, bytes_per_thread);
  peak.bandwidth_how = fmt::format("reading {} per thread, on all threads of all ranks",
                                   report::format_bytes(bytes_per_thread));
  return peak;
}

void measure_peak_again(comm::Communicator& world, const context::Compute& compute, DType weights,
                        report::PeakReport& peak) {
  if (compute.device.info().is_gpu()) return;
  peak.end = flops_of(world, compute, weights).rate;
}

}  // namespace pecia::measure
