#pragma once
#include <memory>

#include "kernels/api/linear.hpp"
#include "lib/device/device.hpp"

namespace pecia::kernels::cuda {

/// y[t, o] (+)= Σ_i x[t, i] · weight[o, i] + bias[o]
struct MatmulArgs {
  TensorView x, weight;  ///< [rows, in], [out, in] of one type: fp32, bf16 or fp16; in > 0
  TensorView y;          ///< [rows, out] fp32; no view is empty
  const float* bias;     ///< [out], or null
  Accumulate accumulate;
};

/// Products of matrices in device memory with sums in fp32; fp32 operands are multiplied as such.
class Matmul {
 public:
  virtual ~Matmul() = default;
  virtual void run(const MatmulArgs& args, device::Stream& stream) = 0;
};

/// By cuBLASLt. The algorithm is asked for once per shape, layout and alignment; the workspace is
/// allocated here.
std::unique_ptr<Matmul> make_cublas_matmul(device::Device& device);

}  // namespace pecia::kernels::cuda
