// SPDX-License-Identifier: Apache-2.0
/// Products that `linear` writes in bf16.

#include "tests/kernels/quantized_matrix.hpp"

namespace pecia::test {
namespace {

constexpr int64_t in = 256, out = 96;

class RoundedProducts : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());

  /// Products in fp32 and in bf16, the latter a slice of columns of `whole`.
  void expect_rounded(const TensorView& weight, const TensorView& scales, int64_t rows,
                      bool with_bias, int64_t gap = 0) {
    SCOPED_TRACE(testing::Message() << rows << " rows by " << name_of(weight.dtype()) << ", bias "
                                    << with_bias << ", gap " << gap);
    Tensor x = Tensor::random({rows, in}, DType::bf16, 1);
    Tensor bias = Tensor::random({out}, DType::bf16, 2);
    Tensor wide = Tensor::filled({rows, out}, 55.0f);
    Tensor whole({rows, 2 * out}, DType::bf16, std::vector<float>(2 * rows * out, 55.0f), gap);
    const TensorView narrow = whole.view().slice_columns(out, out);
    const TensorView maybe_bias = with_bias ? bias.view() : TensorView();
    if (!device_.backend->rounds_products()) {
      EXPECT_THROW(multiply(device_, x.view(), weight, scales, maybe_bias, narrow), Unsupported);
      return;
    }
    multiply(device_, x.view(), weight, scales, maybe_bias, wide.view());
    multiply(device_, x.view(), weight, scales, maybe_bias, narrow);
    std::vector<float> found, beside;
    const std::vector<float> all = whole.values();
    for (int64_t t = 0; t < rows; ++t) {
      const auto row = all.begin() + 2 * t * out;
      beside.insert(beside.end(), row, row + out);
      found.insert(found.end(), row + out, row + 2 * out);
    }
    // A library may add in another order. Half of the distance of two numbers is 2⁻⁸ of the less.
    EXPECT_TRUE(all_close(found, wide.values(), sum_tolerance(in) * 8, 0x1p-8));
    EXPECT_NE(found, wide.values());
    EXPECT_TRUE(whole.gaps_intact());
    EXPECT_EQ(beside, std::vector<float>(rows * out, 55.0f));
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RoundedProducts, testing::ValuesIn(every_device()),
                         name_of_device);

TEST_P(RoundedProducts, AreThoseOfFp32Rounded) {
  for (const DType type :
       {DType::bf16, DType::int8, DType::int4, DType::mxfp4, DType::nvfp4, DType::fp8}) {
    if (type == DType::fp8 && device_.backend->name() == "cpu") continue;  // stored, on GPUs alone
    QuantizedMatrix weight(type, out, in, 3);
    for (const int64_t rows : {1, 64, 65, 130}) {  // codes are widened for few and for many rows
      for (const bool with_bias : {false, true})
        expect_rounded(weight.view(), weight.scales(), rows, with_bias);
      expect_rounded(weight.view(), weight.scales(), rows, false, 1);
    }
  }
}

/// Of codes that round x, too.
TEST_P(RoundedProducts, OfFp8AreThoseOfFp32Rounded) {
  if (!device_.backend->rounds_products()) GTEST_SKIP() << "CPUs have no such codes";
  Tensor numbers = Tensor::random({out, in}, DType::fp32, 4);
  Tensor scales = Tensor::filled({out}, 0);
  std::vector<uint8_t> bytes(out * in);
  const TensorView codes(bytes.data(), DType::fp8, {out, in});
  device_.backend->quantize_rows({numbers.view(), codes, scales.view()}, device_.stream);
  for (const int64_t rows : {1, 130})
    for (const bool with_bias : {false, true})
      expect_rounded(codes, scales.view(), rows, with_bias);
}

TEST_P(RoundedProducts, AreRefusedWhereTheyWouldBeWrong) {
  Tensor x = Tensor::random({4, in}, DType::fp32, 1),
         wide = Tensor::random({out, in}, DType::fp32, 2);
  Tensor narrow = Tensor::random({out, in}, DType::bf16, 2),
         y = Tensor::random({4, out}, DType::bf16, 3);
  const auto run = [&](Tensor& weight, kernels::Accumulate accumulate,
                       kernels::RowInvariant invariant) {
    device_.backend->linear({x.view(), weight.view(), {}, y.view(), accumulate, invariant},
                            device_.stream);
  };
  using kernels::Accumulate;
  using kernels::RowInvariant;
  EXPECT_THROW(run(wide, Accumulate::no, RowInvariant::no), InvalidArgument);
  EXPECT_THROW(run(narrow, Accumulate::yes, RowInvariant::no), InvalidArgument);
  EXPECT_THROW(run(narrow, Accumulate::no, RowInvariant::yes), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
