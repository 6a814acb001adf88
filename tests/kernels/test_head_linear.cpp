// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::HeadLinearArgs;
using kernels::RowInvariant;

PECIA_OP_TEST(HeadLinear);

/// Heads of x are x_step apart, or the same; heads of y lie beside each other, or one after the other.
struct HeadProduct {
  int64_t heads, rows, in, out;
  bool same_x = false, y_behind = false;
};

class HeadTensors {
 public:
  HeadTensors(const HeadProduct& of, DType dtype)
      : of_(of),
        x(Tensor::random({of.rows, (of.same_x ? 1 : of.heads) * (of.in + gap)}, DType::fp32, 1)),
        weight(Tensor::random({of.heads * of.out, of.in}, dtype, 2)),
        y(Tensor::filled({rows_of_y(), columns_of_y()}, 55.0f)) {}

  HeadLinearArgs args(RowInvariant row_invariant = RowInvariant::no) {
    return {.heads = of_.heads,
            .x = x.view().slice_columns(0, of_.in),
            .x_step = of_.same_x ? 0 : of_.in + gap,
            .weight = weight.view(),
            .y = y.view().slice_rows(0, of_.rows).slice_columns(0, of_.out),
            .y_step = of_.y_behind ? of_.rows * (of_.out + gap) : of_.out + gap,
            .row_invariant = row_invariant};
  }

 private:
  static constexpr int64_t gap = 4;  // numbers of a head beyond those of the product
  int64_t rows_of_y() const { return (of_.y_behind ? of_.heads : 1) * of_.rows; }
  int64_t columns_of_y() const { return (of_.y_behind ? 1 : of_.heads) * (of_.out + gap); }
  HeadProduct of_;

 public:
  Tensor x, weight, y;
};

TEST_P(HeadLinear, MultipliesEachHeadByItsMatrix) {
  // Two rows of two heads of two numbers, of which the product takes the first.
  Tensor x({2, 4}, DType::fp32, {1, 9, 2, 9, 3, 9, -4, 9});
  Tensor weight({4, 1}, dtype_, {1, 2, 10, 20});
  Tensor y = Tensor::filled({2, 6}, 55.0f);
  device_.backend->head_linear({.heads = 2,
                                .x = x.view().slice_columns(0, 1),
                                .x_step = 2,
                                .weight = weight.view(),
                                .y = y.view().slice_columns(0, 2),
                                .y_step = 3},
                               device_.stream);
  EXPECT_EQ(y.values(), (std::vector<float>{1, 2, 55, 20, 40, 55, 3, 6, 55, -40, -80, 55}));
}

/// Of few rows and of many, around the tiles of `linear`.
constexpr HeadProduct head_products[] = {{1, 1, 1, 1},
                                         {3, 2, 12, 40},
                                         {5, 33, 17, 9},
                                         {2, 40, 1024, 8, false, true},  // rows that share a set
                                         {4, 40, 64, 130, true, true},
                                         {3, 7, 20, 33, true},
                                         {2, 5, 0, 3},
                                         {2, 0, 4, 4}};

TEST_P(HeadLinear, AgreesWithTheReference) {
  Device oracle = make_device("reference");
  for (const RowInvariant invariant : {RowInvariant::no, RowInvariant::yes})
    for (const HeadProduct& product : head_products) {
      SCOPED_TRACE(testing::Message() << product.heads << " heads, " << product.rows << " rows, "
                                      << product.out << " × " << product.in);
      HeadTensors tensors(product, dtype_), expected(product, dtype_);
      device_.backend->head_linear(tensors.args(invariant), device_.stream);
      oracle.backend->head_linear(expected.args(invariant), oracle.stream);
      // As in TEST(Linear): sums in fp32, and operands rounded where the device rounds them.
      const double rounded =
          device_.rounding(dtype_) * (10 + 3.5 * std::sqrt(static_cast<double>(product.in)));
      EXPECT_TRUE(all_close(tensors.y.values(), expected.y.values(),
                            sum_tolerance(product.in) + rounded, 0x1p-22));
    }
}

TEST_P(HeadLinear, KeepsTheBitsOfARowThatStandsAlone) {
  if (std::get<0>(GetParam()) == "reference") return;
  for (const int64_t rows : {5, 70}) {
    HeadTensors all({3, rows, 130, 50}, dtype_);
    device_.backend->head_linear(all.args(RowInvariant::yes), device_.stream);
    const std::vector<float> together = all.y.values();
    HeadLinearArgs one = all.args(RowInvariant::yes);
    one.x = one.x.slice_rows(rows - 2, 1), one.y = one.y.slice_rows(rows - 2, 1);
    device_.backend->head_linear(one, device_.stream);
    EXPECT_EQ(all.y.values(), together);
  }
}

TEST_P(HeadLinear, RefusesHeadsThatOverlap) {
  HeadTensors tensors({2, 3, 4, 8}, dtype_);
  HeadLinearArgs args = tensors.args();
  args.y_step = 7;
  EXPECT_THROW(device_.backend->head_linear(args, device_.stream), InvalidArgument);
  args = tensors.args();
  args.weight = args.weight.slice_rows(0, 8);
  EXPECT_THROW(device_.backend->head_linear(args, device_.stream), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
