// SPDX-License-Identifier: Apache-2.0
/// Products by tiles. The twin is held against literals of the manual's order and rounding on every
/// CPU. The instructions are held against the twin, bit by bit, where the CPU has them.

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/attention/attention_plan.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/products/amx_kernel.hpp"
#include "kernels/cpu/products/tile_products.hpp"
#include "kernels/cpu/products/twin_tiles.hpp"
#include "kernels/cpu/x86/amx_tiles.hpp"
#include "lib/base/core/isa.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using namespace kernels::cpu;

template <class Tiles>
struct InTiles {
  InTiles() { Tiles::begin(); }
  InTiles(const InTiles&) = delete;
  InTiles& operator=(const InTiles&) = delete;
  ~InTiles() { Tiles::end(); }
};

/// Operands of one product of tiles.
struct TileOperands {
  uint16_t a[16][32] = {};     ///< row m, element
  uint16_t b[16][16][2] = {};  ///< pair, column n, element of the pair
  float sum[16][16] = {};
};

template <class Tiles>
TileOperands multiplied(TileOperands of) {
  const InTiles<Tiles> use;
  Tiles::template load<2>(of.sum, 64);
  Tiles::template load<4>(of.a, 64);
  Tiles::template load<7>(of.b, 64);
  Tiles::template multiply<2, 4, 7>();
  Tiles::template store<2>(of.sum, 64);
  return of;
}

/// Σ of a row of a, each element times 1, on top of `before`.
template <class Tiles>
float sum_of(const std::vector<float>& elements, float before = 0) {
  TileOperands of;
  for (size_t i = 0; i < elements.size(); ++i) {
    of.a[3][i] = float_to_bf16(elements[i]);
    of.b[i / 2][5][i % 2] = float_to_bf16(1);
  }
  of.sum[3][5] = before;
  return multiplied<Tiles>(of).sum[3][5];
}

/// One product of two elements, on top of `before`.
template <class Tiles>
float product_of(float a, float b, float before = 0) {
  TileOperands of;
  of.a[0][0] = float_to_bf16(a);
  of.b[0][0][0] = float_to_bf16(b);
  of.sum[0][0] = before;
  return multiplied<Tiles>(of).sum[0][0];
}

constexpr float L = 0x1p25f;  // L + 1 is L in fp32

template <class Tiles>
void add_in_the_order_of_the_manual() {
  // Even elements and odd elements are chains of their own.
  EXPECT_EQ(sum_of<Tiles>({L, 1, -L, 1}), 2);
  EXPECT_EQ(sum_of<Tiles>({L, 0, 1, 0, -L, 0}), 0);
  EXPECT_EQ(sum_of<Tiles>({1, L, 0, -L}), 1);
  EXPECT_EQ(sum_of<Tiles>({L, 1, 0, 1, -L, 1}), 3);
  // The two chains are added to each other, and then to what was there.
  EXPECT_EQ(sum_of<Tiles>({L, -L}, 1), 1);
  EXPECT_EQ(sum_of<Tiles>({1, 0}, L), L);
  EXPECT_EQ(sum_of<Tiles>({1, 0, 1, 0, 1, 1}, L), L + 4);
}

