// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/windows.hpp"

#include <algorithm>
#include <chrono>

#include "lib/ranks/comm/of_first.hpp"

namespace pecia::measure {
namespace {

using Clock = std::chrono::steady_clock;  // the same one for all processes of a host
using Seconds = std::chrono::duration<double>;

double now_s() {
  return Seconds(Clock::now().time_since_epoch()).count();
}

/// When the window begins that the ranks of a host share. Clocks may differ, as in a container with
/// a time of its own; that must not make a rank wait for long.
double shared_begin(comm::Communicator& host) {
  constexpr double lead_s = 0.5e-3, most_s = 0.1;
  const double begin = comm::of_first(host, now_s() + lead_s);
  const double now = now_s();
  return std::clamp(begin, now - most_s, now + most_s);
}

/// Work that a thread does from `begin` to `end`. A piece across a border counts by its part
/// inside.
double done_between(double begin, double end, int thread, const Piece& piece) {
  double done = 0;
  for (double from = now_s(), to = from; from < end; from = to) {
    const double amount = piece(thread);
    to = now_s();
    const double inside = std::min(to, end) - std::max(from, begin);
    if (inside > 0) done += amount * inside / (to - from);
  }
  return done;
}

}  // namespace

std::vector<double> rates_of_all(comm::Communicator& world, const device::Stream& stream,
                                 Windows windows, const Piece& piece) {
  const auto host = world.split_by_host();
  world.barrier();
  std::vector<double> rates;
  const double first = now_s();
  for (int tries = 4 * windows.count; tries > 0 && std::ssize(rates) < windows.count; --tries) {
    const double begin = shared_begin(*host);
    std::vector<double> done(stream.num_threads());
    stream.pool().run(
        [&](int thread) {
          done[thread] = done_between(begin, begin + windows.seconds, thread, piece);
        },
        [] {});
    double sum = 0;
    for (const double of_thread : done) sum += of_thread;
    const double rate = world.all_reduce_sum(sum / windows.seconds);
    // On a machine crowded by other processes perhaps no rank had a core.
    if (rate > 0 || tries <= windows.count) rates.push_back(rate);
    if (rates.empty() || windows.most_s == std::numeric_limits<double>::infinity()) continue;
    const auto milliseconds = static_cast<int64_t>(1e3 * (now_s() - first));
    if (static_cast<double>(world.all_reduce_max(milliseconds)) > 1e3 * windows.most_s) break;
  }
  return rates;
}

}  // namespace pecia::measure
