// SPDX-License-Identifier: Apache-2.0
/// Numbers stored as codes of int8 and int4, and products with them.

#include <cmath>
#include <limits>

#include "lib/base/core/codes.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Accumulate;

/// Rows of codes with room between them, and their scales.
struct Codes {
  Codes(DType dtype, int64_t num_rows, int64_t numbers, int64_t gap = 0)
      : type(dtype), rows(num_rows), columns(numbers), stride(row_elements(dtype, numbers) + gap) {
    bytes.assign(rows * stride * size_of(type), std::byte{0x5a});
    scales.assign(rows * row_scales(type, columns), 7);
  }
  TensorView view() {
    return TensorView(bytes.data(), type, {rows, stride})
        .slice_columns(0, row_elements(type, columns));
  }
  TensorView scale_view() {
    if (type == DType::int8) return {scales.data(), DType::fp32, {rows}};
    return {scales.data(), DType::fp32, {rows, row_scales(type, columns)}};
  }
  float number(int64_t row, int64_t i) {
    return load_number(view().row(row), type, scales.data() + row * row_scales(type, columns), i);
  }
  std::vector<float> numbers() {
    std::vector<float> all;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < columns; ++i) all.push_back(number(row, i));
    return all;
  }

  DType type;
  int64_t rows, columns, stride;
  std::vector<std::byte> bytes;
  std::vector<float> scales;
};

/// Body over (device, type of codes).
class CodesTest : public OpTest {
 protected:
  /// Only CPUs make such codes.
  bool does_not_round() {
    if (device_.backend->name() != "cuda") return false;
    Tensor x = Tensor::filled({1, 1}, 1);
    Codes codes(dtype_, 1, 1);
    EXPECT_THROW(quantize(device_, x, codes), Unsupported);
    return true;
  }
  static std::vector<float> quantize(Device& device, Tensor& x, Codes& to) {
    Tensor sums = Tensor::filled({to.rows, 2}, 7);
    device.backend->quantize_rows({x.view(), to.view(), to.scale_view(), sums.view()},
                                  device.stream);
    return sums.values();
  }
  static Codes random_codes(DType type, int64_t rows, int64_t columns, int64_t gap = 0) {
    Device oracle = make_device("reference");
    Tensor x = Tensor::random({rows, columns}, DType::fp32, 2);
    Codes codes(type, rows, columns, gap);
    quantize(oracle, x, codes);
    return codes;
  }
};
const DType code_types[] = {DType::int8, DType::int4};
PECIA_INSTANTIATE_OP_TEST_OF(CodesTest, code_types);

TEST(Int4, NumberOfAGroupIsWhereItIsSaidToBe) {
  uint8_t row[128] = {};
  row[64 + 2 * 5 + 1] = 0x90;  // second group, word 5, its highest four bits
  EXPECT_EQ(int4_code(row, 128 + 96 + 5), 9);
  EXPECT_EQ(int4_code(row, 128 + 64 + 5), 0);
  const float scales[] = {1, 2, 0.5f, -3};
  EXPECT_EQ(load_number(row, DType::int4, scales, 128 + 96 + 5), 1.5f);
  EXPECT_EQ(load_number(row, DType::int4, scales, 128), -3);
  EXPECT_EQ(load_number(row, DType::int4, scales, 5), 2);
}

TEST_P(CodesTest, RoundsByTheRangeOfTheRowOrGroup) {
  if (does_not_round()) return;
  std::vector<float> values(2 * 130, 0.0f);
  values[0] = -127, values[1] = 30.5f, values[2] = 31.5f, values[129] = 25.25f;
  Tensor x({2, 130}, DType::fp32, values);
  Codes codes(dtype_, 2, 130);
  const std::vector<float> sums = quantize(device_, x, codes);
  if (dtype_ == DType::int8) {
    EXPECT_EQ(codes.scales, (std::vector<float>{1, 0x1p-126f}));
    EXPECT_EQ(codes.number(0, 0), -127);
    EXPECT_EQ(codes.number(0, 1), 30);  // half: to even
    EXPECT_EQ(codes.number(0, 2), 32);
    EXPECT_EQ(codes.number(0, 129), 25);
    EXPECT_EQ(sums[0], 0.25f + 0.25f + 0.0625f);
  } else {
    const float step = (31.5f + 127) / 15;
    EXPECT_EQ(codes.scales, (std::vector<float>{step, -127, 25.25f / 15, 0,  //
                                                0x1p-126f, 0, 0x1p-126f, 0}));
    EXPECT_EQ(codes.number(0, 0), -127);
    EXPECT_NEAR(codes.number(0, 2), 31.5f, 1e-5);
    EXPECT_NEAR(codes.number(0, 3), -127 + 12 * step, 1e-5);
    EXPECT_EQ(codes.number(0, 128), 0);
    EXPECT_NEAR(codes.number(0, 129), 25.25f, 1e-5);
  }
  EXPECT_EQ(codes.number(1, 129), 0);
  EXPECT_EQ(sums[2], 0);
}

