// SPDX-License-Identifier: Apache-2.0
/// Products with fp8 weights, and with x in a narrow type.

#include <cmath>
#include <limits>

#include "kernels/api/gpu_traits.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Accumulate;

/// Body over (device, type of x).
class LinearFp8 : public OpTest {
 protected:
  bool refused() {
    if (device_.backend->name() != "cpu") return false;
    Tensor x = Tensor::random({1, 16}, dtype_, 1), y = Tensor::filled({1, 16}, 7);
    Tensor weight({16, 16}, DType::fp8, std::vector<float>(256, 1)),
        scales = Tensor::filled({16}, 1);
    EXPECT_THROW(multiply(device_, x.view(), weight.view(), scales.view(), {}, y.view()),
                 Unsupported);
    EXPECT_EQ(y.values(), std::vector<float>(16, 7));
    return true;
  }
  /// Whether so many rows of x are multiplied in bf16, not in fp8.
  bool keeps_bf16(int64_t rows) const {
    return device_.backend->name() == "cuda" && rows <= kernels::gpu_tile_rows;
  }
  /// The codes are the reference's, so only the sums differ. Those of tensor cores lose up to 2⁻¹³ of
  /// a partial sum in each addition. Of bf16 these are a few before fp32 takes over, and of fp8 all:
  /// one for each 32 products.
  double tolerance(int64_t rows, int64_t depth) const {
    if (!device_.rounds_operands) return sum_tolerance(depth);
    const double additions = 4 + (keeps_bf16(rows) ? 0 : static_cast<double>(depth) / 32);
    return sum_tolerance(depth) + 0x1p-13 * additions * (1 + std::sqrt(static_cast<double>(depth)));
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, LinearFp8,
                         testing::Combine(testing::ValuesIn(every_device()),
                                          testing::Values(DType::fp32, DType::bf16)),
                         name_of_param);

TEST_P(LinearFp8, MultipliesCodesAndScales) {
  if (refused()) return;
  constexpr int64_t size = 16;
  std::vector<float> rows(2 * size), codes(size * size), weight_scales(size), of_bias(size);
  rows[0] = 448, rows[1] = 17;             // scale 1, codes 448 and 16
  rows[size] = -7, rows[size + 1] = 3.25;  // scale 2⁻⁶, codes −448 and 208
  for (int64_t o = 0; o < size; ++o) {
    codes[o * size] = 1, codes[o * size + 1] = static_cast<float>(o);
    weight_scales[o] = o % 2 == 0 ? 0.5f : 2.0f;
    of_bias[o] = 100;
  }
  Tensor x({2, size}, dtype_, rows), weight({size, size}, DType::fp8, codes);
  Tensor scales({size}, DType::fp32, weight_scales), bias({size}, DType::bf16, of_bias);
  Tensor y = Tensor::filled({2, size}, 9);
  multiply(device_, x.view(), weight.view(), scales.view(), {}, y.view());
  EXPECT_EQ(y.values()[0], 224);
  const float second = keeps_bf16(2) ? 17 : 16;
  EXPECT_EQ(y.values()[1], 2 * (448 + second));
  EXPECT_EQ(y.values()[size + 2], 0.5f * (-7 + 2 * 3.25f));
  EXPECT_EQ(y.values()[size + 3], 2 * (-7 + 3 * 3.25f));
  multiply(device_, x.view(), weight.view(), scales.view(), bias.view(), y.view());
  EXPECT_EQ(y.values()[1], 2 * (448 + second) + 100);
  multiply(device_, x.view(), weight.view(), scales.view(), bias.view(), y.view(), Accumulate::yes);
  EXPECT_EQ(y.values()[1], 2 * (2 * (448 + second) + 100));
}

TEST_P(LinearFp8, AgreesWithTheReferenceAtEverySize) {
  if (refused()) return;
  Device oracle = make_device("reference");
  for (const Size& size :
       {Size{1, 16, 16}, {3, 32, 48}, {16, 48, 1296}, {17, 16, 1296}, {70, 144, 64}, {301, 48, 32}})
    for (const int64_t gap : {0, 16})
      for (const bool with_bias : {false, true})
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          Tensor x = Tensor::random({size.rows, size.in}, dtype_, 1, gap);
          Tensor weight = Tensor::random({size.out, size.in}, DType::fp8, 2, gap);
          Tensor scales = Tensor::random({size.out}, DType::fp32, 3);
          Tensor bias = Tensor::random({size.out}, DType::bf16, 4);
          Tensor y = Tensor::random({size.rows, size.out}, DType::fp32, 5, gap), expected = y;
          const TensorView maybe_bias = with_bias ? bias.view() : TensorView();
          multiply(device_, x.view(), weight.view(), scales.view(), maybe_bias, y.view(),
                   accumulate);
          // The reference rounds no row of x where scales are a matrix.
          const bool keeps = keeps_bf16(size.rows);
          Tensor bf16({size.rows, size.in}, DType::bf16, x.values());
          multiply(oracle, keeps ? bf16.view() : x.view(), weight.view(),
                   keeps ? scales.view().reshape({size.out, 1}) : scales.view(), maybe_bias,
                   expected.view(), accumulate);
          EXPECT_TRUE(
              all_close(y.values(), expected.values(), 4 * tolerance(size.rows, size.in), 0x1p-22))
              << size.rows << " rows, " << size.out << " × " << size.in << ", gap " << gap;
          EXPECT_TRUE(y.gaps_intact());
        }
}

