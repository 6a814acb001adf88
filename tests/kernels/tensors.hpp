// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What every op's test is made of: tensors that own their memory, and the backends to run.

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/api/backend.hpp"
#include "tests/support/compare.hpp"

namespace pecia::test {

/// A matrix or vector or higher tensor with its own memory. A strided one has `gap` more elements
/// between its rows, all sentinels: `gaps_intact` says whether they still are.
class Tensor {
 public:
  Tensor(std::vector<int64_t> shape, DType dtype, const std::vector<float>& values,
         int64_t gap = 0);

  static Tensor random(std::vector<int64_t> shape, DType dtype, uint64_t seed, int64_t gap = 0);
  static Tensor filled(std::vector<int64_t> shape, float value, int64_t gap = 0);

  TensorView view();
  std::vector<float> values() const;
  bool gaps_intact() const;

 private:
  int64_t row_elements() const;
  std::vector<int64_t> shape_;
  DType dtype_;
  int64_t gap_;
  std::vector<std::byte> bytes_;
};

inline constexpr DType stored_types[] = {DType::fp32, DType::bf16, DType::fp16};
inline constexpr DType kv_types[] = {DType::fp32, DType::bf16, DType::fp16, DType::fp8};

/// What products are of where operands are rounded to a narrow type: fp8 is widened first.
inline DType product_type(DType stored) {
  return stored == DType::fp8 ? DType::bf16 : stored;
}

/// A backend and the stream to use it on.
struct Device {
  std::unique_ptr<kernels::Backend> backend;
  device::Stream stream;
  /// Whether products of narrow types are of operands rounded to them, as tensor cores take them.
  bool rounds_operands = false;
  /// By how much the weights of attention's narrow types may be off, relative to them, where a sum
  /// adds the weights that multiply the values. Those of scores of 0 are exact.
  double weight_error = 0;

  /// By how much such an operand may be off, relative to it.
  double rounding(DType stored) const {
    if (!rounds_operands || stored == DType::fp32) return 0;
    return product_type(stored) == DType::bf16 ? 0x1p-9 : 0x1p-12;
  }
};

/// "reference", "cpu" (one thread), "cpu_3_threads", "cpu_bf16" (products of bf16), "cpu_amx" or
/// "cpu_amx_twin" (products by tiles, of the CPU or in plain C++).
Device make_host_backend(const std::string& name);

/// One of those, or of every_device.
Device make_device(const std::string& name);

/// The devices that this program tests: devices_host.cpp, devices_emulated.cpp (the CUDA backend's
/// kernels, run on the CPU) or devices_cuda.cpp.
std::vector<std::string> every_device();

/// The same for attention of many rows, with and without a library where there is the choice.
std::vector<std::string> every_attention_device();

/// Devices whose attention is by the kernels that are for many rows, however few there are; may be
/// none.
std::vector<std::string> every_kernel_of_many_rows();

/// The same for experts, which depend on the size of a device's blocks, with and without a library.
std::vector<std::string> every_device_of_experts();

/// Test body over (device, stored dtype).
class OpTest : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  Device device_ = make_device(std::get<0>(GetParam()));
  DType dtype_ = std::get<1>(GetParam());
};

inline std::string name_of_device(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

inline std::string name_of_param(
    const testing::TestParamInfo<std::tuple<std::string, DType>>& info) {
  return std::get<0>(info.param) + "_" + std::string(name_of(std::get<1>(info.param)));
}

#define PECIA_INSTANTIATE_OP_TEST_OF(Suite, types)                                   \
  INSTANTIATE_TEST_SUITE_P(                                                          \
      Backends, Suite,                                                               \
      testing::Combine(testing::ValuesIn(every_device()), testing::ValuesIn(types)), \
      name_of_param)
#define PECIA_INSTANTIATE_OP_TEST(Suite) PECIA_INSTANTIATE_OP_TEST_OF(Suite, stored_types)
#define PECIA_OP_TEST_OF(Suite, types)                                     \
  class Suite : public OpTest {}; /* NOLINT(bugprone-macro-parentheses) */ \
  PECIA_INSTANTIATE_OP_TEST_OF(Suite, types)
#define PECIA_OP_TEST(Suite) PECIA_OP_TEST_OF(Suite, stored_types)

/// y (+)= x · weightᵀ + bias. `scales` are those of weights that are codes; `bias` may be absent.
inline void multiply(Device& device, const TensorView& x, const TensorView& weight,
                     const TensorView& scales, const TensorView& bias, const TensorView& y,
                     kernels::Accumulate accumulate = kernels::Accumulate::no, float factor = 1) {
  device.backend->linear({.x = x,
                          .weight = weight,
                          .bias = bias,
                          .y = y,
                          .accumulate = accumulate,
                          .weight_scales = scales,
                          .weight_factor = factor},
                         device.stream);
}

/// Rounding of a sum of `depth` products of standard normal numbers in fp32, with a margin of six
/// times its deviation: each addition errs by up to 2⁻²⁴ of a partial sum that grows as √depth.
inline double sum_tolerance(int64_t depth) {
  return 0x1p-22 * static_cast<double>(depth + 4);
}

/// Options of a linear layer: between rows, `gap` numbers that belong to nobody.
struct LinearOptions {
  int64_t gap;
  bool with_bias;
  kernels::Accumulate accumulate;
};
/// Each option with each choice of each other one, in half of all combinations.
inline std::array<LinearOptions, 4> every_pair_of_options(int64_t gap) {
  using kernels::Accumulate;
  return {{{0, false, Accumulate::no},
           {0, true, Accumulate::yes},
           {gap, false, Accumulate::yes},
           {gap, true, Accumulate::no}}};
}

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// A linear layer: y [rows, out], x [rows, in].
struct Size {
  int64_t rows, out, in;
};

/// A shape of attention.
struct Heads {
  int64_t num_heads, num_kv_heads, head_dim;
};

}  // namespace pecia::test
