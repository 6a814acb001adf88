// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/core/dtype.hpp"

namespace pecia {
namespace {

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3f80);      // half way: even
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);  // half way: even is up
  EXPECT_EQ(float_to_bf16(1.0f + 0x1.02p-8f), 0x3f81);   // above half way
  EXPECT_EQ(float_to_bf16(-INFINITY), 0xff80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
}

TEST(Fp16, EveryNumberSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = fp16_to_float(half);
    if (std::isnan(value)) continue;
    EXPECT_EQ(float_to_fp16(value), half) << bits;
  }
}

TEST(Fp16, RoundsToNearestEvenAndOverflowsToInfinity) {
  EXPECT_EQ(float_to_fp16(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(float_to_fp16(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(float_to_fp16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_fp16(0x1p-25f), 0x0000);
  EXPECT_EQ(float_to_fp16(0x1.8p-24f), 0x0002);
  EXPECT_EQ(float_to_fp16(6.1035e-05f), 0x0400);  // a subnormal that rounds up to the first normal
}

TEST(Fp8, EveryNumberSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const auto code = static_cast<uint8_t>(bits);
    const float value = fp8_to_float(code);
    if ((bits & 0x7f) == 0x7f)
      EXPECT_TRUE(std::isnan(value) && std::isnan(fp8_to_float(float_to_fp8(value))));
    else
      EXPECT_EQ(float_to_fp8(value), code) << bits;
  }
}

TEST(Fp8, NearestOfAllNumbersTiesToEven) {
  EXPECT_EQ(fp8_to_float(0x38), 1.0f);
  EXPECT_EQ(fp8_to_float(0x7e), 448.0f);
  EXPECT_EQ(fp8_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(float_to_fp8(1.0625f), 0x38);    // half way: even
  EXPECT_EQ(float_to_fp8(1.1875f), 0x3a);    // half way: even is up
  EXPECT_EQ(float_to_fp8(0x1p-10f), 0x00);   // half of the least
  EXPECT_EQ(float_to_fp8(0x1.8p-9f), 0x02);  // a subnormal, half way
  EXPECT_EQ(float_to_fp8(0x1.fp-7f), 0x08);  // a subnormal that rounds up to the first normal
  EXPECT_EQ(float_to_fp8(431.0f), 0x7d);     // below half way of 416 and 448
  EXPECT_EQ(float_to_fp8(433.0f), 0x7e);
  EXPECT_EQ(float_to_fp8(1e9f), 0x7e);
  EXPECT_EQ(float_to_fp8(-INFINITY), 0xfe);
  for (uint32_t code = 0; code < 0x7e; ++code) {
    const float low = fp8_to_float(code), high = fp8_to_float(code + 1);
    const float middle = (low + high) / 2;
    EXPECT_EQ(float_to_fp8(middle), code + (code & 1)) << code;
    EXPECT_EQ(float_to_fp8(std::nextafter(middle, 0.0f)), code) << code;
    EXPECT_EQ(float_to_fp8(std::nextafter(middle, 500.0f)), code + 1) << code;
  }
}

}  // namespace
}  // namespace pecia
