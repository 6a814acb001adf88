// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/product_rates.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/random.hpp"

namespace pecia::measure {
namespace {

constexpr uint64_t seed = 1;

/// `count` random elements of a type. Numbers are in [−0.5, 0.5).
device::Buffer random_elements(DType dtype, int64_t count) {
  device::Buffer buffer(count * size_of(dtype));
  if (dtype == DType::int8 || numbers_of(dtype) > 1) {
    const uint8_t mask = dtype == DType::int8 ? 0x7f : 0xff;  // −128 is no int8 code
    for (int64_t i = 0; i < buffer.bytes(); ++i)
      buffer.as<uint8_t>()[i] = mix(seed, static_cast<uint64_t>(i)) & mask;
    return buffer;
  }
  for (int64_t i = 0; i < count; ++i)
    store_from_float(buffer.data(), dtype, i,
                     static_cast<float>(uniform(seed, static_cast<uint64_t>(i))) - 0.5f);
  return buffer;
}

}  // namespace

void fill_random(const attention::Compute& compute, const TensorView& tensor) {
  constexpr int64_t step = 61;  // elements between the beginnings of neighbouring rows
  constexpr int64_t beginnings = 997;
  const int64_t row_bytes = tensor.row_elements() * size_of(tensor.dtype());
  const device::Buffer list =
      random_elements(tensor.dtype(), tensor.row_elements() + step * beginnings);
  device::Buffer buffer;
  const TensorView values = buffer.tensor(tensor.dtype(), {tensor.rows(), tensor.row_elements()});
  for (int64_t row = 0; row < values.rows(); ++row)
    std::memcpy(values.row(row),
                list.as<std::byte>() + row % beginnings * step * size_of(tensor.dtype()),
                row_bytes);
  compute.copy(values, tensor);
  compute.stream.synchronize();  // before the values are freed
}

double own_seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count();
}

RandomProduct::RandomProduct(const attention::Compute& compute, int64_t rows, int64_t in,
                             int64_t out, DType weights)
    : compute_(compute),
      x_(compute.buffer()),
      weight_(compute.buffer()),
      y_(compute.buffer()),
      scales_(compute.buffer()),
      args_{x_.tensor(compute.backend.operand_type(weights), {rows, in}),
            weight_.tensor(weights, {out, row_elements(weights, in)}),
            {},
            y_.tensor(DType::fp32, {rows, out})} {
  fill_random(compute, args_.x);
  fill_random(compute, args_.weight);
  if (is_code(weights)) {
    const int64_t each = row_scales(weights, in);
    const DType type = scale_type(weights);
    fill_random(compute, scales_.tensor(type, {1, out * each}));
    args_.weight_scales =
        numbers_of(weights) > 1 ? scales_.tensor(type, {out, each}) : scales_.tensor(type, {out});
  }
  panels_.emplace(compute.backend, compute.stream, args_.weight);
  run(1);  // wakes threads and touches pages
}

void RandomProduct::run(int times) {
  for (int time = 0; time < times; ++time) compute_.backend.linear(args_, compute_.stream);
  compute_.stream.synchronize();
}

double measure_product_flops(const attention::Compute& compute, DType weights,
                             const Stopwatch& seconds_of) {
  const bool on_gpu = compute.device.info().is_gpu();
  const int64_t size = on_gpu ? 8192 : 768;
  constexpr int runs = 6;
  constexpr double slow_s = 0.5;  // an emulated CPU; one product is long enough
  // The type as which weights are multiplied: codes other than fp8 become numbers of that type.
  const DType multiplied = weights == DType::fp8 ? weights : compute.backend.operand_type(weights);
  RandomProduct product(compute, size, size, size, multiplied);
  const auto flops = 2.0 * static_cast<double>(size * size * size);
  const double one_s = seconds_of([&] { product.run(1); });
  if (one_s > slow_s) return flops / one_s;
  return runs * flops / seconds_of([&] { product.run(runs); });
}

double measure_product_bandwidth(const attention::Compute& compute, DType weights,
                                 const Stopwatch& seconds_of) {
  const bool on_gpu = compute.device.info().is_gpu();
  const int64_t bytes = int64_t{on_gpu ? 1024 : 64} << 20, columns = on_gpu ? 8192 : 2048;
  constexpr int runs = 3;
  RandomProduct product(compute, 1, columns, bytes / columns / size_of(weights), weights);
  return runs * static_cast<double>(bytes) / seconds_of([&] { product.run(runs); });
}

}  // namespace pecia::measure
