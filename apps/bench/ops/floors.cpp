// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/floors.hpp"

#include <algorithm>

#include "apps/bench/ops/timing.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/settle/measure/product_rates.hpp"

namespace pecia::bench::ops {
double measure_product(const Place& place, int runs) {
  const Case product = square_product();
  return product.flops /
         sorted_seconds(runs, place.device, place.stream, product.make(place)).front();
}

OpFloors measure_gpu_floors(const Place& place, int runs) {
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

}  // namespace pecia::bench::ops
