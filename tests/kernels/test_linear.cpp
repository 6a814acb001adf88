// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Accumulate;
using kernels::RowInvariant;

class Linear : public OpTest {
 protected:
  /// Rounding of the operands of a sum of `depth` products of standard normal numbers: each product
  /// errs by its share of up to the rounding, evenly; six times the deviation of their sum, and the
  /// greatest product of thousands.
  double operand_tolerance(int64_t depth) const {
    return device_.rounding(dtype_) * (10 + 3.5 * std::sqrt(static_cast<double>(depth)));
  }
};
PECIA_INSTANTIATE_OP_TEST(Linear);

TEST_P(Linear, IsTheProductWithTheTransposedWeight) {
  Tensor x({2, 3}, DType::fp32, {1, 2, 3, -1, 0, 0.5f});
  Tensor weight({2, 3}, dtype_, {1, 0, -1, 2, 2, 2});
  Tensor bias({2}, dtype_, {10, -0.5f});
  Tensor y = Tensor::filled({2, 2}, 100.0f);

  device_.backend->linear({x.view(), weight.view(), {}, y.view()}, device_.stream);
  EXPECT_EQ(y.values(), (std::vector<float>{-2, 12, -1.5f, -1}));

  device_.backend->linear({x.view(), weight.view(), bias.view(), y.view()}, device_.stream);
  EXPECT_EQ(y.values(), (std::vector<float>{8, 11.5f, 8.5f, -1.5f}));

  device_.backend->linear({x.view(), weight.view(), bias.view(), y.view(), Accumulate::yes},
                          device_.stream);
  EXPECT_EQ(y.values(), (std::vector<float>{16, 23, 17, -3}));
}

/// Around the tiles: 6 and 14 rows, 16 and 32 columns, 8 and 16 lanes, 32 rows of the small kernel,
/// 84 rows between polls, blocks of 640 of depth and 128 columns.
const Size sizes[] = {{1, 1, 1},     {1, 33, 17},   {2, 5, 15},    {3, 4, 16},     {4, 130, 31},
                      {5, 31, 33},   {8, 17, 640},  {32, 40, 9},   {33, 40, 9},    {14, 32, 64},
                      {15, 33, 65},  {29, 31, 641}, {85, 129, 20}, {6, 16, 1300},  {50, 127, 1300},
                      {1030, 36, 7}, {13, 1, 5},    {84, 15, 3},   {7, 3, 0},      {70, 3, 0},
                      {64, 33, 40},  {65, 33, 40},  {17, 6, 4100}, {70, 33, 1024}, {70, 33, 2048}};

TEST_P(Linear, AgreesWithTheReferenceAtEverySize) {
  if (std::get<0>(GetParam()) == "reference") GTEST_SKIP() << "the oracle itself";
  Device oracle = make_device("reference");
  for (const Size& size : sizes)
    for (const auto& [gap, with_bias, accumulate] : every_pair_of_options(3)) {
      Tensor x = Tensor::random({size.rows, size.in}, DType::fp32, 1, gap);
      Tensor weight = Tensor::random({size.out, size.in}, dtype_, 2, gap);
      Tensor bias = Tensor::random({size.out}, dtype_, 3);
      Tensor y = Tensor::random({size.rows, size.out}, DType::fp32, 4, gap);
      Tensor expected = y;
      const TensorView maybe_bias = with_bias ? bias.view() : TensorView();

      device_.backend->linear({x.view(), weight.view(), maybe_bias, y.view(), accumulate},
                              device_.stream);
      oracle.backend->linear({x.view(), weight.view(), maybe_bias, expected.view(), accumulate},
                             oracle.stream);

      EXPECT_TRUE(all_close(y.values(), expected.values(),
                            sum_tolerance(size.in) + operand_tolerance(size.in), 0x1p-22))
          << size.rows << " rows, " << size.out << " × " << size.in << ", gap " << gap;
      EXPECT_TRUE(y.gaps_intact());
    }
}

