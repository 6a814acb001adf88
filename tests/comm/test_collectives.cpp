// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "lib/ranks/comm/host_collectives.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/server_map.hpp"
#include "tests/comm/server_layouts.hpp"
#include "tests/support/compare.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

/// What rank `rank` puts into a sum.
std::vector<float> partial_of(int rank, int64_t count, uint64_t seed) {
  return test::random_floats(count, seed * 100 + rank);
}

/// The sum over ranks in double, and how far a sum in fp32 in any order may be from it:
/// (N - 1) roundings of at most Σ |x| each, and one when the expected value itself is rounded.
struct ExpectedSum {
  std::vector<float> values;
  double tolerance = 0;
};
ExpectedSum expected_sum(int num_ranks, int64_t count, uint64_t seed) {
  std::vector<double> sums(count), magnitudes(count);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto values = partial_of(rank, count, seed);
    for (int64_t i = 0; i < count; ++i) {
      sums[i] += values[i];
      magnitudes[i] += std::fabs(values[i]);
    }
  }
  const double largest = count == 0 ? 0 : *std::max_element(magnitudes.begin(), magnitudes.end());
  return {{sums.begin(), sums.end()}, num_ranks * std::ldexp(largest, -24) * 1.0001};
}

/// Neighbours are added, then their sums, until one is left.
std::vector<float> sum_of_pairs(std::vector<std::vector<float>> parts) {
  while (parts.size() > 1) {
    std::vector<std::vector<float>> sums;
    for (size_t part = 0; part < parts.size(); part += 2) {
      sums.push_back(parts[part]);
      if (part + 1 == parts.size()) continue;
      for (size_t i = 0; i < sums.back().size(); ++i) sums.back()[i] += parts[part + 1][i];
    }
    parts = std::move(sums);
  }
  return parts.front();
}

void round_to(DType type, std::vector<float>& values) {
  if (type == DType::bf16)
    for (float& value : values) value = bf16_to_float(float_to_bf16(value));
}

/// The sum over ranks in fp32 in the order promised: inside each server, then over the servers.
/// Numbers that travel are rounded to their type.
std::vector<float> sum_in_promised_order(const std::vector<int>& labels, Route route, int64_t count,
                                         uint64_t seed, DType type = DType::fp32) {
  std::vector<std::vector<std::vector<float>>> servers;
  std::map<int, size_t> server_of_label;
  for (int rank = 0; rank < static_cast<int>(labels.size()); ++rank) {
    const int label = route == Route::flat ? rank : labels[rank];
    const auto [server, first] = server_of_label.try_emplace(label, servers.size());
    if (first) servers.emplace_back();
    servers[server->second].push_back(partial_of(rank, count, seed));
    round_to(type, servers[server->second].back());
  }
  std::vector<std::vector<float>> sums;
  for (auto& ranks : servers) {
    sums.push_back(sum_of_pairs(std::move(ranks)));
    round_to(type, sums.back());
  }
  std::vector<float> sum = sum_of_pairs(std::move(sums));
  round_to(type, sum);
  return sum;
}

std::vector<uint16_t> as_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  std::ranges::transform(values, bits.begin(), float_to_bf16);
  return bits;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

/// One all-gather with its buffers: blocks side by side, the own one filled.
struct Gathering {
  Gathering(const Communicator& comm, std::vector<int64_t> block_counts, uint64_t seed_of)
      : counts(std::move(block_counts)), seed(seed_of), all(sum(counts)) {
    int64_t offset = 0;
    for (int rank = 0; rank < comm.size(); ++rank) {
      const std::span block = std::span(all).subspan(offset, counts[rank]);
      if (rank == comm.rank())
        std::ranges::copy(partial_of(rank, counts[rank], seed), block.data());
      blocks.push_back(std::as_writable_bytes(block));
      offset += counts[rank];
    }
  }
  void expect_arrived() const {
    std::vector<float> expected;
    for (size_t rank = 0; rank < counts.size(); ++rank)
      std::ranges::copy(partial_of(static_cast<int>(rank), counts[rank], seed),
                        std::back_inserter(expected));
    EXPECT_TRUE(same_bits(all, expected)) << "blocks of seed " << seed;
  }
  std::vector<int64_t> counts;
  uint64_t seed;
  std::vector<float> all;
  std::vector<std::span<std::byte>> blocks;
};

