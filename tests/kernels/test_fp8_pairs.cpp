// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/kernels/emulator/cuda.hpp"

// After the emulator, whose instructions it uses.
#include "kernels/cuda/shared/fp8_pairs.cuh"

namespace pecia::test {
namespace {

using namespace kernels::cuda;

float half_as_float(uint32_t packed, int half) {
  return half_of<Bf16>(packed, half);
}

/// Every code but NaN, which a scale stands for, in every place of four, beside others.
TEST(Fp8Pairs, AreWidenedExactly) {
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    const uint32_t others[3] = {code ^ 0x80, (code * 7 + 3) % 0x7f, 0x7e};
    const uint32_t codes = code | others[0] << 8 | others[1] << 16 | others[2] << 24;
    const auto number = [](uint32_t bits) { return fp8_to_float(static_cast<uint8_t>(bits)); };
    EXPECT_EQ(half_as_float(widen_01(codes), 0), number(code)) << code;
    EXPECT_EQ(half_as_float(widen_01(codes), 1), number(others[0])) << code;
    EXPECT_EQ(half_as_float(widen_23(codes), 0), number(others[1])) << code;
    EXPECT_EQ(half_as_float(widen_23(codes), 1), number(others[2])) << code;
    EXPECT_EQ(half_as_float(widen_02(codes), 0), number(code)) << code;
    EXPECT_EQ(half_as_float(widen_02(codes), 1), number(others[1])) << code;
    EXPECT_EQ(half_as_float(widen_13(codes), 0), number(others[0])) << code;
    EXPECT_EQ(half_as_float(widen_13(codes), 1), number(others[2])) << code;
  }
}

}  // namespace
}  // namespace pecia::test
