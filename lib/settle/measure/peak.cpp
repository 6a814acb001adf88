// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/peak.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/cpu/peak_loops.hpp"
#include "lib/base/report/format.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/settle/measure/product_rates.hpp"
#include "lib/settle/measure/windows.hpp"

namespace pecia::measure {
namespace {

using kernels::cpu::PeakLoop;

/// Many short windows are used, as the best one counts: a neighbour may leave the cores alone
/// during a short window.
constexpr int num_windows = 12;
constexpr double window_s = 8e-3;
constexpr double most_windows_s = 0.12;  // of all windows of FLOP/s, and of those of B/s

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
    const auto rates = rates_of_all(
        world, stream, {num_windows / kinds, window_s, most_windows_s / kinds}, [&](int) {
          loop.run(rounds);
          return static_cast<double>(rounds) * loop.flops_of_round;
        });
    const report::MeasuredRate rate = report::measured_rate(rates, window_s);
    if (rate.best > best.rate.best) best = {rate, loop.instructions};
  }
  return best;
}

/// Measures large products: a GPU has no loop on registers alone, and they come nearest to it.
Flops gpu_flops(comm::Communicator& world, const attention::Compute& compute, DType weights) {
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

Flops flops_of(comm::Communicator& world, const attention::Compute& compute, DType weights) {
  if (compute.device.info().is_gpu()) return gpu_flops(world, compute, weights);
  return cpu_flops(world, compute.stream,
                   kernels::cpu::peak_loops(compute.backend.operand_type(weights)));
}

/// Memory that a thread reads again and again, going on where it stopped.
struct alignas(64) Slice {
  const std::byte* begin = nullptr;
  int64_t bytes = 0, at = 0;
};

constexpr int64_t slice_unit = 1 << 20, least_slice = 16 * slice_unit;

/// Twice the caches, so that little of a slice is cached when its thread comes round again; less
/// where the host has less free memory. The same for all ranks of a host.
int64_t bytes_of_slice(comm::Communicator& world, int threads, int64_t cache_bytes) {
  const auto host = world.split_by_host();
  const double threads_of_host = host->all_reduce_sum(threads);
  const int64_t free_bytes = cluster::memory_facts().available_bytes / 8;
  const auto share = static_cast<int64_t>(static_cast<double>(free_bytes) / threads_of_host);
  const int64_t wanted =
      std::max(least_slice, (2 * cache_bytes / threads + slice_unit - 1) / slice_unit * slice_unit);
  return std::max(slice_unit, std::min(wanted, share) / slice_unit * slice_unit);
}

/// Touches pages of a thread's slice, which puts them near that thread: until `most_s` is over, but
/// least_slice in any case. Returns the bytes touched.
int64_t touch(std::byte* begin, int64_t bytes, double most_s) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(most_s);
  int64_t touched = 0;
  for (; touched < bytes && (touched < least_slice || Clock::now() < end); touched += slice_unit)
    std::memset(begin + touched, 1, slice_unit);
  return touched;
}

void measure_read_bandwidth(comm::Communicator& world, const device::Stream& stream,
                            int64_t cache_bytes, report::PeakReport& peak) {
  constexpr int64_t piece_bytes = 128 << 10;
  constexpr double most_touch_s = 0.05;
  const int threads = stream.num_threads();
  const int64_t bytes = bytes_of_slice(world, threads, cache_bytes);
  const device::Buffer buffer(threads * bytes);
  std::vector<Slice> slices(threads);
  stream.pool().run(
      [&](int thread) {
        std::byte* const begin = buffer.as<std::byte>() + thread * bytes;
        slices[thread] = {begin, touch(begin, bytes, most_touch_s)};
      },
      [] {});
  const auto rates =
      rates_of_all(world, stream, {num_windows / 2, window_s, most_windows_s / 2}, [&](int thread) {
        Slice& slice = slices[thread];
        kernels::cpu::read_memory(slice.begin + slice.at, piece_bytes);
        slice.at = (slice.at + piece_bytes) % slice.bytes;
        return static_cast<double>(piece_bytes);
      });
  peak.bandwidth = report::measured_rate(rates, window_s);
  int64_t least = bytes;
  for (const Slice& slice : slices) least = std::min(least, slice.bytes);
  least = -world.all_reduce_max(-least);
  const bool in_caches = world.all_reduce_max(least < 2 * cache_bytes / threads) > 0;
  peak.bandwidth_how = fmt::format("reading {} per thread, on all threads of all ranks{}",
                                   report::format_bytes(least),
                                   in_caches ? ", part of which their caches may hold" : "");
}

report::MeasuredRate copy_bandwidth(comm::Communicator& world, const attention::Compute& compute,
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

report::PeakReport measure_peak(comm::Communicator& world, const attention::Compute& compute,
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
  measure_read_bandwidth(world, compute.stream, cache_bytes, peak);
  return peak;
}

void measure_peak_again(comm::Communicator& world, const attention::Compute& compute, DType weights,
                        report::PeakReport& peak) {
  if (compute.device.info().is_gpu()) return;
  peak.end = flops_of(world, compute, weights).rate;
}

}  // namespace pecia::measure
