// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How fast our own matrix products run, which automatic choices use. This is less than the
/// hardware can give (peak.hpp).

#include <functional>
#include <optional>

#include "lib/model/attention/compute.hpp"
#include "lib/settle/measure/own_panels.hpp"

namespace pecia::measure {

/// Returns the seconds that some work takes.
using Stopwatch = std::function<double(const std::function<void()>& work)>;
double own_seconds(const std::function<void()>& work);

/// Fills a tensor of the device with random numbers in [−0.5, 0.5), or with random codes. Rows are
/// from different places of one list, which is quickly made.
void fill_random(const attention::Compute& compute, const TensorView& tensor);

/// A product of random numbers. With equal numbers or zeros a GPU would use less power and run
/// faster than with any model (zeros gained 13 %).
class RandomProduct {
 public:
  /// y [rows, out] = x [rows, in] · weights [out, in] with weights of this type.
  RandomProduct(const attention::Compute& compute, int64_t rows, int64_t in, int64_t out,
                DType weights);

  /// Runs the product, from panels where the backend has them, `times` times and waits for the end.
  void run(int times);

 private:
  attention::Compute compute_;
  device::Buffer x_, weight_, y_, scales_;
  kernels::LinearArgs args_;
  std::optional<OwnPanels> panels_;
};

/// FLOP/s of a matrix product, as the mean over about 20 ms, so that ranks which measure at the
/// same time and share cores do not each count all of them. On a CPU the product is in fp32 and in
/// cache, by the stream's threads; on a GPU it is large and has weights of this type.
double measure_product_flops(const attention::Compute& compute, DType weights,
                             const Stopwatch& seconds_of = own_seconds);

/// B/s at which a product with one row reads weights of this type that no cache holds, with the
/// stream's threads; takes about 30 ms.
double measure_product_bandwidth(const attention::Compute& compute, DType weights,
                                 const Stopwatch& seconds_of = own_seconds);

}  // namespace pecia::measure
