#include <gtest/gtest.h>

#include <cmath>

#include "lib/core/dtype.hpp"

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

}  // namespace
}  // namespace pecia
