// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/first_touch.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace pecia::measure {

double first_touch_rate(comm::Communicator& world, const attention::Compute& compute,
                        int64_t most_bytes) {
  using Clock = std::chrono::steady_clock;
  constexpr auto longest = std::chrono::milliseconds(250);
  constexpr int64_t page_bytes = 4096, piece_bytes = 2 << 20;
  const int threads = compute.stream.num_threads();
  const int64_t pieces_of_thread = std::max<int64_t>(1, most_bytes / piece_bytes / threads);
  // In the pages of keys and values.
  const device::Buffer memory(threads * pieces_of_thread * piece_bytes);
  std::vector<double> rates(threads);
  world.barrier();
  compute.stream.pool().run(
      [&](int thread) {
        auto* const begin = memory.as<volatile char>() + thread * pieces_of_thread * piece_bytes;
        const Clock::time_point start = Clock::now();
        int64_t bytes = 0;
        while (bytes < pieces_of_thread * piece_bytes && Clock::now() - start < longest)
          for (const int64_t end = bytes + piece_bytes; bytes < end; bytes += page_bytes)
            begin[bytes] = 1;
        rates[thread] = static_cast<double>(bytes) /
                        std::chrono::duration<double>(Clock::now() - start).count();
      },
      [] {});
  double rate = 0;
  for (const double each : rates) rate += each;
  return -static_cast<double>(world.all_reduce_max(-std::llround(rate)));
}

}  // namespace pecia::measure
