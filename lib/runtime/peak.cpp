#include "lib/runtime/peak.hpp"

#include <algorithm>
#include <chrono>

#include "lib/device/buffer.hpp"

namespace pecia::runtime {

double measure_peak_flops(kernels::Backend& backend, device::Stream& stream) {
  constexpr int64_t size = 768;
  constexpr int runs = 6;
  device::Buffer x, weight, y;
  const kernels::LinearArgs args{x.tensor(DType::fp32, {size, size}),
                                 weight.tensor(DType::fp32, {size, size}),
                                 {},
                                 y.tensor(DType::fp32, {size, size})};
  std::fill_n(args.x.as<float>(), size * size, 0.5f);
  std::fill_n(args.weight.as<float>(), size * size, 0.25f);
  backend.linear(args, stream);  // wakes threads, touches pages
  const auto begin = std::chrono::steady_clock::now();
  for (int run = 0; run < runs; ++run) backend.linear(args, stream);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return runs * 2.0 * size * size * size / elapsed.count();
}

}  // namespace pecia::runtime