TEST_P(Linear, OfARowDoesNotDependOnTheRowsBesideIt) {
  Tensor x = Tensor::random({60, 700}, DType::fp32, 1);
  Tensor weight = Tensor::random({50, 700}, dtype_, 2);
  Tensor all = Tensor::filled({60, 50}, 0), some = Tensor::filled({34, 50}, 0);

  device_.backend->linear({x.view(), weight.view(), {}, all.view()}, device_.stream);
  device_.backend->linear({x.view().slice_rows(17, 34), weight.view(), {}, some.view()},
                          device_.stream);

  const auto whole = all.values();
  EXPECT_EQ(some.values(), std::vector<float>(whole.begin() + 17 * 50, whole.begin() + 51 * 50));
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

class LinearRowInvariant : public Linear {
 protected:
  /// The CUDA backend, whose kernels are slow where they are emulated.
  const bool cuda_ = device_.backend->name() == "cuda";

  /// x times ones, in splits.
  float sum_of(std::vector<float> x, int splits, float bias = 0, float before = 0) {
    const auto depth = static_cast<int64_t>(x.size());
    Tensor row({1, depth}, DType::fp32, std::move(x)),
        weight({1, depth}, dtype_, std::vector(depth, 1.0f));
    Tensor bias_of({1}, DType::fp32, {bias}), y({1, 1}, DType::fp32, {before});
    device_.backend->linear(
        {row.view(), weight.view(), bias == 0 ? TensorView() : bias_of.view(), y.view(),
         before == 0 ? Accumulate::no : Accumulate::yes, RowInvariant::yes, splits},
        device_.stream);
    return y.values().front();
  }
};
PECIA_INSTANTIATE_OP_TEST(LinearRowInvariant);

/// Those of the row computed alone by one thread.
TEST_P(LinearRowInvariant, GivesARowTheSameBitsInEveryCall) {
  const std::string& name = std::get<0>(GetParam());
  if (name == "reference") return;  // slow, and plain loops over each row
  Device alone_on = make_device(name == "cpu_3_threads" ? "cpu" : name);
  const int64_t most_rows = cuda_ ? 68 : 100;
  std::vector<int64_t> counts = {17, 66, 68}, rows = {0, 1, 16, 40, 63, 64, 67};
  if (!cuda_) {
    counts = {2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 17, 20, 24, 25, 31, 32, 33, 39, 55, 85, 100};
    rows.resize(most_rows);
    std::iota(rows.begin(), rows.end(), 0);
  }
  struct Shape {
    int64_t out, in, gap;
  };
  // CPU: around four elements of depth, slabs of 128, blocks of 640 and panels of 16 and 32
  // columns. CUDA: tiles of 32, 64 and 128 columns, steps of 16 elements, 32 and 128 of them copied
  // at once, in chunks of 8 or not.
  for (const Shape shape : {Shape{1, 5, 5},
                            {31, 64, 5},
                            {32, 3, 5},
                            {96, 130, 5},
                            {33, 400, 8},
                            {130, 700, 5},
                            {161, 129, 5},
                            {129, 264, 8}})
    for (const bool with_bias : {false, true}) {
      const Accumulate accumulate = with_bias ? Accumulate::no : Accumulate::yes;
      const auto splits = static_cast<int>(std::gcd(shape.in, int64_t{8}));
      const DType x_type = cuda_ && with_bias ? dtype_ : DType::fp32;
      Tensor x = Tensor::random({most_rows, shape.in}, x_type, 1, shape.gap);
      Tensor weight = Tensor::random({shape.out, shape.in}, dtype_, 2, shape.gap);
      Tensor bias = Tensor::random({shape.out}, dtype_, 3);
      Tensor before = Tensor::random({most_rows, shape.out}, DType::fp32, 4, 1), wanted = before;
      const auto multiply = [&](Device& device, Tensor& y, int64_t begin, int64_t count) {
        device.backend->linear(
            {x.view().slice_rows(begin, count), weight.view(),
             with_bias ? bias.view() : TensorView(), y.view().slice_rows(begin, count), accumulate,
             RowInvariant::yes, splits},
            device.stream);
      };
      for (const int64_t row : rows) multiply(alone_on, wanted, row, 1);
      for (const int64_t count : counts) {
        Tensor y = before;
        for (int64_t begin = 0; begin < most_rows; begin += count)
          multiply(device_, y, begin, std::min(count, most_rows - begin));
        const auto found = bits_of(y.values()), alone = bits_of(wanted.values());
        for (const int64_t row : rows)
          ASSERT_TRUE(std::equal(found.begin() + row * shape.out,
                                 found.begin() + (row + 1) * shape.out,
                                 alone.begin() + row * shape.out))
              << "row " << row << ", " << count << " rows a call, " << shape.out << " × "
              << shape.in;
        EXPECT_TRUE(y.gaps_intact());
      }
    }
}

/// L and u make L in fp32, so that each order of additions has a sum of its own; both are numbers
/// of every type, and so far apart that a sum of more bits makes L of them too.
TEST_P(LinearRowInvariant, SplitsAreSummedAsATree) {
  constexpr float L = 0x1p15f, u = 0x1p-12f;
  // Where sums are rounded to odd, as by BFMMLA, L + u has a last bit; splits of one element tell all.
  const bool to_nearest = sum_of({L, u}, 1) == L;
  if (to_nearest) {
    EXPECT_EQ(sum_of({u, L, -L, u}, 2), 0);
  }
  EXPECT_EQ(sum_of({u, L, -L, u}, 4), 0);
  EXPECT_EQ(sum_of({L, -L, u, 0.5f * u}, 4), 1.5f * u);
  EXPECT_EQ(sum_of({L, u, u, u, -L, u, u, u}, 8), 0);
  EXPECT_EQ(sum_of({L, -L, 3 * u, u, u, u, u, u}, 8), 8 * u);
  EXPECT_EQ(sum_of({L, u, -L, u, 5 * u, 0, 0, 0.5f * u}, 8), 5.5f * u);
  // The bias comes first, with the first split; y last.
  if (to_nearest) {
    EXPECT_EQ(sum_of({u, -L, u, u}, 4, L), 2 * u);
  }
  EXPECT_EQ(sum_of({u, -L, u, u}, 4, 0, L), 0);
  EXPECT_EQ(sum_of({L, -L, u, 0}, 4, 0, 0.25f * u), 1.25f * u);
}

/// Those who hold a part of the columns each, and add their products in pairs, get the whole's
/// bits.
TEST_P(LinearRowInvariant, SplitsOfASubtreeAddUpToTheWhole) {
  for (const int64_t rows : {1, 9, cuda_ ? 66 : 40, cuda_ ? 66 : 700}) {
    constexpr int64_t depth = 8 * 23, out = 150;
    constexpr int splits = 8;
    Tensor x = Tensor::random({rows, depth}, DType::fp32, 1, 3);
    Tensor weight = Tensor::random({out, depth}, dtype_, 2, 5);
    Tensor bias = Tensor::random({out}, dtype_, 3);
    const auto product = [&](int part, int parts) {
      Tensor y = Tensor::filled({rows, out}, 7);
      const int64_t width = depth / parts;
      device_.backend->linear(
          {x.view().slice_columns(part * width, width),
           weight.view().slice_columns(part * width, width), part == 0 ? bias.view() : TensorView(),
           y.view(), Accumulate::no, RowInvariant::yes, splits / parts},
          device_.stream);
      return y.values();
    };
    const auto whole = bits_of(product(0, 1));
    for (const int parts : {2, 4, 8}) {
      std::vector<std::vector<float>> sums;
      for (int part = 0; part < parts; ++part) sums.push_back(product(part, parts));
      for (; sums.size() > 1; sums.resize(sums.size() / 2))
        for (size_t i = 0; i < sums.size() / 2; ++i) {
          std::transform(sums[2 * i].begin(), sums[2 * i].end(), sums[2 * i + 1].begin(),
                         sums[2 * i].begin(), std::plus());
          std::swap(sums[i], sums[2 * i]);
        }
      EXPECT_EQ(bits_of(sums.front()), whole) << parts << " parts, " << rows << " rows";
    }
  }
}

TEST_P(LinearRowInvariant, AgreesWithTheReference) {
  Device oracle = make_device("reference");
  for (const Size& size : sizes) {
    const auto splits = static_cast<int>(std::gcd(size.in, int64_t{8}));
    Tensor x = Tensor::random({size.rows, size.in}, DType::fp32, 1);
    Tensor weight = Tensor::random({size.out, size.in}, dtype_, 2);
    Tensor bias = Tensor::random({size.out}, dtype_, 3);
    Tensor y = Tensor::filled({size.rows, size.out}, 7), expected = y;
    for (Device* device : {&device_, &oracle})
      device->backend->linear(
          {x.view(), weight.view(), bias.view(), (device == &oracle ? expected : y).view(),
           Accumulate::no, RowInvariant::yes, splits},
          device->stream);
    EXPECT_TRUE(all_close(y.values(), expected.values(),
                          sum_tolerance(size.in) + operand_tolerance(size.in), 0x1p-22))
        << size.rows << " rows, " << size.out << " × " << size.in;
  }
}

TEST_P(Linear, RefusesContradictoryShapesBeforeWriting) {
  Tensor x = Tensor::random({2, 3}, DType::fp32, 1), weight = Tensor::random({4, 5}, dtype_, 2);
  Tensor y = Tensor::filled({2, 4}, 9.0f), bias = Tensor::random({3}, dtype_, 3);
  EXPECT_THROW(device_.backend->linear({x.view(), weight.view(), {}, y.view()}, device_.stream),
               InvalidArgument);
  const TensorView fitting = weight.view().slice_columns(0, 3);
  EXPECT_THROW(device_.backend->linear({x.view(), fitting, bias.view(), y.view()}, device_.stream),
               InvalidArgument);
  EXPECT_THROW(device_.backend->linear({x.view(), fitting, {}, x.view()}, device_.stream),
               InvalidArgument);
  const auto in_splits = [&](RowInvariant row_invariant, int64_t depth, int splits) {
    device_.backend->linear({x.view().slice_columns(0, depth),
                             weight.view().slice_columns(0, depth),
                             {},
                             y.view(),
                             Accumulate::no,
                             row_invariant,
                             splits},
                            device_.stream);
  };
  EXPECT_THROW(in_splits(RowInvariant::yes, 3, 3), InvalidArgument);  // no power of two
  EXPECT_THROW(in_splits(RowInvariant::yes, 3, 2), InvalidArgument);  // uneven
  EXPECT_THROW(in_splits(RowInvariant::yes, 2, 0), InvalidArgument);
  EXPECT_THROW(in_splits(RowInvariant::no, 2, 2), InvalidArgument);
  EXPECT_EQ(y.values(), std::vector<float>(8, 9.0f));
}

TEST(LinearPoll, IsCalledByTheCallingThreadWhileItComputes) {
  Device device = make_device("cpu_3_threads");
  Tensor x = Tensor::random({1000, 600}, DType::fp32, 1);
  Tensor weight = Tensor::random({600, 600}, DType::bf16, 2);
  Tensor y = Tensor::filled({1000, 600}, 0);
  const auto caller = std::this_thread::get_id();
  int polls = 0;
  device.stream.set_poll([&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    ++polls;
  });
  device.backend->linear({x.view(), weight.view(), {}, y.view()}, device.stream);
  EXPECT_GT(polls, 0);
}

}  // namespace
}  // namespace pecia::test