TEST_P(CodesTest, AreTheBitsOfTheReference) {
  if (does_not_round()) return;
  Device oracle = make_device("reference");
  for (const int64_t columns : {0, 1, 15, 16, 33, 127, 128, 129, 500, 1536})
    for (const int64_t rows : {0, 1, 3, 40})
      for (const DType stored : stored_types) {
        Tensor x = Tensor::random({rows, columns}, stored, 1, 3);
        Codes found(dtype_, rows, columns, 1), wanted = found;
        const std::vector<float> sums = quantize(device_, x, found);
        const std::vector<float> wanted_sums = quantize(oracle, x, wanted);
        EXPECT_EQ(found.bytes, wanted.bytes) << rows << " × " << columns;
        EXPECT_EQ(found.scales, wanted.scales) << rows << " × " << columns;
        EXPECT_TRUE(all_close(sums, wanted_sums, 0, 0x1p-20));
      }
}

TEST_P(CodesTest, ErrByHalfAStepAtMost) {
  if (does_not_round()) return;
  constexpr int64_t rows = 20, columns = 500;
  Tensor x = Tensor::random({rows, columns}, DType::fp32, 3);
  const std::vector<float> values = x.values();
  Codes codes(dtype_, rows, columns);
  const std::vector<float> sums = quantize(device_, x, codes);
  double difference = 0;
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t i = 0; i < columns; ++i) {
      const double step =
          dtype_ == DType::int8 ? codes.scales[t] : codes.scales[t * 8 + i / 128 * 2];
      const double error = codes.number(t, i) - double{values[t * columns + i]};
      EXPECT_LE(std::fabs(error), 0.5 * step * (1 + 0x1p-16)) << t << ", " << i;
      difference += error * error;
    }
  double stated = 0;
  for (int64_t t = 0; t < rows; ++t) stated += sums[2 * t];
  EXPECT_NEAR(stated, difference, 1e-4 * difference);
  EXPECT_GT(difference, 0);
}

/// Around groups of 128, vectors of 32, tiles of 14 and 16 rows and 4, 8 and 32 columns, panels of 16
/// and 32 columns and blocks of 640 and 1024 of depth. With 64 rows and 2048 columns a GPU changes
/// its way.
const Size sizes[] = {{1, 1, 1},     {1, 33, 17},   {2, 5, 32},     {3, 4, 127},    {4, 130, 128},
                      {5, 31, 129},  {8, 17, 640},  {16, 40, 160},  {17, 40, 33},   {33, 40, 9},
                      {29, 31, 641}, {85, 129, 20}, {50, 70, 1300}, {70, 33, 2048}, {600, 36, 300},
                      {64, 9, 600},  {65, 9, 600},  {3, 2053, 200}, {7, 3, 0},      {70, 3, 0}};

TEST_P(CodesTest, AreMultipliedAsTheNumbersTheyStandFor) {
  if (std::get<0>(GetParam()) == "reference") GTEST_SKIP() << "the oracle itself";
  Device oracle = make_device("reference");
  for (const Size& size : sizes)
    for (const auto& [gap, with_bias, accumulate] : every_pair_of_options(1)) {
      Tensor x = Tensor::random({size.rows, size.in}, DType::fp32, 1, gap);
      Codes weight = random_codes(dtype_, size.out, size.in, gap);
      Tensor bias = Tensor::random({size.out}, DType::bf16, 3);
      Tensor y = Tensor::random({size.rows, size.out}, DType::fp32, 4, gap), expected = y;
      const TensorView maybe_bias = with_bias ? bias.view() : TensorView();
      multiply(device_, x.view(), weight.view(), weight.scale_view(), maybe_bias, y.view(),
               accumulate);
      multiply(oracle, x.view(), weight.view(), weight.scale_view(), maybe_bias, expected.view(),
               accumulate);
      // x and numbers may each be rounded to bf16; see test_linear.cpp.
      const double depth = static_cast<double>(size.in);
      const double of_operands = 2 * device_.rounding(DType::bf16) * (10 + 3.5 * std::sqrt(depth));
      EXPECT_TRUE(
          all_close(y.values(), expected.values(), sum_tolerance(size.in) + of_operands, 0x1p-22))
          << size.rows << " rows, " << size.out << " × " << size.in << ", gap " << gap;
      EXPECT_TRUE(y.gaps_intact());
    }
}