/// One reduce-scatter with its buffers.
struct Reducing {
  Reducing(const Communicator& comm, std::vector<int64_t> block_counts, uint64_t seed_of)
      : counts(std::move(block_counts)),
        seed(seed_of),
        rank(comm.rank()),
        partial(partial_of(rank, sum(counts), seed)),
        mine(counts[rank], NAN) {}
  std::span<const float> own_part(std::span<const float> of) const {
    return of.subspan(std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0}),
                      counts[rank]);
  }
  void expect_arrived() const {
    const auto expected = expected_sum(static_cast<int>(counts.size()), sum(counts), seed);
    EXPECT_TRUE(test::all_close(mine, own_part(expected.values), expected.tolerance));
    EXPECT_TRUE(same_bits(partial, partial_of(rank, sum(counts), seed))) << "partial was touched";
  }
  std::vector<int64_t> counts;
  uint64_t seed;
  int rank;
  std::vector<float> partial, mine;
};

class OverEveryLayout : public testing::TestWithParam<test::ServerLayout> {
 protected:
  const std::unique_ptr<Communicator> comm_ = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const std::vector<int> labels_ = GetParam().labels(comm_->size());
  HostCollectives collectives_{*comm_, labels_};
};

TEST_P(OverEveryLayout, AllGatherBringsEveryBlock) {
  for (int seed = 0; seed < 7; ++seed) {
    Gathering gathering(*comm_, test::ragged_counts(comm_->size(), seed), seed);
    const auto transfer = collectives_.start_all_gather(gathering.blocks);
    transfer->wait();
    EXPECT_TRUE(transfer->test());
    gathering.expect_arrived();
  }
}

TEST_P(OverEveryLayout, ReduceScatterIsTheSumInThePromisedOrder) {
  for (int seed = 0; seed < 7; ++seed) {
    Reducing reducing(*comm_, test::ragged_counts(comm_->size(), seed), seed);
    collectives_.start_reduce_scatter(reducing.partial, reducing.counts, reducing.mine)->wait();
    reducing.expect_arrived();
    const auto exact =
        sum_in_promised_order(labels_, collectives_.route(), sum(reducing.counts), seed);
    EXPECT_TRUE(same_bits(reducing.mine, reducing.own_part(exact))) << "seed " << seed;
  }
}

TEST_P(OverEveryLayout, ReduceScatterMayReplaceItsOwnBlock) {
  Reducing reducing(*comm_, test::ragged_counts(comm_->size(), 3), 3);
  const auto own = reducing.own_part(reducing.partial);
  const std::span in_place(reducing.partial.data() + (own.data() - reducing.partial.data()),
                           own.size());
  collectives_.start_reduce_scatter(reducing.partial, reducing.counts, in_place)->wait();
  const auto exact = sum_in_promised_order(labels_, collectives_.route(), sum(reducing.counts), 3);
  EXPECT_TRUE(same_bits(in_place, reducing.own_part(exact)));
}

TEST_P(OverEveryLayout, AllReduceIsTheSameSumOnEveryRank) {
  for (const int64_t count : {0, 1, 3, 8, 1029, 20003}) {
    auto values = partial_of(comm_->rank(), count, 11);
    collectives_.start_all_reduce(values)->wait();
    const auto expected = expected_sum(comm_->size(), count, 11);
    EXPECT_TRUE(test::all_close(values, expected.values, expected.tolerance));
    EXPECT_TRUE(same_bits(values, sum_in_promised_order(labels_, collectives_.route(), count, 11)));
    for (const auto& others : comm_->all_gather(std::as_bytes(std::span(values))))
      EXPECT_TRUE(std::ranges::equal(others, std::as_bytes(std::span(values)))) << count;
  }
}

TEST_P(OverEveryLayout, NothingAtAllIsDoneAtOnce) {
  std::vector<int64_t> counts(comm_->size(), 0);
  Gathering gathering(*comm_, counts, 0);
  collectives_.start_all_gather(gathering.blocks)->wait();
  Reducing reducing(*comm_, counts, 0);
  collectives_.start_reduce_scatter(reducing.partial, counts, reducing.mine)->wait();
  EXPECT_EQ(comm_->traffic().messages, 0);
}

TEST_P(OverEveryLayout, SumsHaveTheBitsOfOneServerWhereTheyPromiseTo) {
  auto values = partial_of(comm_->rank(), 4099, 12);
  collectives_.start_all_reduce(values)->wait();
  const bool same = same_bits(values, sum_in_promised_order(labels_, Route::flat, 4099, 12));
  EXPECT_TRUE(same || !sums_as_flat(labels_));
  if (comm_->size() == 8) {  // another order shows
    EXPECT_EQ(same, sums_as_flat(labels_));
  }
}

