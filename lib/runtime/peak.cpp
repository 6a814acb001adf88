#include "lib/runtime/peak.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lib/device/buffer.hpp"

namespace pecia::runtime {

double own_seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count();
}

double measure_peak_flops(kernels::Backend& backend, device::Stream& stream,
                          const Stopwatch& seconds_of) {
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
  const double seconds = seconds_of([&] {
    for (int run = 0; run < runs; ++run) backend.linear(args, stream);
  });
  return runs * 2.0 * size * size * size / seconds;
}

double measure_read_bandwidth(kernels::Backend& backend, device::Stream& stream, DType weights,
                              const Stopwatch& seconds_of) {
  constexpr int64_t bytes = 64 << 20, columns = 2048;
  constexpr int runs = 3;
  const int64_t rows = bytes / columns / size_of(weights);
  device::Buffer x, weight, y;
  const kernels::LinearArgs args{x.tensor(DType::fp32, {1, columns}),
                                 weight.tensor(weights, {rows, columns}),
                                 {},
                                 y.tensor(DType::fp32, {1, rows})};
  std::fill_n(args.x.as<float>(), columns, 0.5f);
  std::memset(args.weight.data(), 0, bytes);
  backend.linear(args, stream);
  const double seconds = seconds_of([&] {
    for (int run = 0; run < runs; ++run) backend.linear(args, stream);
  });
  return runs * static_cast<double>(bytes) / seconds;
}

}  // namespace pecia::runtime