TEST_P(LinearFp8, OfNoColumnsIsTheBias) {
  if (refused()) return;
  Tensor x = Tensor::random({2, 0}, dtype_, 1), weight = Tensor::random({16, 0}, DType::fp8, 2);
  Tensor scales = Tensor::filled({16}, 1), bias = Tensor::filled({16}, 3);
  Tensor y = Tensor::filled({2, 16}, 9);
  multiply(device_, x.view(), weight.view(), scales.view(), bias.view(), y.view());
  EXPECT_EQ(y.values(), std::vector<float>(32, 3));
}

TEST_P(LinearFp8, ARowThatIsNoNumberIsAloneInThat) {
  if (refused()) return;
  Tensor x = Tensor::random({5, 16}, dtype_, 1), weight = Tensor::random({16, 16}, DType::fp8, 2);
  Tensor scales = Tensor::filled({16}, 1), whole = Tensor::filled({5, 16}, 9);
  multiply(device_, x.view(), weight.view(), scales.view(), {}, whole.view());
  std::vector<float> values = x.values();
  values[1 * 16 + 3] = NAN;
  values[3 * 16 + 15] = std::numeric_limits<float>::infinity();
  std::fill_n(values.begin() + 4 * 16, 16, 0.0f);
  Tensor some({5, 16}, dtype_, values), y = Tensor::filled({5, 16}, 9);
  multiply(device_, some.view(), weight.view(), scales.view(), {}, y.view());
  for (int64_t i = 0; i < 5 * 16; ++i) {
    const int64_t row = i / 16;
    if (row == 1 || row == 3)
      EXPECT_FALSE(std::isfinite(y.values()[i])) << i;
    else
      EXPECT_EQ(y.values()[i], row == 4 ? 0 : whole.values()[i]) << i;
  }
}

TEST_P(LinearFp8, RefusesWhatContradictsBeforeWriting) {
  Tensor x = Tensor::random({2, 16}, dtype_, 1), weight = Tensor::random({16, 16}, DType::fp8, 2);
  Tensor scales = Tensor::filled({16}, 1), fewer = Tensor::filled({15}, 1);
  Tensor half = Tensor::random({2, 16}, DType::fp16, 1);
  Tensor plain = Tensor::random({16, 16}, DType::bf16, 2), y = Tensor::filled({2, 16}, 9);
  EXPECT_THROW(device_.backend->linear({x.view(), weight.view(), {}, y.view()}, device_.stream),
               InvalidArgument);
  EXPECT_THROW(multiply(device_, x.view(), weight.view(), fewer.view(), {}, y.view()),
               InvalidArgument);
  EXPECT_THROW(multiply(device_, half.view(), weight.view(), scales.view(), {}, y.view()),
               InvalidArgument);
  EXPECT_THROW(multiply(device_, x.view(), plain.view(), scales.view(), {}, y.view()),
               InvalidArgument);
  EXPECT_EQ(y.values(), std::vector<float>(32, 9));
}

/// Part of a row is rounded by the part's maximum, so ranks with parts could not give a whole's
/// bits.
TEST_P(LinearFp8, AreRefusedWithRowInvariance) {
  if (device_.backend->name() != "cuda") return;
  Tensor x = Tensor::random({2, 16}, dtype_, 1), weight = Tensor::random({16, 16}, DType::fp8, 2);
  Tensor scales = Tensor::filled({16}, 1), y = Tensor::filled({2, 16}, 9);
  EXPECT_THROW(device_.backend->linear({.x = x.view(),
                                        .weight = weight.view(),
                                        .bias = {},
                                        .y = y.view(),
                                        .row_invariant = kernels::RowInvariant::yes,
                                        .weight_scales = scales.view()},
                                       device_.stream),
               Unsupported);
  EXPECT_EQ(y.values(), std::vector<float>(32, 9));
}

/// Body over (device, type of x and of the weights).
class LinearNarrow : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Backends, LinearNarrow,
                         testing::Combine(testing::ValuesIn(every_device()),
                                          testing::Values(DType::bf16, DType::fp16)),
                         name_of_param);

TEST_P(LinearNarrow, TakesXInTheTypeOfTheWeights) {
  Tensor x = Tensor::random({9, 40}, dtype_, 1), weight = Tensor::random({24, 40}, dtype_, 2);
  Tensor wide({9, 40}, DType::fp32, x.values());
  Tensor y = Tensor::filled({9, 24}, 7), expected = Tensor::filled({9, 24}, 8);
  const auto multiply = [&](Tensor& from, Tensor& to) {
    device_.backend->linear({from.view(), weight.view(), {}, to.view()}, device_.stream);
  };
  if (device_.backend->name() == "cpu" && device_.backend->operand_type(dtype_) != dtype_) {
    EXPECT_THROW(multiply(x, y), Unsupported);
    return;
  }
  multiply(x, y);
  multiply(wide, expected);
  EXPECT_EQ(y.values(), expected.values());
}

TEST_P(LinearNarrow, RefusesXInAnotherNarrowType) {
  const DType other = dtype_ == DType::bf16 ? DType::fp16 : DType::bf16;
  Tensor x = Tensor::random({1, 8}, other, 1), weight = Tensor::random({8, 8}, dtype_, 2);
  Tensor wide = Tensor::random({8, 8}, DType::fp32, 2), y = Tensor::filled({1, 8}, 7);
  for (Tensor* by : {&weight, &wide})
    EXPECT_THROW(device_.backend->linear({x.view(), by->view(), {}, y.view()}, device_.stream),
                 InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
