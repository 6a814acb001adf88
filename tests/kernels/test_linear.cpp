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

struct Size {
  int64_t rows, out, in;
};

/// Around the tiles: 6 and 14 rows, 16 and 32 columns, 8 and 16 lanes, 32 rows of the small kernel,
/// 84 rows between polls, blocks of 640 of depth and 128 columns.
const Size sizes[] = {{1, 1, 1},     {1, 33, 17},   {2, 5, 15},    {3, 4, 16},    {4, 130, 31},
                      {5, 31, 33},   {8, 17, 640},  {32, 40, 9},   {33, 40, 9},   {14, 32, 64},
                      {15, 33, 65},  {29, 31, 641}, {85, 129, 20}, {6, 16, 1300}, {50, 127, 1300},
                      {1030, 36, 7}, {13, 1, 5},    {84, 15, 3},   {7, 3, 0},     {70, 3, 0}};

TEST_P(Linear, AgreesWithTheReferenceAtEverySize) {
  Device oracle = make_device("reference");
  for (const Size& size : sizes)
    for (const int64_t gap : {0, 3})
      for (const bool with_bias : {false, true})
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
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

/// Those of the row computed alone by one thread.
TEST(LinearRowInvariant, GivesARowTheSameBitsInEveryCall) {
  constexpr int64_t most_rows = 100;
  Device one_thread = make_device("cpu"), three_threads = make_device("cpu_3_threads");
  struct Shape {
    int64_t out, in;
  };
  // Around four elements of depth, slabs of 128, blocks of 640 and panels of 16 and 32 columns.
  for (const Shape shape : {Shape{1, 5}, {31, 64}, {32, 3}, {96, 130}, {130, 700}, {161, 129}})
    for (const DType dtype : stored_types)
      for (const bool with_bias : {false, true}) {
        const Accumulate accumulate = with_bias ? Accumulate::no : Accumulate::yes;
        const auto splits = static_cast<int>(std::gcd(shape.in, int64_t{8}));
        Tensor x = Tensor::random({most_rows, shape.in}, DType::fp32, 1, 3);
        Tensor weight = Tensor::random({shape.out, shape.in}, dtype, 2, 5);
        Tensor bias = Tensor::random({shape.out}, dtype, 3);
        Tensor before = Tensor::random({most_rows, shape.out}, DType::fp32, 4, 1), wanted = before;
        const auto multiply = [&](Device& device, Tensor& y, int64_t begin, int64_t count) {
          device.backend->linear(
              {x.view().slice_rows(begin, count), weight.view(),
               with_bias ? bias.view() : TensorView(), y.view().slice_rows(begin, count),
               accumulate, RowInvariant::yes, splits},
              device.stream);
        };
        for (int64_t row = 0; row < most_rows; ++row) multiply(one_thread, wanted, row, 1);
        for (Device* device : {&one_thread, &three_threads})
          for (int64_t count = 1; count <= most_rows; count += count < 40 ? 1 : 15) {
            Tensor y = before;
            for (int64_t begin = 0; begin < most_rows; begin += count)
              multiply(*device, y, begin, std::min(count, most_rows - begin));
            ASSERT_EQ(bits_of(y.values()), bits_of(wanted.values()))
                << count << " rows a call, " << shape.out << " × " << shape.in << ", "
                << name_of(dtype);
            EXPECT_TRUE(y.gaps_intact());
          }
      }
}

/// x times ones, in splits.
float sum_of(Device& device, DType dtype, std::vector<float> x, int splits, float bias = 0,
             float before = 0) {
  const auto depth = static_cast<int64_t>(x.size());
  Tensor row({1, depth}, DType::fp32, std::move(x)),
      weight({1, depth}, dtype, std::vector(depth, 1.0f));
  Tensor bias_of({1}, DType::fp32, {bias}), y({1, 1}, DType::fp32, {before});
  device.backend->linear(
      {row.view(), weight.view(), bias == 0 ? TensorView() : bias_of.view(), y.view(),
       before == 0 ? Accumulate::no : Accumulate::yes, RowInvariant::yes, splits},
      device.stream);
  return y.values().front();
}

/// 1e8 and 1 make 1e8 in fp32, so that each order of additions has a sum of its own.
TEST(LinearRowInvariant, SplitsAreSummedAsATree) {
  for (const std::string name : {"reference", "cpu", "cpu_3_threads"})
    for (const DType dtype : stored_types) {
      SCOPED_TRACE(name);
      Device device = make_device(name);
      EXPECT_EQ(sum_of(device, dtype, {1, 1e8f, -1e8f, 1}, 2), 0);
      EXPECT_EQ(sum_of(device, dtype, {1, 1e8f, -1e8f, 1}, 4), 0);
      EXPECT_EQ(sum_of(device, dtype, {1e8f, -1e8f, 1, 0.5f}, 4), 1.5f);
      EXPECT_EQ(sum_of(device, dtype, {1e8f, 1, 1, 1, -1e8f, 1, 1, 1}, 8), 0);
      EXPECT_EQ(sum_of(device, dtype, {1e8f, -1e8f, 3, 1, 1, 1, 1, 1}, 8), 8);
      EXPECT_EQ(sum_of(device, dtype, {1e8f, 1, -1e8f, 1, 5, 0, 0, 0.5f}, 8), 5.5f);
      // The bias comes first, with the first split; y last.
      EXPECT_EQ(sum_of(device, dtype, {1, -1e8f, 1, 1}, 4, 1e8f), 2);
      EXPECT_EQ(sum_of(device, dtype, {1, -1e8f, 1, 1}, 4, 0, 1e8f), 0);
      EXPECT_EQ(sum_of(device, dtype, {1e8f, -1e8f, 1, 0}, 4, 0, 0.25f), 1.25f);
    }
}

/// Those who hold a part of the columns each, and add their products in pairs, get the whole's
/// bits.
TEST(LinearRowInvariant, SplitsOfASubtreeAddUpToTheWhole) {
  Device device = make_device("cpu_3_threads");
  for (const int64_t rows : {1, 9, 40, 700})
    for (const DType dtype : stored_types) {
      constexpr int64_t depth = 8 * 23, out = 150;
      constexpr int splits = 8;
      Tensor x = Tensor::random({rows, depth}, DType::fp32, 1, 3);
      Tensor weight = Tensor::random({out, depth}, dtype, 2, 5);
      Tensor bias = Tensor::random({out}, dtype, 3);
      const auto product = [&](int part, int parts) {
        Tensor y = Tensor::filled({rows, out}, 7);
        const int64_t width = depth / parts;
        device.backend->linear({x.view().slice_columns(part * width, width),
                                weight.view().slice_columns(part * width, width),
                                part == 0 ? bias.view() : TensorView(), y.view(), Accumulate::no,
                                RowInvariant::yes, splits / parts},
                               device.stream);
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

TEST_P(Linear, RowInvariantAgreesWithTheReference) {
  Device oracle = make_device("reference");
  if (device_.backend->name() == "cuda") {
    Tensor x = Tensor::filled({1, 1}, 1), y = Tensor::filled({1, 1}, 7);
    EXPECT_THROW(
        device_.backend->linear(
            {x.view(), x.view(), {}, y.view(), Accumulate::no, RowInvariant::yes}, device_.stream),
        Unsupported);
    return;
  }
  for (const Size& size : sizes) {
    const auto splits = static_cast<int>(std::gcd(size.in, int64_t{8}));
    Tensor x = Tensor::random({size.rows, size.in}, DType::fp32, 1);
    Tensor weight = Tensor::random({size.out, size.in}, dtype_, 2);
    Tensor y = Tensor::filled({size.rows, size.out}, 7), expected = y;
    for (Device* device : {&device_, &oracle})
      device->backend->linear({x.view(),
                               weight.view(),
                               {},
                               (device == &oracle ? expected : y).view(),
                               Accumulate::no,
                               RowInvariant::yes,
                               splits},
                              device->stream);
    EXPECT_TRUE(all_close(y.values(), expected.values(), sum_tolerance(size.in), 0x1p-22))
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
