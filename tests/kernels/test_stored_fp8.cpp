// SPDX-License-Identifier: Apache-2.0
/// Products with weights of fp8 as checkpoints store them: with a scale for each row, or for each
/// 128 numbers of a row.

#include <cmath>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_blocks.hpp"
#include "lib/base/core/random.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Accumulate;

/// Codes of numbers other than NaN, `gap` bytes between rows, with scales whose rows are apart, too.
struct StoredFp8 {
  StoredFp8(int64_t num_rows, int64_t numbers, bool in_blocks, int64_t gap = 0)
      : rows(num_rows),
        columns(numbers),
        stride(numbers + gap),
        of_row(in_blocks ? fp8_blocks(numbers) : 1) {
    codes.assign(rows * stride, 0x7f);  // NaN in the gaps
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < columns; ++i) {
        const auto code = static_cast<uint8_t>(mix(11, row * columns + i));
        codes[row * stride + i] = (code & 0x7f) == 0x7f ? 0 : code;
      }
    scales.assign(rows * (of_row + 1), std::nanf(""));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < of_row; ++i)
        scales[row * (of_row + 1) + i] = 0x1p-6f * (0.5f + static_cast<float>((row + 3 * i) % 7));
  }
  TensorView view() {
    return TensorView(codes.data(), DType::fp8, {rows, stride}).slice_columns(0, columns);
  }
  TensorView scale_view() {
    return TensorView(scales.data(), DType::fp32, {rows, of_row + 1}).slice_columns(0, of_row);
  }

  int64_t rows, columns, stride, of_row;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

/// Body over (device, type of x).
class StoredFp8Test : public OpTest {
 protected:
  bool refused() {
    if (device_.backend->name() != "cpu") return false;
    Tensor x = Tensor::random({1, 16}, dtype_, 1), y = Tensor::filled({1, 16}, 7);
    StoredFp8 weight(16, 16, false);
    EXPECT_THROW(multiply(device_, x.view(), weight.view(), weight.scale_view(), {}, y.view()),
                 Unsupported);
    EXPECT_EQ(y.values(), std::vector<float>(16, 7));
    return true;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, StoredFp8Test,
                         testing::Combine(testing::ValuesIn(every_device()),
                                          testing::Values(DType::fp32, DType::bf16)),
                         name_of_param);

TEST_P(StoredFp8Test, MultipliesEachBlockByItsScale) {
  if (refused()) return;
  StoredFp8 weight(2, 200, true);
  weight.codes.assign(2 * 200, 0);
  const auto set = [&](int64_t row, int64_t i, float number) {
    weight.codes[row * 200 + i] = float_to_fp8(number);
  };
  set(0, 0, 3), set(0, 127, -448), set(0, 128, 0.5f), set(0, 199, 0x1p-9f);
  set(1, 64, 2), set(1, 130, 17);  // 17 is rounded to 16
  weight.scales = {0.5f, 2, 0, 4, 0.25f, 0};
  std::vector<float> ones(200, 1);
  ones[130] = 3;
  Tensor x({1, 200}, dtype_, ones), y = Tensor::filled({1, 2}, 9);
  multiply(device_, x.view(), weight.view(), weight.scale_view(), {}, y.view());
  EXPECT_EQ(y.values(), (std::vector<float>{0.5f * (3 - 448) + 2 * (0.5f + 0x1p-9f),  //
                                            4 * 2 + 0.25f * 16 * 3}));
}

TEST_P(StoredFp8Test, AgreesWithTheReferenceAtEverySize) {
  if (refused()) return;
  Device oracle = make_device("reference");
  for (const Size& size : {Size{1, 16, 16},
                           {5, 9, 160},  // so few columns are one tile
                           {3, 48, 130},
                           {17, 2056, 64},
                           {64, 33, 257},
                           {65, 40, 129},
                           {70, 130, 384}})
    for (const bool in_blocks : {false, true})
      for (const int64_t gap : {0, 1, 16}) {
        StoredFp8 weight(size.out, size.in, in_blocks, gap);
        Tensor x = Tensor::random({size.rows, size.in}, dtype_, 3, 1);
        Tensor bias = Tensor::random({size.out}, DType::bf16, 4);
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          Tensor found = Tensor::filled({size.rows, size.out}, 7, 2);
          Tensor wanted = Tensor::filled({size.rows, size.out}, 7, 2);
          multiply(device_, x.view(), weight.view(), weight.scale_view(), bias.view(), found.view(),
                   accumulate);
          multiply(oracle, x.view(), weight.view(), weight.scale_view(), bias.view(), wanted.view(),
                   accumulate);
          // Both factors may be rounded to bf16. Codes have a deviation of 118.
          const double numbers = 118 * 0x1p-6 * 4;
          const double tolerance = 8 * 0x1p-8 * numbers * std::sqrt(static_cast<double>(size.in));
          EXPECT_TRUE(all_close(found.values(), wanted.values(), tolerance, 0))
              << size.rows << " × " << size.out << " × " << size.in << ", gap " << gap
              << (in_blocks ? ", blocks" : ", rows");
          EXPECT_TRUE(found.gaps_intact());
        }
      }
}

TEST_P(StoredFp8Test, RefusesScalesOfAnotherShapeAndTheSameBitsForAllRows) {
  Tensor x = Tensor::random({1, 300}, dtype_, 1), y = Tensor::filled({1, 4}, 7);
  StoredFp8 weight(4, 300, true);
  kernels::LinearArgs args{
      .x = x.view(), .weight = weight.view(), .y = y.view(), .weight_scales = weight.scale_view()};
  args.weight_scales = weight.scale_view().slice_columns(0, 2);
  EXPECT_THROW(device_.backend->linear(args, device_.stream), InvalidArgument);
  if (device_.backend->name() == "reference") return;
  args.weight_scales = weight.scale_view();
  args.row_invariant = kernels::RowInvariant::yes;
  EXPECT_THROW(device_.backend->linear(args, device_.stream), Unsupported);
  EXPECT_EQ(y.values(), std::vector<float>(4, 7));
}

}  // namespace
}  // namespace pecia::test
