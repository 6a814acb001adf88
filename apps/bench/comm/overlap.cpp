// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/comm/overlap.hpp"

#include <algorithm>

#include "apps/bench/comm/patterns.hpp"
#include "apps/bench/support/agreement.hpp"
#include "apps/bench/support/timing.hpp"
#include "lib/base/device/buffer.hpp"

namespace pecia::bench {
namespace {

/// Matrix products in cache, some hundred microseconds each.
class Products {
 public:
  explicit Products(kernels::Backend& backend) : backend_(backend) {
    args_ = {x_.tensor(DType::fp32, {size, size}),
             weight_.tensor(DType::fp32, {size, size}),
             {},
             y_.tensor(DType::fp32, {size, size})};
    std::fill_n(args_.x.as<float>(), size * size, 0.5f);
    std::fill_n(args_.weight.as<float>(), size * size, 0.25f);
  }
  void run(int64_t products, device::Stream& stream) {
    for (int64_t i = 0; i < products; ++i) backend_.linear(args_, stream);
  }

 private:
  static constexpr int64_t size = 256;
  kernels::Backend& backend_;
  device::Buffer x_, weight_, y_;
  kernels::LinearArgs args_;
};

double median_over_ranks(comm::Communicator& world, int runs, const std::function<void()>& action) {
  return spread(timed_runs(world, runs, action)).median;
}

}  // namespace

Overlap measure_overlap(comm::Communicator& world, kernels::Backend& backend, int threads,
                        int64_t bytes, double compute_s, Polling polling, int runs) {
  device::Stream stream(threads);
  Products work(backend);
  constexpr int64_t probe = 16;
  work.run(probe, stream);
  const double product_s = median_over_ranks(world, runs, [&] { work.run(probe, stream); }) / probe;
  const auto products = std::max<int64_t>(1, static_cast<int64_t>(compute_s / product_s));

  Overlap overlap;
  overlap.compute_s = median_over_ranks(world, runs, [&] { work.run(products, stream); });
  if (polling == Polling::on) stream.set_poll([&] { world.progress(); });
  const int rank = world.rank(), size = world.size();
  const int left = (rank + size - 1) % size;
  const std::vector<std::byte> sent = payload(rank, bytes);
  std::vector<std::byte> received(bytes);
  std::vector<double> waits;
  const auto step = [&] {
    const auto transfer = world.start_send_receive(sent, (rank + 1) % size, received, left);
    work.run(products, stream);
    const Stopwatch watch;
    transfer->wait();
    const auto mine_ns = static_cast<int64_t>(watch.seconds() * 1e9);
    waits.push_back(static_cast<double>(mine_ns) * 1e-9);
  };
  step();
  waits.clear();
  overlap.total_s = median_over_ranks(world, runs, step);
  const auto wait_ns = static_cast<int64_t>(spread(waits).median * 1e9);
  overlap.wait_s = static_cast<double>(world.all_reduce_max(wait_ns)) * 1e-9;
  check_together(world, payload_problem(received, left));
  return overlap;
}

}  // namespace pecia::bench
