// SPDX-License-Identifier: Apache-2.0
/// Products with weights of int4 whose scales are those of 64 or 32 numbers.

#include <cmath>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/random.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

/// Random codes. Steps are powers of two and the least numbers multiples of them, so that sums are
/// exact, also where numbers are rounded to bf16.
struct Groups {
  Groups(int64_t num_rows, int64_t columns, int64_t shared_by)
      : rows(num_rows), elements(row_elements(DType::int4, columns)) {
    codes.resize(rows * elements * size_of(DType::int4));
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(mix(1, i));
    scales.resize(rows * row_scales(DType::int4, columns, shared_by));
    for (size_t i = 0; i < scales.size(); i += 2) {
      scales[i] = std::ldexp(1.0f, -static_cast<int>(mix(2, i) % 3));
      scales[i + 1] = -static_cast<float>(mix(3, i) % 16) * scales[i];
    }
  }
  TensorView view() { return {codes.data(), DType::int4, {rows, elements}}; }
  TensorView scale_view() {
    return {scales.data(), DType::fp32, {rows, static_cast<int64_t>(scales.size()) / rows}};
  }

  int64_t rows, elements;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

TEST(Int4Groups, AreToldByTheNumberOfScales) {
  EXPECT_EQ(row_scales(DType::int4, 200), 4);
  EXPECT_EQ(row_scales(DType::int4, 200, 64), 8);
  EXPECT_EQ(row_scales(DType::int4, 200, 32), 16);
  for (const int64_t shared_by : {128, 64, 32})
    EXPECT_EQ(int4_shared_by(row_scales(DType::int4, 200, shared_by), 2), shared_by);
  uint8_t row[64] = {};
  row[2] = 0x30;  // numbers 1 and 33 of the row: codes 0 and 3
  const float scales[] = {1, 0, 2, 10, 1, 0, 1, 0};
  EXPECT_EQ(load_number(row, DType::int4, scales, 33, 32), 16);
  EXPECT_EQ(load_number(row, DType::int4, scales, 33, 64), 3);
}

class Int4GroupsTest : public OpTest {};
const DType int4_alone[] = {DType::int4};
PECIA_INSTANTIATE_OP_TEST_OF(Int4GroupsTest, int4_alone);

TEST_P(Int4GroupsTest, ProductsWithWholeNumbersAreExact) {
  for (const int64_t shared_by : {128, 64, 32})
    for (const Size& size :
         {Size{1, 5, 96}, {3, 33, 130}, {9, 17, 640}, {17, 2052, 96}, {70, 130, 1000}}) {
      std::vector<float> xs;
      for (int64_t i = 0; i < size.rows * size.in; ++i)
        xs.push_back(static_cast<float>(static_cast<int64_t>(mix(4, i) % 9)) - 4);
      Tensor x({size.rows, size.in}, DType::fp32, xs);
      Tensor y = Tensor::filled({size.rows, size.out}, 7);
      Groups weight(size.out, size.in, shared_by);
      device_.backend->linear({.x = x.view(),
                               .weight = weight.view(),
                               .bias = {},
                               .y = y.view(),
                               .weight_scales = weight.scale_view()},
                              device_.stream);
      std::vector<float> expected;
      for (int64_t t = 0; t < size.rows; ++t)
        for (int64_t o = 0; o < size.out; ++o) {
          float sum = 0;
          for (int64_t i = 0; i < size.in; ++i)
            sum += xs[t * size.in + i] * load_number(weight.view().row(o), DType::int4,
                                                     weight.scale_view().row(o), i, shared_by);
          expected.push_back(sum);
        }
      EXPECT_EQ(y.values(), expected) << size.rows << " rows of " << size.in << " by " << shared_by;
    }
}

TEST_P(Int4GroupsTest, OtherNumbersOfScalesAreRefused) {
  Tensor x = Tensor::random({2, 256}, DType::fp32, 1), y = Tensor::filled({2, 3}, 9);
  Groups weight(3, 256, 32);
  std::vector<float> scales(3 * 12, 1);
  const auto linear = [&](const TensorView& of) {
    device_.backend->linear(
        {.x = x.view(), .weight = weight.view(), .bias = {}, .y = y.view(), .weight_scales = of},
        device_.stream);
  };
  EXPECT_THROW(linear({scales.data(), DType::fp32, {3, 12}}), InvalidArgument);
  EXPECT_THROW(device_.backend->quantize_rows(
                   {x.view(), weight.view().slice_rows(0, 2), weight.scale_view().slice_rows(0, 2)},
                   device_.stream),
               InvalidArgument);
  EXPECT_EQ(y.values(), std::vector<float>(6, 9));
}

}  // namespace
}  // namespace pecia::test
