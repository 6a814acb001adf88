// SPDX-License-Identifier: Apache-2.0
/// Products with weights of MXFP4 and NVFP4, which lie as checkpoints have them.

#include <cmath>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/random.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Accumulate;
using kernels::RowInvariant;

/// Rows of blocks with random codes, and scales from ¼ to 4 or from ½ to 3. Rows are `step` apart, as
/// those of gate and up are in a file, and begin at an odd address.
class Blocks {
 public:
  Blocks(DType type, int64_t rows, int64_t columns, int64_t step)
      : type_(type),
        rows_(rows),
        columns_(columns),
        step_(step),
        blocks_(row_elements(type, columns)),
        factor_(type == DType::nvfp4 ? 0.5f : 1) {
    constexpr uint8_t of_e4m3[] = {0x30, 0x38, 0x3c, 0x40, 0x44};
    const int64_t all = rows * step * blocks_;
    bytes_.resize(1 + all * size_of(type));
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<uint8_t>(mix(1, i));
    for (int64_t i = 0; i < all; ++i) {
      const auto which = mix(2, i) % 5;
      scales_.push_back(type == DType::mxfp4 ? static_cast<uint8_t>(125 + which) : of_e4m3[which]);
    }
  }
  TensorView view() { return rows_of(bytes_.data() + 1, type_); }
  TensorView scales() { return rows_of(scales_.data(), scale_type(type_)); }
  float factor() const { return factor_; }
  /// The same numbers in another type, which holds them.
  Tensor as(DType type) {
    std::vector<float> numbers;
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t i = 0; i < columns_; ++i)
        numbers.push_back(factor_ * load_number(view().row(row), type_, scales().row(row), i));
    return Tensor({rows_, columns_}, type, numbers);
  }

 private:
  TensorView rows_of(const uint8_t* data, DType type) const {
    return TensorView(data, type, {rows_, step_ * blocks_}).slice_columns(0, blocks_);
  }

  DType type_;
  int64_t rows_, columns_, step_, blocks_;
  float factor_;
  std::vector<uint8_t> bytes_, scales_;
};

/// Whole numbers up to ±8. Their products with Blocks are multiples of 1/8 below 2⁸, so sums of up
/// to 2¹⁰ of them are exact in fp32, in any order and also where operands are rounded to bf16.
Tensor whole_numbers(int64_t rows, int64_t columns, int64_t gap = 0) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < rows * columns; ++i)
    numbers.push_back(static_cast<float>(static_cast<int64_t>(mix(7, i) % 17)) - 8);
  return Tensor({rows, columns}, DType::fp32, numbers, gap);
}

class Fp4 : public OpTest {
 protected:
  void multiply(Tensor& x, Blocks& weight, const TensorView& bias, Tensor& y,
                Accumulate accumulate = Accumulate::no, RowInvariant invariant = RowInvariant::no,
                int splits = 1) {
    device_.backend->linear({.x = x.view(),
                             .weight = weight.view(),
                             .bias = bias,
                             .y = y.view(),
                             .accumulate = accumulate,
                             .row_invariant = invariant,
                             .splits = splits,
                             .weight_scales = weight.scales(),
                             .weight_factor = weight.factor()},
                            device_.stream);
  }
};
const DType of_fp4[] = {DType::mxfp4, DType::nvfp4};
PECIA_INSTANTIATE_OP_TEST_OF(Fp4, of_fp4);

