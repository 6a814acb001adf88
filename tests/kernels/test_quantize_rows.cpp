// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

class QuantizeRows : public OpTest {
 protected:
  struct Result {
    std::vector<float> codes, scales, square_sums;
    bool gaps_intact;
  };

  Result quantize(Device& device, Tensor& x, int64_t gap = 0) {
    const int64_t rows = x.view().rows(), columns = x.view().size(1);
    Tensor codes({rows, columns}, DType::fp8, std::vector<float>(rows * columns, 5), gap);
    Tensor scales = Tensor::filled({rows}, 7), sums = Tensor::filled({rows, 2}, 7);
    device.backend->quantize_rows({x.view(), codes.view(), scales.view(), sums.view()},
                                  device.stream);
    return {codes.values(), scales.values(), sums.values(), codes.gaps_intact()};
  }
  bool refused() {
    if (device_.backend->name() != "cpu") return false;
    Tensor x = Tensor::filled({1, 1}, 1);
    EXPECT_THROW(quantize(device_, x), Unsupported);
    return true;
  }
};
PECIA_INSTANTIATE_OP_TEST(QuantizeRows);

/// The scales are 1, 2⁻⁶, and the least.
TEST_P(QuantizeRows, RoundsByTheGreatestOfTheRow) {
  if (refused()) return;
  Tensor x({3, 5}, dtype_,
           {448, -224, 0, 17, -1,                 //
            3.25f, -7, 0.5f, 0x1p-16f, 0x1p-15f,  //
            0, 0, 0, 0, 0});
  const Result result = quantize(device_, x);
  EXPECT_EQ(result.codes, (std::vector<float>{448, -224, 0, 16, -1,  // 17: halfway to 18, to even
                                              208, -448, 32, 0, 0x1p-9f,  // half a step: to even
                                              0, 0, 0, 0, 0}));
  EXPECT_EQ(result.scales, (std::vector<float>{1, 0x1p-6f, 0x1p-126f}));
  EXPECT_EQ(result.square_sums,
            (std::vector<float>{1, 448 * 448 + 224 * 224 + 17 * 17 + 1, 0x1p-32f,
                                3.25f * 3.25f + 49 + 0.25f + 0x1p-32f + 0x1p-30f, 0, 0}));
}

TEST_P(QuantizeRows, WhatIsNoNumberStaysVisibleInItsRow) {
  if (refused()) return;
  Tensor x({3, 2}, dtype_, {NAN, 7, 3, -infinity, 7, -7});
  const Result result = quantize(device_, x);
  EXPECT_TRUE(std::isnan(result.codes[0]));
  EXPECT_EQ(result.codes[1], 448);
  EXPECT_EQ(result.codes[2], 0);
  EXPECT_TRUE(std::isnan(result.codes[3]));
  EXPECT_EQ(result.codes[4], 448);
  EXPECT_EQ(result.codes[5], -448);
  EXPECT_EQ(result.scales, (std::vector<float>{0x1p-6f, infinity, 0x1p-6f}));
}

TEST_P(QuantizeRows, GivesTheBitsOfTheReference) {
  if (refused()) return;
  Device oracle = make_device("reference");
  for (const int64_t columns : {0, 1, 7, 8, 16, 31, 33, 64, 1000, 2056, 5000})
    for (const int64_t rows : {0, 1, 3, 70})
      for (const int64_t gap : {0, 1, 16}) {
        Tensor x = Tensor::random({rows, columns}, dtype_, 1, gap);
        const Result wanted = quantize(oracle, x), result = quantize(device_, x, gap);
        EXPECT_EQ(result.codes, wanted.codes) << rows << " × " << columns;
        EXPECT_EQ(result.scales, wanted.scales);
        EXPECT_TRUE(all_close(result.square_sums, wanted.square_sums, 0, 0x1p-17));
        EXPECT_TRUE(result.gaps_intact);
      }
}

/// Half a step of a code is 2⁻⁴ of it, or 2⁻¹⁰ of the scale. Of normal numbers, whose elements lie
/// evenly between codes, the errors' squares are a third of that, less what lies near a code.
TEST_P(QuantizeRows, ErrsByHalfAStepAtMost) {
  if (refused()) return;
  constexpr int64_t rows = 20, columns = 500;
  Tensor x = Tensor::random({rows, columns}, dtype_, 3);
  const std::vector<float> values = x.values();
  const Result result = quantize(device_, x);
  double difference = 0, original = 0;
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < columns; ++i) {
      const double value = values[t * columns + i], scale = result.scales[t];
      const double error = std::fabs(result.codes[t * columns + i] * scale - value);
      EXPECT_LE(error, std::max(0x1p-4 * std::fabs(value), 0x1p-10 * scale) * (1 + 0x1p-20))
          << t << ", " << i;
    }
    difference += result.square_sums[2 * t];
    original += result.square_sums[2 * t + 1];
  }
  const double relative = std::sqrt(difference / original);
  EXPECT_LT(relative, 0x1p-4 / std::sqrt(3.0));
  EXPECT_GT(relative, 0x1p-5 / std::sqrt(3.0));
}

TEST_P(QuantizeRows, RefusesContradictoryShapesBeforeWriting) {
  Tensor x = Tensor::random({2, 3}, dtype_, 1);
  Tensor codes({2, 3}, DType::fp8, std::vector<float>(6, 5)), scales = Tensor::filled({2}, 7);
  Tensor narrow({2, 2}, DType::fp8, std::vector<float>(4, 5)), three = Tensor::filled({3}, 7);
  const auto quantize = [&](Tensor& to, Tensor& with) {
    device_.backend->quantize_rows({x.view(), to.view(), with.view()}, device_.stream);
  };
  EXPECT_THROW(quantize(narrow, scales), InvalidArgument);
  EXPECT_THROW(quantize(x, scales), InvalidArgument);
  EXPECT_THROW(quantize(codes, three), InvalidArgument);
  EXPECT_EQ(codes.values(), std::vector<float>(6, 5));
  EXPECT_EQ(scales.values(), std::vector<float>(2, 7));
}

}  // namespace
}  // namespace pecia::test
