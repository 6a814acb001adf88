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
#include "lib/base/device/device.hpp"

namespace pecia::kernels::cuda {

/// y[rows, columns] from x[rows, depth] and weights[columns, depth].
struct GroupShape {
  int32_t rows, columns, depth;
};

/// One product for each group of rows, in arrays of device memory, as libraries for grouped products
/// take them. So the device alone has to know how many rows a group has, which may be none. Rows are
/// dense, and `strides` elements apart, multiples of 8; they begin at multiples of 16 bytes.
struct GroupArrays {
  GroupShape* shapes;
  const Bf16** x;
  const Bf16** weights;
  Bf16** y;
  int64_t *x_strides, *weight_strides, *y_strides;
  float* bias;  ///< [groups, columns] of all groups, which have as many columns
};

/// For each group y[t, o] = Σ_i x[t, i] · weights[o, i] + bias[o], with sums in fp32, rounded once.
struct GroupedMatmulArgs {
  GroupArrays arrays;
  int64_t groups, columns;  ///< both > 0
  /// y[t, o] = activation(y[t, o], the product) instead, of the gate that stands in y before.
  std::optional<Activation> of_gates = {};
};

/// Returns all that the work of a call follows from, without padding.
inline std::array<int64_t, 13> work_of(const GroupedMatmulArgs& args) {
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
          args.groups,
          args.columns,
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

/// A library, or why there is none.
struct FoundGroupedMatmul {
  std::unique_ptr<GroupedMatmul> matmul;
  std::string why_not;
};

/// Finds the grouped products of CUTLASS, which are compiled into this program for compute capability
/// 9.0 alone.
FoundGroupedMatmul find_cutlass_grouped_matmul(device::Device& device);

}  // namespace pecia::kernels::cuda
