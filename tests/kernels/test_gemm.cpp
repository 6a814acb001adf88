// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/cpu/products/bf16_few_rows.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/products/bf16_products.hpp"
#include "kernels/cpu/products/dot.hpp"
#include "kernels/cpu/products/gemm.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using namespace kernels::cpu;

TEST(PackTransposed, PutsElementsInPanelsAndZerosPastTheEnd) {
  for (const DType dtype : kv_types)
    for (const int64_t columns : {1, 3, 4, 15, 16, 17, 32, 33, 70})
      for (const int64_t depth : {0, 1, 4, 7, 20}) {
        Tensor rows = Tensor::random({columns, depth}, dtype, 1, 2);
        std::vector<float> packed(padded_columns(columns) * depth + 16, -7.0f);
        // Aligned as the backend's scratch memory is.
        float* aligned = packed.data();
        while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
        pack_transposed({rows.view().data(), dtype, depth + 2, columns, depth, aligned});
        const auto values = rows.values();
        for (int64_t c = 0; c < padded_columns(columns); ++c)
          for (int64_t i = 0; i < depth; ++i) {
            const int64_t panel = c / panel_columns(), in_panel = c % panel_columns();
            ASSERT_EQ(aligned[(panel * depth + i) * panel_columns() + in_panel],
                      c < columns ? values[c * depth + i] : 0.0f)
                << "column " << c << " of " << columns << ", element " << i;
          }
      }
}

TEST(WidenRows, WidensAndPadsWithZeros) {
  for (const DType dtype : kv_types)
    for (const int64_t width : {1, 7, 16, 37}) {
      Tensor rows = Tensor::random({3, width}, dtype, 1, 1);
      std::vector<float> wide(3 * (width + 2), -7.0f);
      widen_rows(rows.view().data(), dtype, width + 1, 3, width, wide.data(), width + 2);
      const auto values = rows.values();
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t i = 0; i < width + 2; ++i)
          ASSERT_EQ(wide[r * (width + 2) + i], i < width ? values[r * width + i] : 0.0f);
    }
}

TEST(WidenRows, WidensEveryFp8Code) {
  std::vector<uint8_t> codes(256 + 9);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  const auto count = static_cast<int64_t>(codes.size());
  std::vector<float> wide(codes.size()), expected;
  widen_rows(codes.data(), DType::fp8, count, 1, count, wide.data(), count);
  for (const uint8_t code : codes) expected.push_back(fp8_to_float(code));
  EXPECT_TRUE(all_close(wide, expected, 0));
  EXPECT_TRUE(std::signbit(wide[128]));  // −0
}

class DotRows : public testing::TestWithParam<DType> {};

TEST_P(DotRows, AgreesWithGemm) {
  const DType dtype = GetParam();
  for (const int64_t rows : {1, 3, 4, 5, 9})
    for (const int64_t columns : {1, 3, 16, 33})
      for (const int64_t depth : {1, 16, 50}) {
        Tensor a = Tensor::random({rows, depth}, DType::fp32, 1);
        Tensor b = Tensor::random({columns, depth}, dtype, 2);
        std::vector<float> packed(padded_columns(columns) * depth + 16);
        float* aligned = packed.data();
        while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
        std::vector<float> dots(rows * columns, 1.0f), products(rows * columns, 1.0f);
        dot_rows({a.view().as<float>(), depth, b.view().data(), dtype, depth, dots.data(), columns,
                  rows, columns, depth, true});
        pack_transposed({b.view().data(), dtype, depth, columns, depth, aligned});
        gemm({a.view().as<float>(), depth, aligned, panel_columns(), panel_columns() * depth,
              products.data(), columns, rows, columns, depth, true});
        EXPECT_TRUE(all_close(dots, products, sum_tolerance(depth), 0x1p-22));
      }
}

/// Random numbers of bf16, with one more after the last.
std::vector<uint16_t> bf16_elements(int64_t count, uint64_t seed) {
  std::vector<uint16_t> numbers;
  for (const float number : random_floats(count + 1, seed))
    numbers.push_back(float_to_bf16(number));
  return numbers;
}

/// On a CPU without the instructions there is nothing to test.
class FewRowsOfBf16 : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_native_bf16()) GTEST_SKIP() << "this CPU has no products of bf16";
  }

  /// c (+)= a · b, by panels.
  static std::vector<float> by_panels(const DotBf16Args& args, std::vector<float> c) {
    std::vector<uint16_t> packed((args.columns + bf16_panel) * (args.depth + 2));
    pack_bf16({args.b, args.b_stride, args.columns, args.depth, packed.data()});
    gemm_bf16({.a = args.a,
               .a_stride = args.a_stride,
               .b = packed.data(),
               .c = c.data(),
               .c_stride = args.c_stride,
               .rows = args.rows,
               .columns = args.columns,
               .depth = args.depth,
               .accumulate = args.accumulate});
    return c;
  }
};

TEST_F(FewRowsOfBf16, HaveTheBitsOfMany) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 14, 15, 33, 64, 65})
    for (const int64_t columns : {1, 15, 16, 17, 32, 33, 70})
      for (const int64_t depth : {1, 2, 31, 32, 33, 64, 130, 300})
        for (const bool accumulate : {false, true}) {
          const auto a = bf16_elements(rows * depth, 1), b = bf16_elements(columns * depth, 2);
          std::vector<float> c = random_floats(rows * columns, 3);
          DotBf16Args args{.a = a.data(),
                           .a_stride = depth,
                           .b = b.data(),
                           .b_stride = depth,
                           .c = c.data(),
                           .c_stride = columns,
                           .rows = rows,
                           .columns = columns,
                           .depth = depth,
                           .accumulate = accumulate};
          const std::vector<float> expected = by_panels(args, c);
          dot_bf16(args);
          ASSERT_EQ(c, expected) << rows << " × " << columns << " × " << depth;
        }
}

TEST_F(FewRowsOfBf16, AddRowsWithTheBitsOfMany) {
  for (const int64_t rows : {1, 3, 4, 5, 9})
    for (const int64_t columns : {1, 16, 33, 64, 96})
      for (const int64_t depth : {1, 2, 63, 128}) {
        const auto a = bf16_elements(rows * depth, 1), b = bf16_elements(columns * depth, 2);
        std::vector<float> c = random_floats(rows * columns, 3);
        std::vector<uint16_t> transposed(columns * depth);
        for (int64_t i = 0; i < depth; ++i)
          for (int64_t o = 0; o < columns; ++o) transposed[o * depth + i] = b[i * columns + o];
        const std::vector<float> expected = by_panels({.a = a.data(),
                                                       .a_stride = depth,
                                                       .b = transposed.data(),
                                                       .b_stride = depth,
                                                       .c = c.data(),
                                                       .c_stride = columns,
                                                       .rows = rows,
                                                       .columns = columns,
                                                       .depth = depth,
                                                       .accumulate = true},
                                                      c);
        add_rows_bf16({.a = a.data(),
                       .a_stride = depth,
                       .b = b.data(),
                       .b_stride = columns,
                       .c = c.data(),
                       .c_stride = columns,
                       .rows = rows,
                       .columns = columns,
                       .depth = depth,
                       .ahead = 0});
        ASSERT_EQ(c, expected) << rows << " × " << columns << " × " << depth;
      }
}

INSTANTIATE_TEST_SUITE_P(Types, DotRows, testing::Values(DType::bf16, DType::fp8),
                         [](const auto& type) { return std::string(name_of(type.param)); });

}  // namespace
}  // namespace pecia::test
