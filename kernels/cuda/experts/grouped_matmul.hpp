// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/api/gated_activation.hpp"
#include "kernels/cuda/shared/stored.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::kernels::cuda {

/// y[rows, columns] from x[rows, depth] and weights[columns, depth].
struct GroupShape {
  int32_t rows, columns, depth;
};

/// One product for each group of rows, in arrays of device memory, as libraries for grouped products
/// take them. So the device alone has to know how many rows a group has, which may be none. Rows are
/// dense, and `strides` elements apart; they begin at multiples of 16 bytes. x and weights are bf16 or
/// fp8, and y is bf16. Each group has the same number of columns.
struct GroupArrays {
  GroupShape* shapes;
  const void** x;
  const void** weights;
  Bf16** y;
  int64_t *x_strides, *weight_strides, *y_strides;
  float* bias;             ///< [groups, columns]
  const float** x_scales;  ///< of fp8: scales of each group's rows of x
  float* weight_scales;    ///< of fp8: [groups, columns], scales of the weights' rows
};

/// For each group y[t, o] = x_scales[t] · weight_scales[o] · Σ_i x[t, i] · weights[o, i] + bias[o], with
/// sums in fp32, rounded once. Of bf16 there are no scales.
struct GroupedMatmulArgs {
  GroupArrays arrays;
  int64_t groups, columns;  ///< both > 0
  DType type;               ///< of x and weights: bf16 or fp8
  /// y[t, o] = activation(y[t, o], the product) instead, of the gate that stands in y before.
  std::optional<Activation> of_gates = {};
};

/// Returns all that the work of a call follows from, without padding.
inline std::array<int64_t, 16> work_of(const GroupedMatmulArgs& args) {
  const auto at = [](const void* data) {
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(data));
  };
  const GroupArrays& arrays = args.arrays;
  const Activation of_gates = args.of_gates.value_or(Activation::silu);
  return {at(arrays.shapes),
          at(arrays.x),
          at(arrays.weights),
          at(arrays.y),
          at(arrays.x_strides),
          at(arrays.weight_strides),
          at(arrays.y_strides),
          at(arrays.bias),
          at(arrays.x_scales),
          at(arrays.weight_scales),
          args.groups,
          args.columns,
          static_cast<int64_t>(args.type),
          args.of_gates ? static_cast<int64_t>(of_gates.kind) : -1,
          std::bit_cast<int32_t>(of_gates.slope),
          std::bit_cast<int32_t>(of_gates.limit)};
}

/// Products of groups of rows by a library. Neither call waits for the device.
class GroupedMatmul {
 public:
  virtual ~GroupedMatmul() = default;
  virtual std::string name() const = 0;
  virtual void run(const GroupedMatmulArgs& args, device::Stream& stream) = 0;
};

inline constexpr const char* fp8_experts_switch = "PECIA_CUDA_FP8_EXPERTS";

/// A library, or why there is none.
struct FoundGroupedMatmul {
  std::unique_ptr<GroupedMatmul> matmul = nullptr;
  std::string why_not = {};
  /// Why experts of fp8 are widened to bf16 for it all the same; empty: fp8 multiplies fp8.
  std::string why_no_fp8 = {};
  bool is_checked_at_start = true;  ///< by check_fp8_experts; tests compare it themselves
};

/// Finds the grouped products of CUTLASS, which are compiled into this program for compute capability
/// 9.0 alone. fp8 is not multiplied by fp8 where fp8_experts_switch is 0.
FoundGroupedMatmul find_cutlass_grouped_matmul(device::Device& device);

}  // namespace pecia::kernels::cuda
