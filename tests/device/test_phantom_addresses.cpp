// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "lib/base/device/phantom_addresses.hpp"

namespace pecia::device {
namespace {

constexpr int64_t gib = int64_t{1} << 30;

/// Blocks that are taken and given back in any order never overlap, and gaps are used again.
TEST(PhantomAddresses, GiveEachBlockToOneOwner) {
  PhantomAddresses addresses;
  std::map<std::byte*, int64_t> taken;
  std::mt19937 random(7);
  std::byte* lowest = nullptr;
  std::byte* highest = nullptr;
  for (int i = 0; i < 3000; ++i) {
    if (taken.size() > 20) {
      const auto at = std::next(taken.begin(), random() % taken.size());
      addresses.give(at->first, at->second);
      taken.erase(at);
    }
    const int64_t bytes = 1 + static_cast<int64_t>(random() % gib);
    std::byte* const data = addresses.take(bytes);
    if (lowest == nullptr || data < lowest) lowest = data;
    if (highest == nullptr || data > highest) highest = data;
    const auto [at, is_new] = taken.emplace(data, bytes);
    ASSERT_TRUE(is_new);
    if (const auto after = std::next(at); after != taken.end()) {
      ASSERT_LE(data + bytes, after->first);
    }
    if (at != taken.begin()) {
      ASSERT_LE(std::prev(at)->first + std::prev(at)->second, data);
    }
  }
  EXPECT_LT(highest - lowest, 64 * gib) << "3000 blocks of half a GiB";
}

TEST(PhantomAddresses, HaveBlocksOfAnyLength) {
  PhantomAddresses addresses;
  std::byte* const large = addresses.take(1024 * gib);
  std::byte* const small = addresses.take(1);
  EXPECT_TRUE(small < large || small >= large + 1024 * gib);
  addresses.give(large, 1024 * gib);
}

TEST(PhantomAddressesDeathTest, BelongToNoPage) {
  PhantomAddresses addresses;
  volatile std::byte* const data = addresses.take(4096);
  EXPECT_DEATH(*data = std::byte{1}, "");
}

}  // namespace
}  // namespace pecia::device