/// Ranks wait in opposite orders, so each has to let the others' transfers go on.
TEST_P(OverEveryLayout, ManyAtOnceDoNotMix) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Gathering> gatherings;
    std::vector<Reducing> reducings;
    std::vector<std::vector<float>> sums;
    for (int seed = 0; seed < 4; ++seed) {
      gatherings.emplace_back(*comm_, test::ragged_counts(comm_->size(), seed), seed);
      reducings.emplace_back(*comm_, test::ragged_counts(comm_->size(), seed + 1), seed + 10);
      sums.push_back(partial_of(comm_->rank(), 999 + seed, seed + 20));
    }
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (int seed = 0; seed < 4; ++seed) {
      Reducing& reducing = reducings[seed];
      transfers.push_back(collectives_.start_all_gather(gatherings[seed].blocks));
      transfers.push_back(
          collectives_.start_reduce_scatter(reducing.partial, reducing.counts, reducing.mine));
      transfers.push_back(collectives_.start_all_reduce(sums[seed]));
    }
    if (comm_->rank() % 2 == 1) std::ranges::reverse(transfers);
    for (const auto& transfer : transfers) transfer->wait();
    for (int seed = 0; seed < 4; ++seed) {
      gatherings[seed].expect_arrived();
      reducings[seed].expect_arrived();
      EXPECT_TRUE(same_bits(
          sums[seed], sum_in_promised_order(labels_, collectives_.route(), 999 + seed, seed + 20)));
    }
  }
}

TEST_P(OverEveryLayout, SumsOfBf16AreAddedInFp32) {
  for (const int64_t count : {0, 1, 3, 8, 1029, 20003}) {
    const auto wanted = [&](uint64_t seed, int64_t elements) {
      return as_bf16(
          sum_in_promised_order(labels_, collectives_.route(), elements, seed, DType::bf16));
    };
    std::vector<uint16_t> values = as_bf16(partial_of(comm_->rank(), count, 12));
    collectives_.start_all_reduce({values.data(), DType::bf16, count})->wait();
    EXPECT_EQ(values, wanted(12, count)) << count;

    const std::vector<int64_t> counts = test::ragged_counts(comm_->size(), count % 7);
    const int64_t all = sum(counts), own = counts[comm_->rank()];
    std::vector<uint16_t> partial = as_bf16(partial_of(comm_->rank(), all, 13)), mine(own);
    collectives_
        .start_reduce_scatter({partial.data(), DType::bf16, all}, counts,
                              {mine.data(), DType::bf16, own})
        ->wait();
    const auto before = std::accumulate(counts.begin(), counts.begin() + comm_->rank(), int64_t{0});
    const std::vector<uint16_t> sums = wanted(13, all);
    EXPECT_TRUE(std::ranges::equal(mine, std::span(sums).subspan(before, own))) << count;
  }
}

TEST_P(OverEveryLayout, TwoOfOneGroupDoNotMix) {
  HostCollectives flat(*comm_, std::vector(comm_->size(), 0));
  auto by_layout = partial_of(comm_->rank(), 5000, 1), by_flat = partial_of(comm_->rank(), 5000, 2);
  const auto first = collectives_.start_all_reduce(by_layout);
  const auto second = flat.start_all_reduce(by_flat);
  first->wait();
  second->wait();
  EXPECT_TRUE(same_bits(by_layout, sum_in_promised_order(labels_, collectives_.route(), 5000, 1)));
  EXPECT_TRUE(same_bits(by_flat, sum_in_promised_order(labels_, Route::flat, 5000, 2)));
}

TEST_P(OverEveryLayout, GoesOnBesideOtherMessagesOfTheGroup) {
  const int size = comm_->size(), rank = comm_->rank();
  auto values = partial_of(rank, 3000, 5);
  const float sent = 1.5f + static_cast<float>(rank);
  float received = NAN;
  const auto sum_of_all = collectives_.start_all_reduce(values);
  const auto ring = comm_->start_send_receive(std::as_bytes(std::span(&sent, 1)), (rank + 1) % size,
                                              std::as_writable_bytes(std::span(&received, 1)),
                                              (rank + size - 1) % size);
  ring->wait();
  sum_of_all->wait();
  EXPECT_EQ(received, 1.5f + static_cast<float>((rank + size - 1) % size));
  EXPECT_TRUE(same_bits(values, sum_in_promised_order(labels_, collectives_.route(), 3000, 5)));
}

TEST_P(OverEveryLayout, PollingAloneReachesTheEnd) {
  auto tested = partial_of(comm_->rank(), 20003, 6), moved_on = partial_of(comm_->rank(), 20003, 7);
  const auto first = collectives_.start_all_reduce(tested);
  const auto second = collectives_.start_all_reduce(moved_on);
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!first->test() && std::chrono::steady_clock::now() < deadline) sched_yield();
  EXPECT_TRUE(first->test());
  comm_->barrier();  // from here on no other call than progress() moves the second
  bool same = false;
  const auto expected = sum_in_promised_order(labels_, collectives_.route(), 20003, 7);
  while (!same && std::chrono::steady_clock::now() < deadline) {
    collectives_.progress();
    same = same_bits(moved_on, expected);
  }
  EXPECT_TRUE(same);
  second->wait();
}

