// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/model/attention/kv_ledger.hpp"

namespace pecia::attention {
namespace {

using parallel::PassSequence;
using parallel::SlotRange;
using Ranges = std::vector<SlotRange>;

const auto host = device::make_host_device(1);

/// A cache of one layer with a window, on one rank.
struct OneRank {
  explicit OneRank(int64_t blocks, kernels::Window window = 200, int64_t margin = 0)
      : cache({1, 1, 2, DType::fp32}, 10'000, *host,
              {window, blocks * RecentSlots::block, {true}, margin}),
        ledger(cache, 1, 0) {}

  void grow(int64_t sequence, int64_t tokens) {
    ledger.next_recent_slots(sequence, tokens);
    ledger.append({sequence, ledger.map().length(sequence), tokens}, parallel::team_of_all(1));
    ledger.settle();
  }
  int64_t evicted(int64_t sequence) const { return ledger.evicted(Retention::recent, sequence, 0); }

  KvCache cache;
  KvLedger ledger;
};

TEST(RecentSlots, GivesBackChunksThatHavePassed) {
  OneRank one(16, kernels::Window::chunks_of(512));
  one.ledger.add(1, {2000});
  one.grow(1, 511);
  EXPECT_EQ(one.evicted(1), 0);  // the next row is the last of its chunk
  one.grow(1, 1);
  EXPECT_EQ(one.evicted(1), 512);  // and this one sees itself alone
  one.grow(1, 600);
  EXPECT_EQ(one.evicted(1), 1024);
  OneRank with_margin(16, kernels::Window::chunks_of(512), 100);
  with_margin.ledger.add(1, {2000});
  with_margin.grow(1, 512 + 99);
  EXPECT_EQ(with_margin.evicted(1), 0);  // rows up to 100 before the next one have their chunk
  with_margin.grow(1, 1);
  EXPECT_EQ(with_margin.evicted(1), 512);
}

TEST(RecentSlots, GivesBackWholeBlocksBeyondTheWindow) {
  OneRank one(9);
  one.ledger.add(1, {5000});
  one.grow(1, 199);  // the next row sees all of them
  EXPECT_EQ(one.evicted(1), 0);
  one.grow(1, 128);  // 128 … 326
  EXPECT_EQ(one.evicted(1), 128);
  one.grow(1, 673);  // the row at 1000 sees 801 … 999
  EXPECT_EQ(one.evicted(1), 768);
  EXPECT_EQ(one.ledger.recent()->taken(), 2 * RecentSlots::block);
  EXPECT_EQ(one.ledger.evicted(Retention::all, 1, 0), 0);
  EXPECT_EQ(one.ledger.map().held(1, 0), 1000);
}

TEST(RecentSlots, HoldNoMoreThanTheirBoundHoweverLongASequenceGrows) {
  constexpr int64_t chunk = 300;
  OneRank one(RecentSlots::most_of_sequence(200) / RecentSlots::block + 1 +
              chunk / RecentSlots::block + 1);
  one.ledger.add(1, {9000});
  for (int pass = 0; pass < 20; ++pass) {
    one.grow(1, chunk);
    EXPECT_LE(one.ledger.recent()->taken(), RecentSlots::most_of_sequence(200));
  }
  for (int step = 0; step < 700; ++step) one.grow(1, 1);
  EXPECT_LE(one.ledger.recent()->taken(), RecentSlots::most_of_sequence(200));
  one.ledger.remove(1);
  EXPECT_EQ(one.ledger.recent()->taken(), 0);
}

TEST(RecentSlots, GiveOneSequencesBlocksToAnother) {
  OneRank one(4);
  one.ledger.add(1, {5000}), one.ledger.add(2, {5000});
  one.grow(1, 512);  // 312 … 511 are seen: block 0 and 1 are free
  EXPECT_EQ(one.ledger.next_recent_slots(2, 200), (Ranges{{0, 200}}));
  EXPECT_EQ(one.ledger.kept_slots(Retention::recent, 1), (Ranges{{256, 512}}));
  EXPECT_THROW(one.ledger.next_recent_slots(1, 1), InvalidArgument);
  one.ledger.remove(1);
  EXPECT_EQ(one.ledger.recent()->taken(), 2 * RecentSlots::block);
}

TEST(RecentSlots, OfASequenceThatIsNotThereAreFound) {
  OneRank one(4);
  one.ledger.add(1, {5000});
  one.grow(1, 512);
  one.ledger.verify();
  parallel::KvMap other(1);
  EXPECT_THROW(one.ledger.recent()->verify(other), InvalidArgument);
}

TEST(RecentSlots, KeepWhatChildrenOfASequenceSee) {
  OneRank one(9);
  one.ledger.add(1, {1000});
  one.grow(1, 1000);
  one.ledger.add(2, {500}, 1);
  one.grow(2, 400);
  EXPECT_EQ(one.evicted(1), 768);  // its child does not move it
  EXPECT_EQ(one.evicted(2), 128);  // its tokens stand at 1000 … 1399, and 1201 is seen first
  one.ledger.remove(2);
  one.ledger.add(3, {500}, 1);
  EXPECT_EQ(one.evicted(3), 0);
}

/// Rank 1 of 2 has the inner chunks of a prompt, so its tokens are gone sooner.
TEST(RecentSlots, AreCountedForEveryInstance) {
  for (const int instance : {0, 1}) {
    KvCache cache({1, 1, 2, DType::fp32}, 4000, *host, {200, 20 * RecentSlots::block, {true}});
    KvLedger ledger(cache, 2, instance);
    ledger.add(instance, {2000, 2000});
    ledger.next_recent_slots(instance, 1000);
    ledger.append({instance, 0, 2000}, parallel::team_of_all(2));
    ledger.settle();
    // Instance 0 has 0 … 499 and 1500 … 1999, of which 1801 is the first seen.
    EXPECT_EQ(ledger.evicted(Retention::recent, instance, 0), 801 / 128 * 128);
    EXPECT_EQ(ledger.evicted(Retention::recent, instance, 1), 1000 / 128 * 128);
  }
}

TEST(RecentSlots, LieBehindTheLayersThatKeepAll) {
  for (const DType dtype : {DType::bf16, DType::fp8}) {
    const KvCache cache({3, 2, 4, dtype}, 10, *host, {16, 128, {true, false, true}});
    const auto at = [&](const KvCache::Stored& stored) {
      return static_cast<const std::byte*>(stored.vectors.data()) -
             static_cast<const std::byte*>(cache.k(1).vectors.data());
    };
    const int64_t vector = 4 * size_of(dtype);
    EXPECT_EQ(at(cache.v(1)), 2 * 10 * vector);
    EXPECT_EQ(at(cache.k(0)), 2 * 2 * 10 * vector);
    EXPECT_EQ(at(cache.v(2)), (2 * 2 * 10 + 3 * 2 * 128) * vector);
    EXPECT_EQ(cache.k(2).vectors.size(1), 128);
    EXPECT_EQ(cache.bytes(), 2 * 2 * (10 + 2 * 128) * (vector + (dtype == DType::fp8 ? 4 : 0)));
  }
}

}  // namespace
}  // namespace pecia::attention
