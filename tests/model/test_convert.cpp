// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "lib/model/weights/convert.hpp"
#include "tests/support/compare.hpp"

namespace pecia::model {
namespace {

device::ThreadPool converters(3);

TensorView vector_of(std::vector<float>& values) {
  return TensorView(values.data(), DType::fp32, {static_cast<int64_t>(values.size())});
}
TensorView vector_of(std::vector<uint16_t>& bits, DType dtype) {
  return TensorView(bits.data(), dtype, {static_cast<int64_t>(bits.size())});
}

std::vector<uint16_t> all_halves() {
  std::vector<uint16_t> bits(0x10000);
  for (uint32_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  return bits;
}

/// Floats of every exponent, with those around the borders of fp16 among them.
std::vector<float> floats_of_every_size() {
  std::mt19937 random(5);
  std::vector<float> values = {0.0f,       -0.0f,    INFINITY, -INFINITY,    65504.0f, 65519.996f,
                               65520.0f,   65536.0f, 0x1p-14f, 0x1.ffcp-15f, 0x1p-24f, 0x1p-25f,
                               0x1.8p-25f, 0x1p-26f, 3.4e38f,  1e-45f,       -70000.0f};
  while (values.size() < 100'000) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(value)) values.push_back(value);
  }
  for (int i = 0; i < 100'000; ++i)  // most floats are far outside fp16
    values.push_back(std::ldexp(static_cast<float>(random()) * 0x1p-32f, int(random() % 48) - 28));
  return values;
}

TEST(Convert, WidensEveryHalfAndBf16) {
  std::vector<uint16_t> bits = all_halves();
  for (const DType dtype : {DType::fp16, DType::bf16}) {
    std::vector<float> widened(bits.size());
    convert(vector_of(bits, dtype), vector_of(widened), converters);
    for (size_t i = 0; i < bits.size(); ++i) {
      const float expected = load_as_float(bits.data(), dtype, static_cast<int64_t>(i));
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(widened[i])) << i;
      else
        ASSERT_EQ(std::bit_cast<uint32_t>(widened[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  }
}

TEST(Convert, NarrowsToTheNearest) {
  std::vector<float> values = floats_of_every_size();
  std::vector<uint16_t> narrowed(values.size());
  convert(vector_of(values), vector_of(narrowed, DType::fp16), converters);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(narrowed[i], float_to_fp16(values[i])) << values[i];
  convert(vector_of(values), vector_of(narrowed, DType::bf16), converters);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(narrowed[i], float_to_bf16(values[i])) << values[i];
}

TEST(Convert, KeepsNan) {
  std::vector<float> values = {NAN, -NAN, std::bit_cast<float>(0x7f800001u)};
  std::vector<uint16_t> narrowed(values.size());
  convert(vector_of(values), vector_of(narrowed, DType::fp16), converters);
  for (const uint16_t bits : narrowed) EXPECT_TRUE(std::isnan(fp16_to_float(bits)));
}

TEST(Convert, BetweenTheNarrowTypes) {
  std::vector<uint16_t> bf16 = {0x3f80, 0xc000, 0x4780, 0x0001};  // 1, -2, 65536, tiny
  std::vector<uint16_t> fp16(4);
  convert(vector_of(bf16, DType::bf16), vector_of(fp16, DType::fp16), converters);
  EXPECT_EQ(fp16, (std::vector<uint16_t>{0x3c00, 0xc000, 0x7c00, 0x0000}));
}

TEST(Convert, RefusesWhatDoesNotFit) {
  std::vector<float> three(3), four(4);
  EXPECT_THROW(convert(vector_of(three), vector_of(four), converters), InvalidArgument);
  const TensorView integers(four.data(), DType::int32, {4});
  EXPECT_THROW(convert(integers, vector_of(four), converters), InvalidArgument);
}

TEST(Convert, FindsNanAmongCodesOfFp8) {
  std::vector<uint8_t> codes(256);
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  const TensorView tensor(codes.data(), DType::fp8, {256});
  EXPECT_EQ(first_not_finite(tensor, 0, 256, converters), 0x7f);
  EXPECT_EQ(first_not_finite(tensor, 0x80, 256, converters), 0xff);
  EXPECT_EQ(first_not_finite(tensor, 0x80, 255, converters), std::nullopt);
}

class FirstNotFinite : public testing::TestWithParam<DType> {};

TEST_P(FirstNotFinite, FindsEachKindWhereverItStands) {
  constexpr int64_t count = 10'000;  // more than two of the search's blocks
  std::vector<float> values = test::random_floats(count, 3, 100.0f);
  for (const int64_t index : {int64_t{0}, int64_t{4095}, int64_t{4096}, count - 1})
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> spoilt = values;
      spoilt[index] = bad;
      if (index + 1 < count) spoilt[count - 1] = bad;
      std::vector<std::byte> bytes = test::stored_as(GetParam(), spoilt);
      const TensorView tensor(bytes.data(), GetParam(), {count});
      EXPECT_EQ(first_not_finite(tensor, 0, count, converters), index);
      EXPECT_EQ(first_not_finite(tensor, index, index + 1, converters), index);
      EXPECT_EQ(first_not_finite(tensor, 0, index, converters), std::nullopt);
      EXPECT_EQ(first_not_finite(tensor, index, index, converters), std::nullopt);
    }
}

TEST_P(FirstNotFinite, LetsTheLargestNumbersPass) {
  const float largest = GetParam() == DType::fp16 ? 65504.0f : 0x1.fep127f;
  std::vector<std::byte> bytes =
      test::stored_as(GetParam(), std::vector<float>{largest, -largest, 0.0f, 1e-7f});
  EXPECT_EQ(first_not_finite(TensorView(bytes.data(), GetParam(), {4}), 0, 4, converters),
            std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(EveryType, FirstNotFinite,
                         testing::Values(DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

}  // namespace
}  // namespace pecia::model