TEST(Mxfp4Codes, StandForTheNumbersOfTheStandard) {
  uint8_t row[32] = {};
  row[0] = 0x72, row[15] = 0xF1, row[16] = 0x0B, row[17] = 0x80;
  const uint8_t scales[] = {129, 0};
  const auto number = [&](int64_t i) { return load_number(row, DType::mxfp4, scales, i); };
  EXPECT_EQ(number(0), 4);   // code 2, times 4
  EXPECT_EQ(number(1), 24);  // code 7
  EXPECT_EQ(number(30), 2);  // code 1
  EXPECT_EQ(number(31), -24);
  EXPECT_EQ(number(32), -1.5f * 0x1p-127f);
  EXPECT_TRUE(std::signbit(number(35)));  // −0
  EXPECT_EQ(power_of_scale(1), 0x1p-126f);
  EXPECT_EQ(power_of_scale(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(power_of_scale(255)));
}

TEST(Nvfp4Codes, StandForTheNumbersOfTheStandard) {
  uint8_t row[16] = {};
  row[0] = 0x72, row[7] = 0xF1, row[8] = 0x0B, row[9] = 0x80;
  const uint8_t scales[] = {0x4c, 0x01};  // 6 and 2⁻⁹
  const auto number = [&](int64_t i) { return load_number(row, DType::nvfp4, scales, i); };
  EXPECT_EQ(number(0), 6);
  EXPECT_EQ(number(1), 36);
  EXPECT_EQ(number(14), 3);
  EXPECT_EQ(number(15), -36);
  EXPECT_EQ(number(16), -1.5f * 0x1p-9f);
  EXPECT_TRUE(std::signbit(number(19)));  // −0
  EXPECT_EQ(row_bytes(DType::nvfp4, 64), 32 + 4);
}

TEST_P(Fp4, ProductsWithWholeNumbersAreExact) {
  const Size shapes[] = {{1, 1, 32},    {1, 33, 64},   {2, 5, 96},     {3, 4, 128},  {4, 70, 160},
                         {5, 31, 20},   {8, 17, 640},  {17, 40, 33},   {33, 40, 96}, {85, 129, 32},
                         {70, 33, 992}, {300, 36, 96}, {65, 36, 1024}, {7, 3, 0},    {70, 3, 0}};
  for (const Size& size : shapes)
    for (const int64_t step : {1, 2})
      for (const auto& [gap, with_bias, accumulate] : every_pair_of_options(1)) {
        Tensor x = whole_numbers(size.rows, size.in, gap);
        Blocks weight(dtype_, size.out, size.in, step);
        Tensor bias = whole_numbers(1, size.out);
        Tensor y = whole_numbers(size.rows, size.out, gap);
        const std::vector<float> before = y.values(), xs = x.values(), biases = bias.values();
        const std::vector<float> numbers = weight.as(DType::fp32).values();
        multiply(x, weight, with_bias ? bias.view().reshape({size.out}) : TensorView(), y,
                 accumulate);
        std::vector<float> expected;
        for (int64_t t = 0; t < size.rows; ++t)
          for (int64_t o = 0; o < size.out; ++o) {
            float sum = accumulate == Accumulate::yes ? before[t * size.out + o] : 0;
            if (with_bias) sum += biases[o];
            for (int64_t i = 0; i < size.in; ++i)
              sum += xs[t * size.in + i] * numbers[o * size.in + i];
            expected.push_back(sum);
          }
        EXPECT_EQ(y.values(), expected) << size.rows << " rows, " << size.out << " × " << size.in;
        EXPECT_TRUE(y.gaps_intact());
      }
}

/// The row-invariant products are chains in order of depth, so the type of the weights changes no
/// bit.
TEST_P(Fp4, InvariantProductsHaveTheBitsOfWideWeights) {
  for (const auto& [rows, out, splits] :
       {std::tuple{1, 40, 1}, {3, 130, 4}, {9, 33, 2}, {70, 130, 1}, {90, 70, 4}}) {
    constexpr int64_t in = 896;
    Tensor x = Tensor::random({rows, in}, DType::fp32, 1);
    Blocks weight(dtype_, out, in, 2);
    Tensor wide = weight.as(DType::bf16);
    Tensor y = Tensor::filled({rows, out}, 7), expected = Tensor::filled({rows, out}, 8);
    multiply(x, weight, {}, y, Accumulate::no, RowInvariant::yes, splits);
    device_.backend->linear({.x = x.view(),
                             .weight = wide.view(),
                             .bias = {},
                             .y = expected.view(),
                             .row_invariant = RowInvariant::yes,
                             .splits = splits},
                            device_.stream);
    EXPECT_EQ(y.values(), expected.values()) << rows << " rows in " << splits;
  }
}

TEST_P(Fp4, ProductsOfARowDoNotDependOnTheRowsBesideIt) {
  for (const auto& [all_rows, some_rows] : {std::pair{60, 40}, {9, 1}}) {
    Tensor x = Tensor::random({all_rows, 704}, DType::fp32, 1);
    Blocks weight(dtype_, 50, 704, 1);
    Tensor all = Tensor::filled({all_rows, 50}, 0), some = Tensor::filled({some_rows, 50}, 0);
    std::vector<float> part = x.values();
    part.assign(part.begin() + 7 * 704, part.begin() + (7 + some_rows) * 704);
    Tensor rows({some_rows, 704}, DType::fp32, part);
    multiply(x, weight, {}, all);
    multiply(rows, weight, {}, some);
    const auto whole = all.values();
    EXPECT_EQ(some.values(),
              std::vector<float>(whole.begin() + 7 * 50, whole.begin() + (7 + some_rows) * 50));
  }
}

TEST_P(Fp4, RefusesWhatContradictsBeforeWriting) {
  Tensor x = Tensor::random({2, 192}, DType::fp32, 1), y = Tensor::filled({2, 3}, 9);
  Blocks weight(dtype_, 3, 192, 1), short_one(dtype_, 3, 160, 1);
  const auto linear = [&](const TensorView& codes, const TensorView& scales, int splits) {
    device_.backend->linear({.x = x.view(),
                             .weight = codes,
                             .bias = {},
                             .y = y.view(),
                             .row_invariant = splits > 1 ? RowInvariant::yes : RowInvariant::no,
                             .splits = splits,
                             .weight_scales = scales},
                            device_.stream);
  };
  std::vector<float> wide(18, 1);
  EXPECT_THROW(linear(weight.view(), {}, 1), InvalidArgument);
  EXPECT_THROW(linear(weight.view(), short_one.scales(), 1), InvalidArgument);
  EXPECT_THROW(linear(short_one.view(), weight.scales(), 1), InvalidArgument);
  EXPECT_THROW(linear(weight.view(), {wide.data(), DType::fp32, {3, 6}}, 1), InvalidArgument);
  if (device_.backend->name() == "cpu") {
    const int splits = dtype_ == DType::mxfp4 ? 4 : 8;  // of 1½ blocks
    EXPECT_THROW(linear(weight.view(), weight.scales(), splits), InvalidArgument);
  }
  EXPECT_THROW(device_.backend->quantize_rows(
                   {x.view(), Blocks(dtype_, 2, 192, 1).view(), Blocks(dtype_, 2, 192, 1).scales()},
                   device_.stream),
               InvalidArgument);
  Tensor plain = Tensor::random({3, 192}, DType::bf16, 2);
  EXPECT_THROW(test::multiply(device_, x.view(), plain.view(), {}, {}, y.view(), Accumulate::no, 2),
               InvalidArgument);  // a factor of bf16
  EXPECT_EQ(y.values(), std::vector<float>(6, 9));
}

/// Every scale, the subnormal ones and zero too, and factors that are no powers of two.
TEST_P(Fp4, ProductsByEveryScaleAgreeWithTheReference) {
  if (dtype_ != DType::nvfp4) GTEST_SKIP() << "scales of MXFP4 are powers of two";
  Device oracle = make_device("reference");
  constexpr int64_t out = 33, in = 16 * 127;
  std::vector<uint8_t> codes(out * in / 2), of_blocks(out * in / 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(mix(3, i));
  for (size_t i = 0; i < of_blocks.size(); ++i) of_blocks[i] = static_cast<uint8_t>(i % 127);
  const TensorView weight(codes.data(), DType::nvfp4, {out, in / 16});
  const TensorView scales(of_blocks.data(), DType::fp8, {out, in / 16});
  for (const float factor : {1.0f, 0.0123f, 3e-5f})
    for (const int64_t rows : {1, 5, 80}) {
      Tensor x = Tensor::random({rows, in}, DType::bf16, 4);
      Tensor bias = Tensor::random({out}, DType::fp32, 5);
      Tensor y = Tensor::filled({rows, out}, 7), wanted = Tensor::filled({rows, out}, 8);
      Tensor wide({rows, in}, DType::fp32, x.values());
      const auto run = [&](Device& device, Tensor& to) {
        test::multiply(device, wide.view(), weight, scales, bias.view(), to.view(), Accumulate::no,
                       factor);
      };
      run(device_, y), run(oracle, wanted);
      // Numbers have a deviation of 2.9 · 136, and each may be off by 2⁻⁹ of itself.
      const double off = 6 * 0x1p-9 * factor * 2.9 * 136 * std::sqrt(static_cast<double>(in));
      EXPECT_TRUE(all_close(y.values(), wanted.values(), off, 0x1p-20)) << rows << ", " << factor;
    }
}

}  // namespace
}  // namespace pecia::test