INSTANTIATE_TEST_SUITE_P(Layouts, OverEveryLayout, testing::ValuesIn(test::server_layouts()),
                         [](const auto& test) { return test.param.name; });

TEST(Collectives, AreFlatWhenServersHaveOneRankOrThereIsOne) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const int size = comm->size();
  std::vector<int> each(size), pairs(size);
  for (int rank = 0; rank < size; ++rank) each[rank] = -rank, pairs[rank] = rank / 2;
  EXPECT_EQ(HostCollectives(*comm, std::vector(size, 5)).route(), Route::flat);
  EXPECT_EQ(HostCollectives(*comm, each).route(), Route::flat);
  EXPECT_EQ(HostCollectives(*comm, pairs).route(), size > 2 ? Route::hierarchical : Route::flat);
}

/// 1e8 and 1 make 1e8 in fp32, so that another order of additions has another sum.
TEST(Collectives, AddNeighboursFirst) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const std::vector<float> of_rank{1, 1e8f, -1e8f, 1, 4, 1e8f, -1e8f, 2};
  // By number of ranks: 1; 1e8; 1e8 − 1e8; 1e8 − 1e8; 0 + 4; …; and at 8: 0 + (1e8 − 1e8).
  const std::vector<float> sums{NAN, 1, 1e8f, 0, 0, 4, 1e8f, 0, 0};
  HostCollectives collectives(*comm, std::vector(comm->size(), 0));
  std::vector<float> value{of_rank.at(comm->rank())};
  collectives.start_all_reduce(value)->wait();
  EXPECT_EQ(value.front(), sums.at(comm->size()));
}

TEST(Collectives, RefuseBuffersThatDoNotFit) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const int size = comm->size(), rank = comm->rank();
  EXPECT_THROW(HostCollectives(*comm, std::vector(size + 1, 0)), InvalidArgument);
  HostCollectives collectives(*comm, std::vector(size, 0));
  std::vector<float> partial(4 * size);
  std::vector<int64_t> counts(size, 4);
  const std::span all(partial);
  std::vector<float> apart(5);
  EXPECT_THROW(collectives.start_all_gather({}), InvalidArgument);
  EXPECT_THROW(collectives.start_reduce_scatter(all, counts, apart), InvalidArgument);
  EXPECT_THROW(
      collectives.start_reduce_scatter(all.first(4 * size - 1), counts, std::span(apart).first(4)),
      InvalidArgument);
  EXPECT_THROW(
      collectives.start_reduce_scatter(all, std::span(counts).first(size - 1), all.first(4)),
      InvalidArgument);
  std::vector<float> longer(4 * size + 4);
  const std::span shifted = std::span(longer).subspan(4 * rank + 1, 4);
  EXPECT_THROW(collectives.start_reduce_scatter(std::span(longer).first(4 * size), counts, shifted),
               InvalidArgument);
  EXPECT_EQ(comm->traffic().messages, 0);
}

TEST(Collectives, FailNamingTheOperationWhenRanksStayAway) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 1s, std::make_shared<Activity>(),
                                          CollectiveChecks::off);  // they would fail before
  const int size = comm->size();
  HostCollectives collectives(*comm, std::vector(size, 0));
  if (size > 1 && comm->rank() == 0) {
    std::vector<float> all(size);
    std::vector<std::span<std::byte>> blocks;
    for (float& one : all) blocks.push_back(std::as_writable_bytes(std::span(&one, 1)));
    try {
      collectives.start_all_gather(blocks)->wait();
      ADD_FAILURE() << "blocks that nobody sent have arrived";
    } catch (const SystemError& error) {
      EXPECT_EQ(std::string(error.what()).find("all_gather #1 with ranks 1"), 0u) << error.what();
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Collectives, OfTheNullCommunicatorKeepTheOwnValues) {
  const auto comm = make_null_communicator();
  HostCollectives collectives(*comm, {0});
  std::vector<float> values{1, 2, 3}, mine(3);
  collectives.start_all_reduce(values)->wait();
  collectives.start_reduce_scatter(values, std::vector<int64_t>{3}, mine)->wait();
  collectives.start_all_gather({std::as_writable_bytes(std::span(values))})->wait();
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(mine, values);
}

}  // namespace
}  // namespace pecia::comm
