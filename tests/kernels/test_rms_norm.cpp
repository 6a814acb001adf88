// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

PECIA_OP_TEST(RmsNorm);

TEST_P(RmsNorm, DividesByTheRootMeanSquare) {
  Tensor x({2, 2}, DType::fp32, {1, 7, -3, 4});  // mean squares 25 and 12.5
  Tensor weight({2}, dtype_, {1, 2});
  Tensor out = Tensor::filled({2, 2}, 9.0f);

  device_.backend->rms_norm({x.view(), weight.view(), 0.0f, out.view()}, device_.stream);
  EXPECT_TRUE(all_close(out.values(), std::vector{0.2f, 2.8f, -0.8485281f, 2.2627417f}, 0, 3e-7));

  device_.backend->rms_norm({x.view(), weight.view(), 3.5f, out.view()}, device_.stream);
  EXPECT_NEAR(out.values()[2], -0.75f, 3e-7);  // sqrt(12.5 + 3.5) = 4
}

TEST_P(RmsNorm, OfZerosIsZero) {
  Tensor x = Tensor::filled({1, 40}, 0), weight = Tensor::random({40}, dtype_, 1);
  device_.backend->rms_norm({x.view(), weight.view(), 1e-6f, x.view()}, device_.stream);
  EXPECT_EQ(x.values(), std::vector<float>(40, 0.0f));
}

TEST_P(RmsNorm, AgreesWithTheReferenceInPlaceAndStrided) {
  Device oracle = make_device("reference");
  for (const int64_t width : {1, 7, 8, 9, 16, 31, 33, 64, 576, 1000})
    for (const int64_t rows : {0, 1, 3, 70})
      for (const int64_t gap : {0, 2}) {
        Tensor x = Tensor::random({rows, width}, DType::fp32, 1, gap);
        Tensor weight = Tensor::random({width}, dtype_, 2);
        Tensor expected = Tensor::filled({rows, width}, 0);
        oracle.backend->rms_norm({x.view(), weight.view(), 1e-5f, expected.view()}, oracle.stream);
        device_.backend->rms_norm({x.view(), weight.view(), 1e-5f, x.view()}, device_.stream);
        // Squares are positive: the sum errs by less than width/16 ulp with the lanes' partial
        // sums.
        EXPECT_TRUE(all_close(x.values(), expected.values(), 1e-7, 0x1p-22 + 0x1p-27 * width))
            << rows << " × " << width;
        EXPECT_TRUE(x.gaps_intact());
      }
}

TEST_P(RmsNorm, IsRoundedOnceToTheOperandsType) {
  const DType narrow = device_.backend->operand_type(dtype_);
  for (const int64_t width : {7, 64, 1000}) {
    Tensor x = Tensor::random({5, width}, DType::fp32, 1),
           weight = Tensor::random({width}, dtype_, 2);
    Tensor wide = Tensor::filled({5, width}, 0);
    Tensor operand({5, width}, narrow, wide.values(), 8);
    device_.backend->rms_norm({x.view(), weight.view(), 1e-5f, wide.view()}, device_.stream);
    device_.backend->rms_norm({x.view(), weight.view(), 1e-5f, operand.view()}, device_.stream);
    EXPECT_EQ(operand.values(), Tensor({5, width}, narrow, wide.values()).values()) << width;
    EXPECT_TRUE(operand.gaps_intact());
  }
}

TEST_P(RmsNorm, MarksRowsWithoutAFiniteSumUnlessTheyAreMarked) {
  for (const int64_t width : {3, 40, 700}) {
    std::vector<float> values(6 * width, 1.0f);
    values[1 * width] = std::nanf("");
    values[3 * width - 1] = -infinity;
    values[4 * width + 1] = 1e25f;  // its square is too large
    values[5 * width + 2] = infinity;
    Tensor x({6, width}, DType::fp32, values), out = Tensor::filled({6, width}, 0);
    Tensor weight = Tensor::random({width}, dtype_, 1);
    std::vector<int32_t> marks = {0, 0, 0, 0, 0, 7};
    const TensorView view(marks.data(), DType::int32, {6});
    device_.backend->rms_norm({x.view(), weight.view(), 0, out.view(), view, 9}, device_.stream);
    EXPECT_EQ(marks, (std::vector<int32_t>{0, 9, 9, 0, 9, 7})) << width;
  }
}

TEST_P(RmsNorm, RefusesAWeightOfAnotherWidth) {
  Tensor x = Tensor::filled({2, 3}, 1), weight = Tensor::random({4}, dtype_, 1);
  EXPECT_THROW(device_.backend->rms_norm({x.view(), weight.view(), 0, x.view()}, device_.stream),
               InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