template <class Tiles>
void round_to_nearest_even_and_flush_denormals() {
  EXPECT_EQ(product_of<Tiles>(1, 1, 0x1p24f), 0x1p24f);          // a tie, to even
  EXPECT_EQ(product_of<Tiles>(1, 1, 0x1p24f + 2), 0x1p24f + 4);  // a tie, to even
  EXPECT_EQ(product_of<Tiles>(1.0078125f, 1, 0x1p24f), 0x1p24f + 2);
  // A product of two numbers of bf16 is exact, and the addition rounds once.
  EXPECT_EQ(product_of<Tiles>(1.0078125f, 1.0078125f, 0), 1.01568603515625f);
  constexpr float least = 0x1p-126f;
  EXPECT_EQ(product_of<Tiles>(least, 1), least);
  EXPECT_EQ(product_of<Tiles>(least, 0.5f), 0);             // a denormal result
  EXPECT_EQ(product_of<Tiles>(least / 2, 0x1p100f), 0);     // a denormal operand of a
  EXPECT_EQ(product_of<Tiles>(0x1p100f, least / 2), 0);     // … of b
  EXPECT_EQ(product_of<Tiles>(0, 0, least / 2), 0);         // … of the sum
  EXPECT_EQ(product_of<Tiles>(least, 0.5f, least), least);  // the chain's result is flushed
  EXPECT_EQ(product_of<Tiles>(0x1p100f, 0x1p100f), infinity);
  EXPECT_TRUE(std::isnan(product_of<Tiles>(infinity, 0)));
  EXPECT_TRUE(std::isnan(product_of<Tiles>(NAN, 0)));
}

TEST(TwinTiles, AddInTheOrderOfTheManual) {
  add_in_the_order_of_the_manual<TwinTiles>();
}
TEST(TwinTiles, RoundToNearestEvenAndFlushDenormals) {
  round_to_nearest_even_and_flush_denormals<TwinTiles>();
  volatile float denormal = 0x1p-127f;
  EXPECT_EQ(denormal * 1.0f, 0x1p-127f) << "outside of products denormals are numbers";
}

TEST(TwinTiles, TakeEachElementFromItsPlace) {
  TileOperands of;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      for (int pair = 0; pair < 2; ++pair) {
        of.a[i][2 * j + pair] = float_to_bf16(static_cast<float>((5 * i + 3 * j + pair) % 7 - 3));
        of.b[i][j][pair] = float_to_bf16(static_cast<float>((2 * i + 5 * j + 4 * pair) % 9 - 4));
        of.sum[i][j] = static_cast<float>(100 * i + j);
      }
  const TileOperands found = multiplied<TwinTiles>(of);
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      int wanted = 100 * m + n;
      for (int i = 0; i < 32; ++i)
        wanted +=
            ((5 * m + 3 * (i / 2) + i % 2) % 7 - 3) * ((2 * (i / 2) + 5 * n + 4 * (i % 2)) % 9 - 4);
      ASSERT_EQ(found.sum[m][n], static_cast<float>(wanted)) << m << ", " << n;
    }
}

TEST(TwinTiles, AreUsedOnlyBetweenBeginAndEnd) {
  float sums[16][16] = {};
  EXPECT_THROW(TwinTiles::zero<0>(), InvalidArgument);
  EXPECT_THROW(TwinTiles::end(), InvalidArgument);
  TwinTiles::begin();
  EXPECT_THROW(TwinTiles::begin(), InvalidArgument);
  EXPECT_NO_THROW(TwinTiles::load<0>(sums, 64));
  EXPECT_THROW((TwinTiles::multiply<0, 0, 1>()), InvalidArgument);
  TwinTiles::end();
  EXPECT_THROW(TwinTiles::store<0>(sums, 64), InvalidArgument);
}

/// Rows [columns, depth] in panels of 32 columns, pairs and whole tiles, by plain loops. From whole
/// tiles up to `panel_depth` there is `rest`.
std::vector<uint16_t> packed_for_tiles(const std::vector<uint16_t>& rows, int64_t columns,
                                       int64_t depth, int64_t panel_depth, uint16_t rest) {
  const int64_t whole = (depth + 31) / 32 * 32, panels = (columns + 31) / 32;
  const int64_t padded = std::max(whole, panel_depth);
  std::vector<uint16_t> packed(panels * 32 * padded, 0);
  for (int64_t panel = 0; panel < panels; ++panel)
    std::fill(packed.begin() + (panel * padded + whole) * 32,
              packed.begin() + (panel + 1) * padded * 32, rest);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t i = 0; i < depth; ++i)
      packed[c / 32 * 32 * padded + i / 2 * 64 + c % 32 * 2 + i % 2] = rows[c * depth + i];
  return packed;
}

