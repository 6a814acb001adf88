// SPDX-License-Identifier: Apache-2.0
/// Both ways in which the CUDA backend makes products of fp8: with scales taken by the product, and
/// by a kernel after it. A library that refuses scales for some shapes gets both.

#include <cstring>

#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Accumulate;

class ScaledProducts : public testing::TestWithParam<Products> {
 protected:
  std::unique_ptr<device::Device> host_ = device::make_host_device(1);
  Device device_{make_emulated_backend(*host_, GetParam()), device::Stream(1)};
  Device oracle_ = make_device("reference");

  void expect_reference(const Size& size, bool with_bias, Accumulate accumulate, int gap = 3) {
    Tensor x = Tensor::random({size.rows, size.in}, DType::fp32, 1);
    Tensor weight = Tensor::random({size.out, size.in}, DType::fp8, 2, 16);
    Tensor scales = Tensor::random({size.out}, DType::fp32, 3);
    Tensor bias = Tensor::random({size.out}, DType::bf16, 4);
    Tensor y = Tensor::random({size.rows, size.out}, DType::fp32, 5, gap), expected = y;
    for (const bool wanted : {false, true}) {
      Device& device = wanted ? oracle_ : device_;
      device.backend->linear({.x = x.view(),
                              .weight = weight.view(),
                              .bias = with_bias ? bias.view() : TensorView(),
                              .y = (wanted ? expected : y).view(),
                              .accumulate = accumulate,
                              .weight_scales = scales.view()},
                             device.stream);
    }
    EXPECT_TRUE(all_close(y.values(), expected.values(), 4 * sum_tolerance(size.in), 0x1p-22))
        << size.rows << " rows, " << size.out << " × " << size.in;
    EXPECT_TRUE(y.gaps_intact());
  }
};

/// Few rows of weights that begin at multiples of 16 bytes are none of these.
TEST_P(ScaledProducts, AreTheReferences) {
  for (const Size& size : {Size{17, 16, 16}, {5, 7, 9}, {33, 36, 130}, {2, 1, 1}})
    for (const bool with_bias : {false, true})
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes})
        expect_reference(size, with_bias, accumulate);
}

/// Rows of y that begin at multiples of 16 bytes are scaled four elements at a time.
TEST_P(ScaledProducts, AreTheReferencesInAlignedRows) {
  for (const Size& size : {Size{17, 16, 16}, {33, 36, 130}})
    expect_reference(size, true, Accumulate::yes, 4);
}

/// What stands in x afterwards shows that its codes are those of the call before.
TEST_P(ScaledProducts, RoundTheSameRowsOnce) {
  constexpr int64_t rows = 20, in = 16, out = 16;
  Tensor x = Tensor::random({rows, in}, DType::fp32, 1),
         other = Tensor::random({rows, in}, DType::fp32, 2);
  Tensor weight = Tensor::random({out, in}, DType::fp8, 3, 16);
  Tensor scales = Tensor::random({out}, DType::fp32, 4);
  const auto multiply = [&](Tensor& rows_of_x, kernels::SameX same_x) {
    Tensor y = Tensor::filled({rows, out}, 0);
    device_.backend->linear({.x = rows_of_x.view(),
                             .weight = weight.view(),
                             .y = y.view(),
                             .weight_scales = scales.view(),
                             .same_x = same_x},
                            device_.stream);
    return y.values();
  };
  using enum kernels::SameX;
  const std::vector<float> first = multiply(x, no), of_other = multiply(other, no);
  EXPECT_EQ(multiply(x, yes), first) << "these are other rows";
  std::memcpy(x.view().data(), other.view().data(), rows * in * sizeof(float));
  EXPECT_EQ(multiply(x, yes), first);
  EXPECT_EQ(multiply(x, no), of_other);
}

/// More rows than are made at a time: 16 of so wide a product.
TEST_P(ScaledProducts, AreMadeSomeRowsAtATime) {
  expect_reference({17, 1 << 19, 1}, true, Accumulate::yes);
}

INSTANTIATE_TEST_SUITE_P(BothWays, ScaledProducts,
                         testing::Values(Products::with_scales, Products::without_scales,
                                         Products::with_scales_of_some_shapes),
                         [](const auto& way) {
                           switch (way.param) {
                             case Products::with_scales:
                               return "InTheProduct";
                             case Products::without_scales:
                               return "After";
                             case Products::with_scales_of_some_shapes:
                               return "ByTheShape";
                           }
                           return "";
                         });

}  // namespace
}  // namespace pecia::test