TEST_P(CodesTest, ProductsOfARowDoNotDependOnTheRowsBesideIt) {
  for (const auto& [all_rows, some_rows] : {std::pair{60, 40}, {9, 1}}) {
    Tensor x = Tensor::random({all_rows, 700}, DType::fp32, 1);
    Codes weight = random_codes(dtype_, 50, 700);
    Tensor all = Tensor::filled({all_rows, 50}, 0), some = Tensor::filled({some_rows, 50}, 0);
    std::vector<float> part = x.values();
    part.assign(part.begin() + 7 * 700, part.begin() + (7 + some_rows) * 700);
    Tensor rows({some_rows, 700}, DType::fp32, part);
    multiply(device_, x.view(), weight.view(), weight.scale_view(), {}, all.view());
    multiply(device_, rows.view(), weight.view(), weight.scale_view(), {}, some.view());
    const auto whole = all.values();
    EXPECT_EQ(some.values(),
              std::vector<float>(whole.begin() + 7 * 50, whole.begin() + (7 + some_rows) * 50));
  }
}

TEST_P(CodesTest, ARowThatIsNoNumberIsAloneInThat) {
  for (const int64_t rows : {5, 60}) {
    Tensor x = Tensor::random({rows, 200}, DType::fp32, 1);
    Codes weight = random_codes(dtype_, 16, 200);
    Tensor whole = Tensor::filled({rows, 16}, 9), y = Tensor::filled({rows, 16}, 9);
    multiply(device_, x.view(), weight.view(), weight.scale_view(), {}, whole.view());
    std::vector<float> values = x.values();
    values[1 * 200 + 3] = NAN;
    values[3 * 200 + 199] = std::numeric_limits<float>::infinity();
    Tensor some({rows, 200}, DType::fp32, values);
    multiply(device_, some.view(), weight.view(), weight.scale_view(), {}, y.view());
    for (int64_t i = 0; i < rows * 16; ++i)
      if (i / 16 == 1 || i / 16 == 3)
        EXPECT_FALSE(std::isfinite(y.values()[i])) << i;
      else
        EXPECT_EQ(y.values()[i], whole.values()[i]) << i;
  }
}

TEST_P(CodesTest, RefusesWhatContradictsBeforeWriting) {
  Tensor x = Tensor::random({2, 140}, DType::fp32, 1),
         half = Tensor::random({2, 140}, DType::fp16, 1);
  Tensor y = Tensor::filled({2, 3}, 9);
  Codes weight(dtype_, 3, 140), short_one(dtype_, 3, 12);
  EXPECT_THROW(multiply(device_, half.view(), weight.view(), weight.scale_view(), {}, y.view()),
               InvalidArgument);
  EXPECT_THROW(multiply(device_, x.view(), short_one.view(), short_one.scale_view(), {}, y.view()),
               InvalidArgument);
  EXPECT_THROW(quantize(device_, x, weight), InvalidArgument);
  const auto linear = [&](const TensorView& scales, kernels::RowInvariant row_invariant) {
    device_.backend->linear({.x = x.view(),
                             .weight = weight.view(),
                             .bias = {},
                             .y = y.view(),
                             .row_invariant = row_invariant,
                             .weight_scales = scales},
                            device_.stream);
  };
  EXPECT_THROW(linear({}, kernels::RowInvariant::no), InvalidArgument);
  EXPECT_THROW(linear(short_one.scale_view().slice_rows(0, 2), kernels::RowInvariant::no),
               InvalidArgument);
  if (device_.backend->name() != "reference") {
    EXPECT_THROW(linear(weight.scale_view(), kernels::RowInvariant::yes), Unsupported);
  }
  EXPECT_EQ(y.values(), std::vector<float>(6, 9));
}

}  // namespace
}  // namespace pecia::test