std::vector<uint16_t> random_bf16(int64_t count, uint64_t seed) {
  std::vector<uint16_t> bits;
  for (const float value : random_floats(count, seed)) bits.push_back(float_to_bf16(value));
  return bits;
}

/// A product by gemm_tiles; a's rows are followed by NaN, which nothing may read.
struct Product {
  int64_t rows, columns, depth, gap;
  bool accumulate;
  int64_t deeper = 0;  ///< elements that panels have after those of the product, all NaN

  template <class Tiles>
  std::vector<float> by() const {
    const uint16_t nan = 0x7fc0;
    const auto dense = random_bf16(rows * depth, 1), b = random_bf16(columns * depth, 2);
    std::vector<uint16_t> a;
    for (int64_t r = 0; r < rows; ++r) {
      a.insert(a.end(), dense.begin() + r * depth, dense.begin() + (r + 1) * depth);
      a.insert(a.end(), gap, nan);
    }
    const auto packed = packed_for_tiles(b, columns, depth, depth + deeper, nan);
    std::vector<float> c = random_floats(rows * (columns + gap), 3);
    const InTiles<Tiles> use;
    gemm_tiles<Tiles>({.a = a.data(),
                       .a_stride = depth + gap,
                       .b = packed.data(),
                       .c = c.data(),
                       .c_stride = columns + gap,
                       .rows = rows,
                       .columns = columns,
                       .depth = depth,
                       .accumulate = accumulate,
                       .panel_depth = deeper > 0 ? depth + deeper : 0});
    return c;
  }

  /// In double, of the same operands.
  std::vector<float> expected() const {
    const auto a = random_bf16(rows * depth, 1), b = random_bf16(columns * depth, 2);
    std::vector<float> c = random_floats(rows * (columns + gap), 3);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t o = 0; o < columns; ++o) {
        float& to = c[r * (columns + gap) + o];
        double sum = 0;
        for (int64_t i = 0; i < depth; ++i)
          sum += static_cast<double>(bf16_to_float(a[r * depth + i])) *
                 static_cast<double>(bf16_to_float(b[o * depth + i]));
        to = static_cast<float>(accumulate ? static_cast<double>(to) + sum : sum);
      }
    return c;
  }
};

/// Around tiles of 16 rows and columns, squares of 32, steps of 32 and pieces of 320 of depth.
const Product every_product[] = {
    {1, 1, 1, 3, false},     {16, 32, 32, 0, false},   {16, 32, 32, 3, true},
    {15, 31, 31, 3, false},  {17, 33, 33, 3, true},    {32, 32, 64, 5, false},
    {33, 65, 96, 0, false},  {48, 64, 320, 3, true},   {40, 40, 321, 3, false},
    {64, 32, 640, 0, false}, {70, 100, 1000, 3, true}, {5, 3, 0, 3, false},
    {5, 3, 0, 3, true},
};

TEST(GemmTiles, IsTheProductAtEverySize) {
  for (const Product& product : every_product)
    EXPECT_TRUE(all_close(product.by<TwinTiles>(), product.expected(), sum_tolerance(product.depth),
                          0x1p-22))
        << product.rows << " × " << product.columns << " × " << product.depth;
}

/// A copy of rows or sums costs several times the product (measured), so only odd sizes may need one.
TEST(GemmTiles, CopyNothingAtUsualSizes) {
  const auto copies = [](const Product& product) {
    const int64_t before = copied_squares;
    product.by<TwinTiles>();
    return copied_squares - before;
  };
  for (const int64_t rows : {16, 32, 48, 512})
    for (const auto& [columns, depth] :
         {std::pair<int64_t, int64_t>{64, 576}, {96, 64}, {32, 1536}})
      EXPECT_EQ(copies({rows, columns, depth, 0, false}), 0) << rows << ", " << columns;
  EXPECT_GT(copies({17, 32, 32, 0, false}), 0);
  EXPECT_GT(copies({32, 33, 32, 0, false}), 0);
  EXPECT_GT(copies({32, 32, 33, 0, false}), 0);
}

