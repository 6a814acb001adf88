#include "lib/runtime/peak.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lib/core/codes.hpp"

namespace pecia::runtime {

double own_seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count();
}

namespace {

/// A product of equal numbers that are not zero.
class Product {
 public:
  Product(const context::Compute& compute, int64_t rows, int64_t in, int64_t out, DType weights)
      : compute_(compute),
        x_(compute.buffer()),
        weight_(compute.buffer()),
        y_(compute.buffer()),
        scales_(compute.buffer()),
        args_{x_.tensor(compute.backend.operand_type(weights), {rows, in}),
              weight_.tensor(weights, {out, row_elements(weights, in)}),
              {},
              y_.tensor(DType::fp32, {rows, out})} {
    fill(args_.x);
    fill(args_.weight);
    if (is_code(weights)) {
      const int64_t each = row_scales(weights, in);
      fill(scales_.tensor(DType::fp32, {1, out * each}));
      args_.weight_scales = weights == DType::int4 ? scales_.tensor(DType::fp32, {out, each})
                                                   : scales_.tensor(DType::fp32, {out});
    }
    run(1);  // wakes threads, touches pages
  }

  void run(int times) {
    for (int time = 0; time < times; ++time) compute_.backend.linear(args_, compute_.stream);
    compute_.stream.synchronize();
  }

 private:
  void fill(const TensorView& tensor) {
    device::Buffer buffer;
    const TensorView values = buffer.tensor(tensor.dtype(), {tensor.rows(), tensor.row_elements()});
    const int64_t row_bytes = values.row_elements() * size_of(values.dtype());
    if (values.dtype() == DType::int8 || values.dtype() == DType::int4)
      std::memset(values.data(), 0x11, row_bytes);  // any code
    else
      for (int64_t i = 0; i < values.row_elements(); ++i)
        store_from_float(values.data(), values.dtype(), i, 0.5f);
    for (int64_t row = 1; row < values.rows(); ++row)
      std::memcpy(values.row(row), values.row(0), row_bytes);
    compute_.copy(values, tensor);
    compute_.stream.synchronize();  // before the values go
  }

  context::Compute compute_;
  device::Buffer x_, weight_, y_, scales_;
  kernels::LinearArgs args_;
};

}  // namespace

double measure_peak_flops(const context::Compute& compute, DType weights,
                          const Stopwatch& seconds_of) {
  const bool on_gpu = compute.device.info().is_gpu();
  const int64_t size = on_gpu ? 8192 : 768;
  constexpr int runs = 6;
  // On CPUs, what weights are multiplied as: codes become numbers of that type.
  const DType multiplied = on_gpu ? weights : compute.backend.operand_type(weights);
  Product product(compute, size, size, size, multiplied);
  const auto flops = 2.0 * static_cast<double>(size * size * size);
  return runs * flops / seconds_of([&] { product.run(runs); });
}

double measure_read_bandwidth(const context::Compute& compute, DType weights,
                              const Stopwatch& seconds_of) {
  const bool on_gpu = compute.device.info().is_gpu();
  const int64_t bytes = int64_t{on_gpu ? 1024 : 64} << 20, columns = on_gpu ? 8192 : 2048;
  constexpr int runs = 3;
  Product product(compute, 1, columns, bytes / columns / size_of(weights), weights);
  return runs * static_cast<double>(bytes) / seconds_of([&] { product.run(runs); });
}

}  // namespace pecia::runtime
