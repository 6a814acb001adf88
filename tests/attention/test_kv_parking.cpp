// SPDX-License-Identifier: Apache-2.0
/// Keys and values that leave the cache and come back to other slots: bit by bit, wherever they lie
/// meanwhile.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "lib/model/attention/kv_parking.hpp"
#include "tests/support/owned_compute.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::attention {
namespace {

using parallel::PassSequence;

constexpr int64_t layers = 3, heads = 2, head_dim = 8;

/// Fills the slots of a sequence with numbers that follow from `seed` and the place.
struct Filled {
  KvCache& cache;
  const KvLedger& ledger;

  template <typename Body>
  void each_byte(int64_t sequence, const Body& body) const {
    uint64_t index = 0;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const bool recent = cache.retention(layer) == Retention::recent;
      const HeldTokens held = recent ? ledger.held_recently(sequence) : ledger.held(sequence);
      for (const KvCache::Stored& stored : cache.stored(layer))
        for (int64_t head = 0; head < heads; ++head)
          for (const parallel::SlotRange& range : held.slots)
            for (int64_t slot = range.begin; slot < range.end; ++slot) {
              const auto each = [&](const TensorView& view, int64_t bytes) {
                auto* const at = static_cast<std::byte*>(view.row(head)) + slot * bytes;
                for (int64_t i = 0; i < bytes; ++i) body(at[i], index++);
              };
              each(stored.vectors, head_dim * size_of(stored.vectors.dtype()));
              if (stored.scales) each(stored.scales, size_of(DType::fp32));
            }
    }
    EXPECT_GT(index, 0u);
  }
  static std::byte value(uint64_t seed, uint64_t index) {
    return static_cast<std::byte>((seed * 7919 + index * 31 + index / 256) & 0xff);
  }
  void fill(int64_t sequence, uint64_t seed) const {
    each_byte(sequence, [&](std::byte& byte, uint64_t index) { byte = value(seed, index); });
  }
  void expect(int64_t sequence, uint64_t seed) const {
    int64_t wrong = 0;
    each_byte(sequence,
              [&](const std::byte& byte, uint64_t index) { wrong += byte != value(seed, index); });
    EXPECT_EQ(wrong, 0) << "bytes of sequence " << sequence;
  }
};

/// Of rank 1 of two.
struct Place {
  explicit Place(DType dtype, int virtual_ranks = 1, RecentLayers recent = {},
                 ParkingPlaces places = {}, int64_t values_in_keys = 0)
      : cache({layers, heads, head_dim, dtype, values_in_keys}, 1000, compute.device,
              std::move(recent)),
        ledger(cache, 2, 1, virtual_ranks),
        parking(ledger, cache, compute, std::move(places)) {}

  void begin(int64_t sequence, int64_t slots, int64_t tokens, std::optional<int64_t> parent = {}) {
    ledger.add(sequence, {slots, slots}, parent);
    read(sequence, tokens, PassSequence::balanced);
  }
  void read(int64_t sequence, int64_t tokens, int32_t owner) {
    const PassSequence rows{sequence, ledger.map().length(sequence), tokens, owner,
                            2 * ledger.map().virtual_ranks()};
    if (ledger.recent() != nullptr) {
      int64_t own = 0;
      for (const auto& range : rows_of(rows, 2, 1)) own += range.size();
      ledger.next_recent_slots(sequence, own);
    }
    ledger.append(rows, parallel::team_of_all(2));
    ledger.settle();
  }

  test::CpuCompute owned{1, kernels::make_reference_backend()};
  Compute compute = owned;
  KvCache cache;
  KvLedger ledger;
  KvParking parking;
  Filled bytes{cache, ledger};
};

struct EveryCache : testing::TestWithParam<std::tuple<DType, bool, int64_t>> {
  test::TempFolder folder;
  /// In memory, or in a file.
  ParkingPlaces places() const {
    if (!std::get<1>(GetParam())) return {};
    return {0, folder / "kv"};
  }
};

TEST_P(EveryCache, GivesBackWhatItTook) {
  Place place(std::get<0>(GetParam()), 1, {}, places(), std::get<2>(GetParam()));
  place.begin(1, 60, 100), place.begin(2, 80, 140);
  place.bytes.fill(1, 1), place.bytes.fill(2, 2);
  const auto slots = place.ledger.slots(1);
  EXPECT_GT(place.parking.park(1), 0);
  EXPECT_EQ(place.cache.free_tokens(), 1000 - 80);
  EXPECT_EQ(place.ledger.map().total_reserved(0), 80);
  if (!std::get<1>(GetParam())) {
    EXPECT_GT(place.parking.host_bytes(), 0);
  }
  place.begin(3, 70, 130);  // where the first one was
  place.bytes.fill(3, 3);
  place.parking.bring_back(1, {90, 90});
  EXPECT_EQ(place.parking.host_bytes(), 0);
  EXPECT_NE(place.ledger.slots(1), slots);
  EXPECT_EQ(place.cache.free_tokens(), 1000 - 80 - 70 - 90);
  for (const int64_t sequence : {1, 2, 3})
    place.bytes.expect(sequence, static_cast<uint64_t>(sequence));
  place.read(1, 1, 1);  // and it goes on
  EXPECT_EQ(place.ledger.map().length(1), 101);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()) || std::filesystem::is_empty(folder / "kv"))
      << "nothing is left of files";
}