TEST(GemmTiles, TakesTheFirstElementsOfDeeperPanels) {
  const Product product{40, 65, 96, 0, true};
  Product deeper = product;
  deeper.deeper = 64;
  EXPECT_EQ(deeper.by<TwinTiles>(), product.by<TwinTiles>());
}

TEST(GemmBf16, TakesTheFirstElementsOfDeeperPanels) {
  if (!kernels::cpu_has_bf16_products()) GTEST_SKIP() << "no AVX512-BF16";
  constexpr int64_t rows = 15, columns = 65, depth = 34, whole = 96, padded = 96;
  const auto a = random_bf16(rows * whole, 1), b = random_bf16(columns * whole, 2);
  std::vector<uint16_t> short_panels(padded * depth), long_panels(padded * whole);
  pack_bf16({b.data(), whole, columns, depth, short_panels.data()});
  pack_bf16({b.data(), whole, columns, whole, long_panels.data()});
  const auto product = [&](const std::vector<uint16_t>& panels, int64_t panel_depth) {
    std::vector<float> c(rows * columns);
    gemm_bf16({.a = a.data(),
               .a_stride = whole,
               .b = panels.data(),
               .c = c.data(),
               .c_stride = columns,
               .rows = rows,
               .columns = columns,
               .depth = depth,
               .accumulate = false,
               .panel_depth = panel_depth});
    return c;
  };
  EXPECT_EQ(product(long_panels, whole), product(short_panels, 0));
}

TEST(GemmTiles, OfARowDoesNotDependOnTheRowsBesideIt) {
  const Product all{70, 40, 400, 0, false, 1}, one{1, 40, 400, 0, false, 1};
  const auto of_all = all.by<TwinTiles>(), of_one = one.by<TwinTiles>();
  EXPECT_TRUE(std::equal(of_one.begin(), of_one.end(), of_all.begin()));
}

TEST(Amx, GivesTheTwinsBits) {
  if (!why_no_amx_products().empty()) GTEST_SKIP() << "no AMX: " << why_no_amx_products();
  add_in_the_order_of_the_manual<AmxTiles>();
  round_to_nearest_even_and_flush_denormals<AmxTiles>();
  for (const Product& product : every_product) {
    const auto found = product.by<AmxTiles>(), wanted = product.by<TwinTiles>();
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(wanted[i]))
          << product.rows << " × " << product.columns << " × " << product.depth << ", number " << i;
  }
}

TEST(Amx, IsSaidToBeMissingWithAReason) {
  EXPECT_EQ(why_no_amx().empty(), isa() == Isa::amx_bf16);
  if (isa() < Isa::amx_bf16) {
    EXPECT_EQ(why_no_amx_products(), why_no_amx());
    EXPECT_THROW(kernels::make_cpu_backend(kernels::MatmulKind::amx), Unsupported);
  }
}

/// The check at first use, on kernels that are right and wrong.
TEST(Amx, IsNotUsedWhereItMultipliesWrongly) {
  if (!kernels::cpu_has_bf16_products()) GTEST_SKIP() << "the packing needs AVX512-BF16";
  EXPECT_EQ(difference(twin_kernel(), twin_kernel()), "");
  EXPECT_EQ(difference(bf16_vectors(), twin_kernel()), "") << "sums of integers are exact";
  Bf16Kernel wrong = twin_kernel();
  wrong.multiply = [](const GemmBf16Args& args) {
    twin_kernel().multiply(args);
    args.c[2 * args.c_stride + 3] = std::numeric_limits<float>::quiet_NaN();
  };
  EXPECT_NE(difference(wrong, twin_kernel()).find("element [2, 3] is nan and should be "),
            std::string::npos);
}

}  // namespace
}  // namespace pecia::test
