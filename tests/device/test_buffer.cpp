// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "lib/base/device/buffer.hpp"

namespace pecia::device {
namespace {

TEST(Buffer, IsAlignedToCacheLinesAtEverySize) {
  for (const int64_t bytes :
       {int64_t{1}, int64_t{63}, int64_t{65}, int64_t{1} << 20, int64_t{9} << 20}) {
    const Buffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u) << bytes;
    std::memset(buffer.data(), 1, bytes);
  }
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

TEST(Buffer, GrowsAndNeverShrinks) {
  Buffer buffer;
  EXPECT_EQ(buffer.tensor(DType::fp32, {3, 5}).elements(), 15);
  EXPECT_EQ(buffer.bytes(), 60);
  buffer.reserve(10);
  EXPECT_EQ(buffer.bytes(), 60);
  EXPECT_EQ(buffer.tensor(DType::bf16, {100}).dtype(), DType::bf16);
  EXPECT_EQ(buffer.bytes(), 200);
}

TEST(Buffer, RefusesWhatCannotBe) {
  EXPECT_THROW(Buffer(-1), InvalidArgument);
  EXPECT_THROW(Buffer(int64_t{1} << 62), SystemError);
  Buffer buffer;
  EXPECT_THROW(buffer.tensor(DType::fp32, {int64_t{1} << 40, int64_t{1} << 40}), InvalidArgument);
}

}  // namespace
}  // namespace pecia::device