TEST_P(EveryCache, KeepsThePartsOfVirtualRanksApart) {
  Place place(std::get<0>(GetParam()), 4, {}, places(), std::get<2>(GetParam()));
  place.begin(1, 80, 100), place.begin(2, 40, 30);
  place.bytes.fill(1, 1), place.bytes.fill(2, 2);
  place.parking.park(1);
  place.ledger.resize(2, {60, 60});
  place.parking.bring_back(1, {100, 100});
  place.bytes.expect(1, 1), place.bytes.expect(2, 2);
  EXPECT_EQ(place.cache.free_tokens(), 1000 - 60 - 100);
}

TEST_P(EveryCache, TakesWhatWindowsStillReach) {
  Place place(std::get<0>(GetParam()), 1, {64, 2 * 1024, {true, false, true}}, places(),
              std::get<2>(GetParam()));
  place.begin(1, 400, 700);
  const int64_t evicted = place.ledger.evicted(Retention::recent, 1, 1);
  EXPECT_GT(evicted, 0);
  place.bytes.fill(1, 1);
  place.parking.park(1);
  EXPECT_EQ(place.ledger.recent()->taken(), 0);
  place.begin(2, 200, 300);
  place.bytes.fill(2, 2);
  place.parking.bring_back(1, {400, 400});
  EXPECT_EQ(place.ledger.evicted(Retention::recent, 1, 1), evicted);
  place.bytes.expect(1, 1), place.bytes.expect(2, 2);
}

INSTANTIATE_TEST_SUITE_P(Caches, EveryCache,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16, DType::fp8),
                                          testing::Bool(), testing::Values(0, 6)));

/// What is not in order in a ledger is found: a corrupted one of each kind.
TEST(KvLedger, FindsSlotsWithoutOneOwner) {
  const auto host = device::make_host_device(1);
  const auto spoil = [&](const auto& how) {
    KvCache cache({1, 1, 2, DType::fp32}, 100, *host);
    KvLedger ledger(cache, 1, 0);
    ledger.add(1, {10}), ledger.add(2, {20});
    ledger.park(2);
    ledger.verify();
    how(cache);
    EXPECT_THROW(ledger.verify(), InvalidArgument);
  };
  spoil([](KvCache& cache) { cache.release(1); });
  spoil([](KvCache& cache) { cache.resize(1, 9); });
  spoil([](KvCache& cache) { cache.reserve(2, 20); });
}

TEST(SlotPool, FindsSlotsWithoutOneOwner) {
  SlotPool pool(10);
  const auto taken = pool.take(6);
  pool.verify(taken);
  EXPECT_THROW(pool.verify({}), InvalidArgument) << "nobody has them";
  EXPECT_THROW(pool.verify({{0, 6}, {5, 6}}), InvalidArgument) << "two have slot 5";
  EXPECT_THROW(pool.verify({{0, 5}}), InvalidArgument) << "nobody has slot 5";
  EXPECT_THROW(pool.verify({{0, 7}}), InvalidArgument) << "slot 6 is free";
}

TEST(KvParking, ParksAPrefixAfterItsBranches) {
  Place place(DType::fp32);
  place.begin(1, 60, 100);
  place.begin(2, 40, 30, 1);
  place.bytes.fill(1, 1), place.bytes.fill(2, 2);
  place.parking.park(2), place.parking.park(1);
  EXPECT_EQ(place.cache.free_tokens(), 1000);
  EXPECT_THROW(place.read(2, 1, 0), InvalidArgument) << "its keys are not there";
  place.parking.bring_back(2, {40, 40});
  EXPECT_THROW(place.read(2, 1, 0), InvalidArgument) << "its prefix's are not there";
  place.parking.bring_back(1, {60, 60});
  place.bytes.expect(1, 1), place.bytes.expect(2, 2);
  place.read(2, 1, 0);
}

TEST(KvParking, FreesWhatEndsWhileItIsParked) {
  Place place(DType::fp32);
  place.begin(1, 60, 100);
  place.parking.park(1);
  place.ledger.remove(1), place.parking.forget(1);
  EXPECT_EQ(place.parking.host_bytes(), 0);
  EXPECT_EQ(place.cache.free_tokens(), 1000);
}

TEST(KvParking, SaysWhatToDoWhereThereIsNoRoom) {
  Place place(DType::fp32, 1, {}, {100, {}});
  place.begin(1, 60, 100);
  try {
    place.parking.park(1);
    FAIL() << "there is no room";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("kv.park"), std::string::npos) << error.what();
  }
  EXPECT_EQ(place.cache.free_tokens(), 1000 - 60) << "the sequence is where it was";
}

}  // namespace
}  // namespace pecia::attention
