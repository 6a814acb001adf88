// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How fast our own matrix products run: what automatic choices count with. It is less than what
/// the hardware gives at most (peak.hpp).

#include <functional>

#include "lib/context/compute.hpp"

namespace pecia::measure {

/// Seconds that some work took.
using Stopwatch = std::function<double(const std::function<void()>& work)>;
double own_seconds(const std::function<void()>& work);

/// A product of random numbers: equal ones, or zeros, cost a GPU less power, and it then runs
/// faster than any model does (13 % were seen with zeros).
class RandomProduct {
 public:
  /// y [rows, out] = x [rows, in] · weights [out, in] with weights of this type.
  RandomProduct(const context::Compute& compute, int64_t rows, int64_t in, int64_t out,
                DType weights);

  /// Until it is done so many times.
  void run(int times);

 private:
  void fill(const TensorView& tensor);

  context::Compute compute_;
  device::Buffer x_, weight_, y_, scales_;
  kernels::LinearArgs args_;
};

/// FLOP/s of a matrix product: of fp32 in cache by the stream's threads, on a GPU large and with
/// weights of this type. The mean over some 20 ms, so that ranks which measure at the same time and
/// share cores do not each count all of them.
double measure_product_flops(const context::Compute& compute, DType weights,
                             const Stopwatch& seconds_of = own_seconds);

/// B/s at which a product with one row reads weights of this type that no cache holds, by the
/// stream's threads; some 30 ms.
double measure_product_bandwidth(const context::Compute& compute, DType weights,
                                 const Stopwatch& seconds_of = own_seconds);

}  // namespace pecia::measure
