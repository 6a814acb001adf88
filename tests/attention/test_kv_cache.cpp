// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "lib/base/core/random.hpp"
#include "lib/model/attention/kv_cache.hpp"

namespace pecia::attention {
namespace {

constexpr KvShape shape{2, 3, 4, DType::bf16};
const auto host = device::make_host_device(1);

int64_t total(const std::vector<parallel::SlotRange>& ranges) {
  int64_t sum = 0;
  for (const auto& range : ranges) sum += range.size();
  return sum;
}

TEST(KvShape, CountsBytesByFormula) {
  EXPECT_EQ(shape.bytes_per_token(), 2 * 2 * 3 * 4 * 2);
}

TEST(KvCache, LaysHeadsOutOneAfterTheOther) {
  const KvCache cache(shape, 10, *host);
  const auto* base = static_cast<std::byte*>(cache.k(0).vectors.data());
  EXPECT_EQ(static_cast<std::byte*>(cache.k(0).vectors.row(1)) - base, 10 * 4 * 2);
  EXPECT_EQ(static_cast<std::byte*>(cache.v(0).vectors.data()) - base, 3 * 10 * 4 * 2);
  EXPECT_EQ(static_cast<std::byte*>(cache.k(1).vectors.data()) - base, 2 * 3 * 10 * 4 * 2);
}

TEST(KvCache, HasAScaleForEveryVectorOfFp8) {
  const KvShape scaled{2, 3, 4, DType::fp8};
  EXPECT_EQ(scaled.bytes_per_token(), 2 * 2 * 3 * (4 + 4));
  const KvCache cache(scaled, 5, *host);
  // Codes of K and V of both layers, then the scales of each: every byte belongs to one of them.
  const auto* base = static_cast<std::byte*>(cache.k(0).vectors.data());
  constexpr int64_t codes = 3 * 5 * 4, scales = 3 * 5 * 4;
  EXPECT_EQ(static_cast<std::byte*>(cache.v(1).vectors.data()) - base, 3 * codes);
  EXPECT_EQ(static_cast<std::byte*>(cache.k(0).scales.data()) - base, 4 * codes);
  EXPECT_EQ(static_cast<std::byte*>(cache.v(1).scales.data()) - base, 4 * codes + 3 * scales);
  EXPECT_EQ(cache.v(1).scales.size(0), 3);
  EXPECT_EQ(cache.v(1).scales.size(1), 5);
  EXPECT_FALSE(KvCache(KvShape{2, 3, 4, DType::bf16}, 5, *host).k(0).scales);
  EXPECT_THROW(KvCache(KvShape{1, 1, 3, DType::fp8}, 5, *host), InvalidArgument);
}

/// Four layers: 3 heads of 4, 1 of 8, 3 of 4 that attend the first one's, 1 of 8.
TEST(KvCache, GivesLayersHeadsOfTheirOwnOrThoseOfAnother) {
  for (const DType dtype : {DType::bf16, DType::fp8}) {
    const KvCache cache({4, 3, 4, dtype}, 10, *host, {},
                        {{3, 4, 0}, {1, 8, 1}, {3, 4, 0}, {1, 8, 3}});
    const int64_t small = 2 * 3 * vector_bytes(dtype, 4), large = 2 * vector_bytes(dtype, 8);
    EXPECT_EQ(cache.bytes_per_token(), small + 2 * large);
    EXPECT_EQ(cache.bytes(), 10 * cache.bytes_per_token());
    EXPECT_EQ(cache.kinds().size(), 2u);
    EXPECT_EQ(cache.kind(0), cache.kind(2));
    EXPECT_EQ(cache.kind(1), cache.kind(3));
    EXPECT_EQ(cache.shape(3).head_dim, 8);
    EXPECT_EQ(cache.k(2).vectors.data(), cache.k(0).vectors.data());
    EXPECT_EQ(cache.v(2).vectors.data(), cache.v(0).vectors.data());
    EXPECT_EQ(cache.k(1).vectors.size(0), 1);
    EXPECT_EQ(cache.k(1).vectors.size(2), 8);
    // Every byte belongs to one of the tensors.
    std::set<const void*> bytes;
    for (const int64_t layer : {0, 1, 3})
      for (const KvCache::Stored& stored : cache.stored(layer))
        for (const TensorView& tensor : {stored.vectors, stored.scales})
          for (int64_t i = 0; tensor && i < tensor.elements() * size_of(tensor.dtype()); ++i)
            EXPECT_TRUE(bytes.insert(static_cast<std::byte*>(tensor.data()) + i).second);
    EXPECT_EQ(std::ssize(bytes), cache.bytes());
    EXPECT_TRUE(cache.is_shared(0) && !cache.is_shared(1) && !cache.is_stored(2));
  }
  EXPECT_THROW(KvCache({2, 1, 4, DType::fp32}, 5, *host, {}, {{1, 4, 0}, {1, 8, 0}}),
               InvalidArgument)
      << "of another shape";
  EXPECT_THROW(KvCache({2, 1, 4, DType::fp32}, 5, *host, {}, {{1, 4, 1}, {1, 4, 1}}),
               InvalidArgument)
      << "of a later layer";
}

TEST(KvCache, PrefersOneGapAndFillsSeveralWhenItMust) {
  KvCache cache(shape, 10, *host);
  cache.reserve(1, 3), cache.reserve(2, 3), cache.reserve(3, 4);
  cache.release(1), cache.release(3);
  cache.reserve(4, 4);
  EXPECT_EQ(cache.slots(4), (std::vector<parallel::SlotRange>{{6, 10}}));
  cache.release(4);
  cache.reserve(5, 6);
  EXPECT_EQ(cache.slots(5), (std::vector<parallel::SlotRange>{{0, 3}, {6, 9}}));
  EXPECT_EQ(cache.free_tokens(), 1);
}

TEST(KvCache, GrowsInPlaceWhereItCan) {
  KvCache cache(shape, 20, *host);
  using Ranges = std::vector<parallel::SlotRange>;
  cache.reserve(1, 4), cache.reserve(2, 4), cache.reserve(3, 4);
  cache.release(1);
  cache.resize(3, 6);
  EXPECT_EQ(cache.slots(3), (Ranges{{8, 14}})) << "the gap before would hold them, too";
  cache.resize(2, 6);
  EXPECT_EQ(cache.slots(2), (Ranges{{4, 8}, {0, 2}}));
  cache.resize(3, 13);
  EXPECT_EQ(cache.slots(3), (Ranges{{8, 14}, {2, 4}, {14, 19}})) << "no gap holds 7";
}

TEST(KvCache, FindsTheSlotsOfSomeTokens) {
  KvCache cache(shape, 10, *host);
  cache.reserve(1, 3), cache.reserve(2, 3);
  cache.release(1);
  cache.reserve(3, 7);
  using Ranges = std::vector<parallel::SlotRange>;
  ASSERT_EQ(cache.slots(3), (Ranges{{0, 3}, {6, 10}}));
  EXPECT_EQ(part_of(cache.slots(3), 0, 7), cache.slots(3));
  EXPECT_EQ(part_of(cache.slots(3), 1, 4), (Ranges{{1, 3}, {6, 8}}));
  EXPECT_EQ(part_of(cache.slots(3), 3, 1), (Ranges{{6, 7}}));
  EXPECT_EQ(part_of(cache.slots(3), 5, 0), Ranges{});
  EXPECT_THROW(part_of(cache.slots(3), 4, 4), InvalidArgument);
}

TEST(KvCache, KeepsThePartsOfASequenceApart) {
  const auto device = device::make_host_device(1);
  KvCache cache({1, 1, 2, DType::fp32}, 10, *device);
  cache.reserve(1, 6, 3);
  for (int part = 0; part < 3; ++part)
    EXPECT_EQ(cache.slots(1, part), (std::vector<parallel::SlotRange>{{2 * part, 2 * part + 2}}));
  EXPECT_EQ(cache.free_tokens(), 4);
  EXPECT_THROW(cache.reserve(2, 4, 3), InvalidArgument);
  cache.release(1);
  EXPECT_EQ(cache.free_tokens(), 10);
}

TEST(KvCache, RefusesWhatDoesNotFit) {
  KvCache cache(shape, 10, *host);
  cache.reserve(1, 8);
  EXPECT_THROW(cache.reserve(2, 3), InvalidArgument);
  EXPECT_THROW(cache.reserve(1, 1), InvalidArgument);
  EXPECT_THROW(cache.release(7), InvalidArgument);
  EXPECT_THROW(KvCache(shape, int64_t{1} << 60, *host), InvalidArgument);
}

TEST(KvCache, ASequenceThatShrinksKeepsItsFirstSlots) {
  using Ranges = std::vector<parallel::SlotRange>;
  KvCache cache(shape, 10, *host);
  cache.reserve(1, 3), cache.reserve(2, 2);
  cache.release(1);
  cache.reserve(3, 8);
  ASSERT_EQ(cache.slots(3), (Ranges{{0, 3}, {5, 10}}));
  cache.resize(3, 4);
  EXPECT_EQ(cache.slots(3), (Ranges{{0, 3}, {5, 6}}));
  cache.reserve(4, 4);
  EXPECT_EQ(cache.slots(4), (Ranges{{6, 10}}));
  cache.resize(3, 0);
  EXPECT_EQ(cache.free_tokens(), 4);
}

TEST(KvCache, NeverGivesASlotTwiceAndLosesNone) {
  KvCache cache(shape, 100, *host);
  std::set<parallel::SequenceId> living;
  for (int64_t step = 0; step < 3000; ++step) {
    const auto wanted = static_cast<int64_t>(uniform(7, 2 * step) * 30);
    if (wanted <= cache.free_tokens() && uniform(7, 2 * step + 1) < 0.6) {
      cache.reserve(step, wanted);
      living.insert(step);
    } else if (!living.empty()) {
      cache.release(*living.begin());
      living.erase(living.begin());
    }
    std::vector<int> owners(100);
    int64_t taken = 0;
    for (const auto sequence : living) {
      taken += total(cache.slots(sequence));
      for (const auto& range : cache.slots(sequence))
        for (int64_t slot = range.begin; slot < range.end; ++slot) ASSERT_EQ(++owners.at(slot), 1);
    }
    ASSERT_EQ(taken + cache.free_tokens(), 100);
  }
  while (!living.empty()) cache.release(living.extract(living.begin()).value());
  cache.reserve(-1, 100);
  EXPECT_EQ(cache.slots(-1), (std::vector<parallel::SlotRange>{{0, 100}}));
}

}  // namespace
}  // namespace pecia::attention
