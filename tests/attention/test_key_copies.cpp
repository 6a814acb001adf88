// SPDX-License-Identifier: Apache-2.0
/// Keys of prompts on their way from the ranks that read them to the ranks that answer: bit by bit,
/// however they are cut, and whenever either side gets to it.

#include <gtest/gtest.h>
#include <mpi.h>

#include <map>
#include <numeric>
#include <set>

#include "lib/base/core/random.hpp"
#include "lib/model/attention/key_copies.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {
namespace {

constexpr int64_t layers = 3, heads = 2, head_dim = 8;

/// What a rank has of sequences beside keys: bytes that follow from what was read.
class FakeBeside : public BesideKeys {
 public:
  static constexpr int64_t size = 37;
  static std::byte value(int64_t of, int64_t i) {
    return static_cast<std::byte>((of * 29 + i) & 0xff);
  }

  int64_t bytes(parallel::SequenceId) const override { return size; }
  void copy_out(parallel::SequenceId sequence, std::span<std::byte> to) const override {
    for (int64_t i = 0; i < size; ++i) to[i] = value(sequence, i);
  }
  int64_t expect(parallel::SequenceId sequence) override {
    expected.insert(sequence);
    return size;
  }
  void copy_in(parallel::SequenceId sequence, std::span<const std::byte> from) override {
    EXPECT_TRUE(expected.contains(sequence));
    came[sequence].assign(from.begin(), from.end());
  }
  int64_t wrong(int64_t copy, int64_t of) const {
    const std::vector<std::byte>& found = came.at(copy);
    int64_t wrong = std::ssize(found) == size ? 0 : 1;
    for (size_t i = 0; i < found.size(); ++i)
      wrong += found[i] != value(of, static_cast<int64_t>(i));
    return wrong;
  }

  std::set<parallel::SequenceId> expected;
  std::map<parallel::SequenceId, std::vector<std::byte>> came;
};

/// A rank with its cache. The map of the whole replica decides what goes where.
struct Rank {
  Rank(comm::Communicator& world, DType dtype, int64_t most_bytes)
      : cache({layers, heads, head_dim, dtype}, 4000, compute.device),
        ledger(cache, world.size(), world.rank()),
        copies(compute, cache, ledger, &world, most_bytes) {
    copies.set_beside(&beside);
  }

  /// What the cache has, or should have, of a token. `of`: the sequence that was read.
  template <typename Body>
  void each_byte(int64_t layer, int64_t position, int64_t slot, int64_t of, const Body& body) {
    int64_t side = 0;
    for (const KvCache::Stored& stored : {cache.k(layer), cache.v(layer)}) {
      for (int64_t head = 0; head < heads; ++head) {
        const auto each = [&](const TensorView& view, int64_t bytes) {
          auto* const at = static_cast<std::byte*>(view.row(head)) + slot * bytes;
          for (int64_t i = 0; i < bytes; ++i)
            body(at[i], static_cast<std::byte>(
                            (position * 131 + layer * 31 + side * 17 + head * 7 + i + of) & 0xff));
        };
        each(stored.vectors, head_dim * size_of(stored.vectors.dtype()));
        if (stored.scales) each(stored.scales, size_of(DType::fp32));
      }
      ++side;
    }
  }
  template <typename Body>
  void each_token(int64_t sequence, const Body& body) {
    const HeldTokens held = ledger.held(sequence);
    std::vector<int64_t> slots;
    append_slots(slots, held.slots);
    size_t next = 0;
    for (const parallel::StridedRange& range : held.positions)
      for (int64_t i = 0; i < range.count; ++i) body(range.position(i), slots[next++]);
  }
  void fill(int64_t sequence, int64_t layer) {
    each_token(sequence, [&](int64_t position, int64_t slot) {
      each_byte(layer, position, slot, sequence,
                [](std::byte& byte, std::byte value) { byte = value; });
    });
  }
  int64_t wrong(int64_t copy, int64_t of) {
    int64_t wrong = 0;
    for (int64_t layer = 0; layer < layers; ++layer)
      each_token(copy, [&](int64_t position, int64_t slot) {
        each_byte(layer, position, slot, of,
                  [&](std::byte byte, std::byte value) { wrong += byte != value; });
      });
    return wrong;
  }

