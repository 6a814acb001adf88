// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/shared/vectors.cuh"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels::cuda {

/// A vector that is added in the type in which it is stored.
struct Bias {
  const void* data;  ///< null: there is none
  int64_t type;      ///< a DType: fp32, bf16 or fp16
};

inline Bias bias_of(const TensorView& bias) {
  return {bias.data(), static_cast<int64_t>(bias.dtype())};
}

__device__ __forceinline__ float bias_at(const Bias& bias, int64_t index) {
  if (bias.data == nullptr) return 0;
  float value[1];
  if (bias.type == static_cast<int64_t>(DType::fp32))
    load<1>(static_cast<const float*>(bias.data) + index, value);
  else if (bias.type == static_cast<int64_t>(DType::bf16))
    load<1>(static_cast<const Bf16*>(bias.data) + index, value);
  else
    load<1>(static_cast<const Fp16*>(bias.data) + index, value);
  return value[0];
}

}  // namespace pecia::kernels::cuda
