// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_ops/floors.hpp"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "apps/bench_ops/timing.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/settle/measure/product_rates.hpp"

namespace pecia::bench {
namespace {

double read_bandwidth(int num_threads, int runs) {
  const int64_t count = int64_t{64} << 20;  // 512 MiB of uint64
  std::vector<uint64_t> data(count, 1);
  uint64_t sum = 0;
  const double seconds = best_seconds(runs, [&] {
    sum = 0;
    const uint64_t* const from = data.data();
#pragma omp parallel for simd num_threads(num_threads) reduction(+ : sum) schedule(static)
    for (int64_t i = 0; i < count; ++i) sum += from[i];
  });
  PECIA_CHECK(sum == static_cast<uint64_t>(count), "the sum is {}", sum);
  return static_cast<double>(count) * sizeof(uint64_t) / seconds;
}

}  // namespace

Floors measure_floors(int num_threads, int runs) {
  return {sgemm_flops(num_threads, runs), read_bandwidth(num_threads, runs)};
}

double measure_product(const Place& place, int runs) {
  const Case product = square_product();
  return product.flops /
         sorted_seconds(runs, place.device, place.stream, product.make(place)).front();
}

Floors measure_gpu_floors(const Place& place, int runs) {
  report::Recorder recorder;
  const attention::Compute compute{place.device, place.stream, place.backend, recorder};
  double product_flops = 0;
  constexpr int most_products = 3;  // making their random numbers takes longer than multiplying
  for (int run = 0; run < std::min(runs, most_products); ++run)
    product_flops = std::max(product_flops, measure::measure_product_flops(compute, DType::bf16));
  constexpr int64_t copy_bytes = int64_t{2} << 30;
  const device::Buffer from(place.device, device::Memory::device, copy_bytes);
  const device::Buffer to(place.device, device::Memory::device, copy_bytes);
  place.device.zero(from.data(), copy_bytes, place.stream);
  const auto copy_seconds = sorted_seconds(runs, place.device, place.stream, [&] {
    place.device.copy(to.data(), from.data(), copy_bytes, place.stream);
  });
  return {product_flops, 2.0 * copy_bytes / copy_seconds.front()};
}

}  // namespace pecia::bench
