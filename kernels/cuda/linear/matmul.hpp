// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <memory>

#include "kernels/api/linear.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::kernels::cuda {

/// y[t, o] (+)= Σ_i x[t, i] · weight[o, i] + bias[o]. For fp8 with scales it is
/// y[t, o] (+)= x_scales[t] · weight_scales[o] · Σ_i x[t, i] · weight[o, i].
struct MatmulArgs {
  TensorView x, weight;  ///< [rows, in], [out, in] of one type: fp32, bf16, fp16 or fp8; in > 0
  /// [rows, out] fp32; bf16 if x is bf16 or fp8, without bias and Accumulate::yes. No view is empty.
  TensorView y;
  const float* bias;  ///< [out], or null; null with fp8
  Accumulate accumulate;
  const float* x_scales = nullptr;       ///< [rows], for fp8; null: no scales
  const float* weight_scales = nullptr;  ///< [out], for fp8; null: no scales
  /// Several products of this shape, without bias and scales. Each operand begins its step, in
  /// elements, behind the same operand of the product before.
  int64_t count = 1;
  int64_t x_step = 0, weight_step = 0, y_step = 0;
};

/// Returns all that a product's work follows from, without padding.
inline std::array<int64_t, 19> work_of(const MatmulArgs& args) {
  const auto at = [](const void* data) {
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(data));
  };
  return {at(args.x.data()),
          args.x.rows(),
          args.x.size(1),
          args.x.row_stride(),
          at(args.weight.data()),
          args.weight.rows(),
          args.weight.row_stride(),
          static_cast<int64_t>(args.weight.dtype()),
          at(args.y.data()),
          args.y.row_stride(),
          static_cast<int64_t>(args.y.dtype()),
          at(args.bias),
          at(args.x_scales),
          at(args.weight_scales),
          args.accumulate == Accumulate::yes,
          args.count,
          args.x_step,
          args.weight_step,
          args.y_step};
}

/// Products of matrices in device memory, with sums in fp32. fp32 operands are multiplied as fp32.
class Matmul {
 public:
  virtual ~Matmul() = default;
  /// Tells whether run() will do this product. Products of fp8 with scales may be refused by their
  /// shape; then the caller leaves the scales out and multiplies the sums. The answer for a shape
  /// is always the same.
  virtual bool takes(const MatmulArgs& args) = 0;
  virtual void run(const MatmulArgs& args, device::Stream& stream) = 0;
};

/// Makes a Matmul by cuBLASLt. The algorithm is asked for once per shape, layout and alignment. The
/// workspace is allocated here. Only GPUs of compute capability 9.0 take scales (cuBLAS 13, table
/// of scaling modes), and not for every shape: few rows of great depth are refused. fp8 itself is
/// taken from 8.9 on.
std::unique_ptr<Matmul> make_cublas_matmul(device::Device& device);

}  // namespace pecia::kernels::cuda
