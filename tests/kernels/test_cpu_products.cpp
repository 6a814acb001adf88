// SPDX-License-Identifier: Apache-2.0
/// Products of the CPU that differ by the number of rows.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/api/backend.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/base/core/random.hpp"
#include "lib/base/device/buffer.hpp"

namespace pecia::kernels {
namespace {

constexpr int64_t depth = 96, columns = 40;

/// y of some rows, with numbers that bf16 does not hold.
std::vector<float> product(const CpuProducts& products, int64_t rows,
                           RowInvariant row_invariant = RowInvariant::no) {
  device::Buffer x_buffer, weight_buffer, y_buffer;
  const TensorView x = x_buffer.tensor(DType::fp32, {rows, depth});
  const TensorView weight = weight_buffer.tensor(DType::bf16, {columns, depth});
  const TensorView y = y_buffer.tensor(DType::fp32, {rows, columns});
  for (int64_t i = 0; i < x.elements(); ++i)
    x.as<float>()[i] = static_cast<float>(uniform(1, static_cast<uint64_t>(i))) - 0.5f;
  for (int64_t i = 0; i < weight.elements(); ++i)
    store_from_float(weight.data(), DType::bf16, i,
                     static_cast<float>(uniform(2, static_cast<uint64_t>(i))) - 0.5f);
  device::Stream stream(2);
  LinearArgs args{x, weight, {}, y};
  args.row_invariant = row_invariant;
  make_cpu_backend(products)->linear(args, stream);
  const auto* const values = y.as<float>();
  return {values, values + y.elements()};
}

bool same_bits(const std::vector<float>& one, const std::vector<float>& other) {
  return one.size() == other.size() &&
         std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

TEST(Fp8ToBf16, IsExactForEveryCodeAndWritesNoMore) {
  if (!cpu_has_bf16_products()) GTEST_SKIP() << why_no_products(MatmulKind::bf16);
  for (const int64_t count : {int64_t{1}, int64_t{32}, int64_t{33}, int64_t{256}}) {
    std::vector<uint8_t> codes(count);
    std::vector<uint16_t> found(count + 1, 0x1234);
    for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(255 - i);
    cpu::fp8_to_bf16_native(codes.data(), count, 0, found.data());
    for (int64_t i = 0; i < count; ++i) {
      const float number = fp8_to_float(codes[i]), wide = bf16_to_float(found[i]);
      if (std::isnan(number))
        EXPECT_TRUE(std::isnan(wide)) << "code " << int{codes[i]};
      else
        EXPECT_EQ(std::bit_cast<uint32_t>(wide), std::bit_cast<uint32_t>(number))
            << "code " << int{codes[i]};
    }
    EXPECT_EQ(found[count], 0x1234);
  }
}

TEST(CpuProducts, OfFewAndManyRowsAreThoseOfTheirKind) {
  if (!cpu_has_bf16_products()) GTEST_SKIP() << why_no_products(MatmulKind::bf16);
  const CpuProducts mixed(MatmulKind::bf16, MatmulKind::fp32, 20);
  for (const int64_t rows : {int64_t{1}, int64_t{20}, int64_t{21}, int64_t{70}}) {
    const MatmulKind kind = rows <= 20 ? mixed.few : mixed.many;
    const CpuProducts alone(kind, kind, 20);
    EXPECT_TRUE(same_bits(product(mixed, rows), product(alone, rows))) << rows << " rows";
    const MatmulKind other = rows <= 20 ? mixed.many : mixed.few;
    EXPECT_FALSE(same_bits(product(mixed, rows), product({other, other, 20}, rows)))
        << rows << " rows: the kinds do not differ, so the test shows nothing";
  }
  EXPECT_TRUE(same_bits(product(mixed, 1, RowInvariant::yes),
                        product(MatmulKind::fp32, 1, RowInvariant::yes)))
      << "one kind for any number of rows";
}

TEST(CpuProducts, OfBothKindsTakeRowsOfFp32) {
  if (!cpu_has_bf16_products()) GTEST_SKIP() << why_no_products(MatmulKind::bf16);
  const auto operand = [](const CpuProducts& products) {
    return make_cpu_backend(products)->operand_type(DType::bf16);
  };
  EXPECT_EQ(operand({MatmulKind::bf16, MatmulKind::fp32, 20}), DType::fp32);
  EXPECT_EQ(operand({MatmulKind::fp32, MatmulKind::bf16, 20}), DType::fp32);
  EXPECT_EQ(operand({MatmulKind::bf16, MatmulKind::bf16, 20}), DType::bf16);
}

TEST(CpuProducts, OfBf16AreTheSameInPlaceAndPacked) {
  if (!cpu_has_bf16_products()) GTEST_SKIP() << why_no_products(MatmulKind::bf16);
  for (const int64_t rows : {int64_t{3}, int64_t{65}, int64_t{130}})
    EXPECT_TRUE(same_bits(product({MatmulKind::bf16, MatmulKind::bf16, 0}, rows),
                          product({MatmulKind::bf16, MatmulKind::bf16, 512}, rows)))
        << rows << " rows";
}

}  // namespace
}  // namespace pecia::kernels