  test::CpuCompute owned{1, kernels::make_reference_backend()};
  Compute compute = owned;
  KvCache cache;
  KvLedger ledger;
  FakeBeside beside;
  KeyCopies copies;
};

/// Prompts in chunks, each read by all readers and answered by some of the others.
TEST(KeyCopies, ArriveBitByBitWheneverEitherSideGetsToIt) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const int size = world->size(), own = world->rank();
  constexpr uint64_t seed = 20261129;
  RecordProperty("seed", std::to_string(seed));
  int64_t sent = 0;
  for (const DType dtype : {DType::fp32, DType::fp8})
    for (const int64_t most_bytes : {int64_t{1}, int64_t{1} << 20}) {
      Rank rank(*world, dtype, most_bytes);
      uint64_t drawn = 0;  // the same on all ranks
      const auto draw = [&](int64_t low, int64_t high) {
        return low +
               static_cast<int64_t>(uniform(seed, drawn++) * static_cast<double>(high - low + 1));
      };
      const auto readers = static_cast<int>(draw(1, size - 1));
      const bool reads = own < readers;
      std::vector<int32_t> reading(readers);
      std::iota(reading.begin(), reading.end(), 0);
      const parallel::Team team{reading, 0, parallel::AttentionExchange::pass_kv, {}};
      parallel::KvMap map(size);  // of rank 0 of the replica
      const int64_t bytes_before = world->traffic().bytes;
      int64_t tokens_sent = 0, beside_sent = 0;
      for (int64_t pair = 0; pair < 24; pair += 4) {  // two prompts, which are read together
        std::map<int64_t, int64_t> tokens;            // by sequence
        for (const int64_t sequence : {pair, pair + 2}) {
          tokens[sequence] = draw(1, 90);
          std::vector<int64_t> of_prompt(size), of_copy(size);
          for (int i = 0; i < size; ++i) (i < readers ? of_prompt : of_copy)[i] = tokens[sequence];
          map.add(sequence, of_prompt), map.add(sequence + 1, of_copy);
          if (reads)
            rank.ledger.add(sequence, of_prompt);
          else
            rank.ledger.add(sequence + 1, of_copy);
        }
        const auto left = [&](int64_t sequence) { return tokens[sequence] - map.length(sequence); };
        while (left(pair) + left(pair + 2) > 0) {
          std::vector<parallel::KeyCopy> copies;
          for (const int64_t sequence : {pair, pair + 2}) {
            const int64_t first = map.length(sequence), count = draw(0, left(sequence));
            if (count == 0) continue;
            const parallel::PassSequence rows{sequence, first, count};
            map.append(rows, team);
            if (reads) rank.ledger.append(rows, team);
            std::vector<parallel::KeptShare> shares;
            int64_t rest = count;
            for (int32_t i = readers; i < size; ++i) {
              shares.push_back({i, i + 1 == size ? rest : draw(0, rest)});
              rest -= shares.back().tokens;
            }
            const bool ends = left(sequence) == 0;
            for (auto& each :
                 parallel::key_copies(map, sequence, sequence + 1, first, shares, ends)) {
              map.append(each.rows(), each.team());
              for (const auto& source : each.sources)
                for (const auto& range : source.positions)
                  tokens_sent += source.instance == own ? range.count : 0;
              beside_sent += each.state_from == own ? FakeBeside::size : 0;
              copies.push_back(std::move(each));
            }
          }
          if (reads) {
            rank.copies.begin_pass(copies);
            for (int64_t layer = 0; layer < layers; ++layer) {
              for (const int64_t sequence : {pair, pair + 2}) rank.fill(sequence, layer);
              rank.copies.send(layer);
            }
            rank.copies.send_beside();
          } else {
            rank.copies.receive(copies);
          }
          if (draw(1, 3) == 1) rank.copies.progress();
        }
        for (const int64_t sequence : {pair, pair + 2}) {
          if (reads) {
            rank.ledger.remove(sequence);  // its slots are used again at once
          } else if (pair % 8 == 0) {
            rank.copies.wait_for(sequence + 1);
            EXPECT_EQ(rank.wrong(sequence + 1, sequence), 0) << "bytes of copy " << sequence + 1;
          }
        }
      }
      rank.copies.finish();
      for (int64_t copy = 1; copy < 24 && !reads; copy += 2)
        EXPECT_EQ(rank.wrong(copy, copy - 1), 0) << "bytes of copy " << copy;
      for (const int64_t copy : rank.beside.expected)
        EXPECT_EQ(rank.beside.wrong(copy, copy - 1), 0) << "beside the keys of copy " << copy;
      for (int64_t copy = 1; copy < 24; copy += 2)
        EXPECT_EQ(rank.beside.expected.contains(copy), !reads && map.state_holder(copy) == own);
      EXPECT_EQ(world->traffic().bytes - bytes_before,
                tokens_sent * rank.cache.shape().bytes_per_token() + beside_sent);
      sent += tokens_sent;
      world->barrier();
    }
  EXPECT_GT(world->all_reduce_max(sent), 300);
}

TEST(KeyCopies, NeedAGroup) {
  const auto alone = comm::make_null_communicator();
  Rank rank(*alone, DType::fp32, 1);
  KeyCopies copies(rank.compute, rank.cache, rank.ledger, nullptr);
  copies.begin_pass({});
  copies.progress();
  EXPECT_FALSE(copies.sends());
  rank.ledger.add(1, {4});
  EXPECT_THROW(copies.receive({{0, 1, 0, 0, 4, {0}, {}}}), InvalidArgument);
}

}  // namespace
}  // namespace pecia::attention
