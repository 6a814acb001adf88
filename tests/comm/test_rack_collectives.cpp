// SPDX-License-Identifier: Apache-2.0
/// Gathers and sums over servers in racks: what arrives, the order of sums, what crosses between racks,
/// and that phantoms of the ranks send the same.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "lib/ranks/comm/host_collectives.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/phantom.hpp"
#include "lib/ranks/comm/server_map.hpp"
#include "tests/comm/server_layouts.hpp"
#include "tests/support/compare.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;
using Values = std::vector<float>;

/// Two racks of two servers of equal numbers of ranks; and servers of different ones, two alone.
std::vector<RankLabels> all_labels(int ranks) {
  RankLabels regular, unequal;
  for (int rank = 0; rank < ranks; ++rank) {
    regular.servers.push_back(4 * rank / ranks);
    regular.racks.push_back(2 * rank / ranks);
    const int server = rank % 3 == 0 ? rank % 4 : 7;
    unequal.servers.push_back(server);
    unequal.racks.push_back(server == 7 || server == 0 ? 1 : 0);
  }
  return {regular, unequal};
}

/// Neighbours are added, then their sums, until one is left.
Values sum_of_pairs(std::vector<Values> parts) {
  while (parts.size() > 1) {
    std::vector<Values> sums;
    for (size_t part = 0; part < parts.size(); part += 2) {
      sums.push_back(parts[part]);
      if (part + 1 == parts.size()) continue;
      for (size_t i = 0; i < sums.back().size(); ++i) sums.back()[i] += parts[part + 1][i];
    }
    parts = std::move(sums);
  }
  return parts.front();
}

/// One sum for each label of `groups`, in the order in which these appear.
std::vector<Values> sums_of(const std::vector<Values>& parts, std::span<const int> groups) {
  std::vector<int> order;
  std::map<int, std::vector<Values>> of_group;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!of_group.contains(groups[i])) order.push_back(groups[i]);
    of_group[groups[i]].push_back(parts[i]);
  }
  std::vector<Values> sums;
  for (const int group : order) sums.push_back(sum_of_pairs(of_group[group]));
  return sums;
}

/// Inside servers, then over those of a rack, then over racks.
Values sum_by_racks(const std::vector<Values>& parts, const RankLabels& labels) {
  std::vector<int> rack_of_server, seen;
  for (size_t rank = 0; rank < parts.size(); ++rank)
    if (std::ranges::find(seen, labels.servers[rank]) == seen.end()) {
      seen.push_back(labels.servers[rank]);
      rack_of_server.push_back(labels.racks[rank]);
    }
  return sum_of_pairs(sums_of(sums_of(parts, labels.servers), rack_of_server));
}

class RackCollectives : public testing::Test {
 protected:
  int size() const { return world_->size(); }
  int rank() const { return world_->rank(); }
  static std::vector<RackServerGpu> places_of(const RankLabels& labels) {
    std::vector<RackServerGpu> places;
    for (size_t rank = 0; rank < labels.servers.size(); ++rank)
      places.push_back({std::to_string(labels.racks[rank]), std::to_string(labels.servers[rank]),
                        static_cast<int>(rank)});
    return places;
  }
  /// Of every rank.
  std::vector<Values> partials(int64_t count, uint64_t seed) const {
    std::vector<Values> all;
    for (int r = 0; r < size(); ++r)
      all.push_back(test::random_floats(count, seed * 100 + static_cast<uint64_t>(r)));
    return all;
  }
  /// A gather, a scatter and a sum, without looking at them.
  static void run_all(Communicator& group, const RankLabels& labels, uint64_t seed) {
    const auto collectives = group.make_collectives(labels, SumOrder::any);
    const std::vector<int64_t> counts = test::ragged_counts(group.size(), static_cast<int>(seed));
    Values all(std::accumulate(counts.begin(), counts.end(), int64_t{0})),
        mine(counts[group.rank()]);
    std::vector<std::span<std::byte>> blocks;
    for (int64_t begin = 0; const int64_t count : counts) {
      blocks.push_back(std::as_writable_bytes(std::span(all).subspan(begin, count)));
      begin += count;
    }
    collectives->start_all_gather(blocks)->wait();
    collectives->start_reduce_scatter(all, counts, mine)->wait();
    collectives->start_all_reduce(all)->wait();
  }

  std::unique_ptr<Communicator> world_ = make_mpi_communicator(MPI_COMM_WORLD, 60s);
};

TEST_F(RackCollectives, GatherEveryBlock) {
  for (const RankLabels& labels : all_labels(size()))
    for (int seed = 0; seed < 4; ++seed) {
      const std::vector<int64_t> counts = test::ragged_counts(size(), seed);
      Values wanted, found;
      std::vector<std::span<std::byte>> blocks;
      for (int r = 0; r < size(); ++r) {
        const Values block = test::random_floats(counts[r], static_cast<uint64_t>(r));
        wanted.insert(wanted.end(), block.begin(), block.end());
        found.resize(wanted.size());
        if (r == rank()) std::ranges::copy(block, found.end() - counts[r]);
      }
      for (int64_t begin = 0; const int64_t count : counts) {
        blocks.push_back(std::as_writable_bytes(std::span(found).subspan(begin, count)));
        begin += count;
      }
      world_->make_collectives(labels, SumOrder::any)->start_all_gather(blocks)->wait();
      EXPECT_EQ(found, wanted);
    }
}

TEST_F(RackCollectives, SumInThePromisedOrder) {
  for (const RankLabels& labels : all_labels(size()))
    for (int seed = 0; seed < 4; ++seed) {
      const auto collectives = world_->make_collectives(labels, SumOrder::any);
      const std::vector<int64_t> counts = test::ragged_counts(size(), seed);
      const auto total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      const auto begin = std::accumulate(counts.begin(), counts.begin() + rank(), int64_t{0});
      const std::vector<Values> parts = partials(total, static_cast<uint64_t>(seed));
      const Values wanted = sum_by_racks(parts, labels);
      Values own = parts[rank()], mine(counts[rank()]);
      collectives->start_reduce_scatter(own, counts, mine)->wait();
      EXPECT_TRUE(std::ranges::equal(mine, std::span(wanted).subspan(begin, counts[rank()])));
      collectives->start_all_reduce(own)->wait();
      EXPECT_EQ(own, wanted);
    }
}

/// Two racks of two servers of two ranks are nodes of the tree over eight ranks.
TEST_F(RackCollectives, HaveTheBitsOfOneServerWhereLayoutAsksForThem) {
  for (const RankLabels& labels : all_labels(size())) {
    Values values = partials(4099, 5)[rank()];
    const RankLabels flat = labels_as_flat(labels);
    world_->make_collectives(flat, SumOrder::tree)->start_all_reduce(values)->wait();
    EXPECT_EQ(values, sum_of_pairs(partials(4099, 5)));
  }
  if (size() == 8) {
    EXPECT_EQ(labels_as_flat(all_labels(8).front()).racks, all_labels(8).front().racks);
    EXPECT_TRUE(labels_as_flat(all_labels(8).back()).racks.empty());
  }
}

TEST_F(RackCollectives, LetEachBlockCrossOnceToEachRack) {
  const RankLabels labels = all_labels(size()).front();
  world_->set_places(places_of(labels));
  const auto system = [&] {
    return world_->traffic().bytes_by_level[static_cast<size_t>(LinkLevel::system)];
  };
  Values all(10 * size());
  std::vector<std::span<std::byte>> blocks;
  for (int r = 0; r < size(); ++r)
    blocks.push_back(std::as_writable_bytes(std::span(all).subspan(10 * r, 10)));
  world_->make_collectives(labels, SumOrder::any)->start_all_gather(blocks)->wait();
  EXPECT_EQ(system(), 40);
  world_->make_collectives(labels, SumOrder::any)->start_all_reduce(all)->wait();
  EXPECT_EQ(system(), 40 + 2 * 40);
  // By servers it crosses to both servers of the other rack.
  RankLabels large_alone = labels;
  large_alone.least_block_by_racks = 41;
  world_->make_collectives(large_alone, SumOrder::any)->start_all_gather(blocks)->wait();
  EXPECT_EQ(system(), 3 * 40 + 2 * 40);
  large_alone.least_block_by_racks = 40;
  world_->make_collectives(large_alone, SumOrder::any)->start_all_gather(blocks)->wait();
  EXPECT_EQ(system(), 3 * 40 + 3 * 40);
}

TEST_F(RackCollectives, OfPhantomsSendTheSame) {
  for (RankLabels labels : all_labels(size()))
    for (const int64_t least : {0, 4096}) {
      labels.least_block_by_racks = least;
      const auto real = world_->split(0, rank()),
                 phantom = make_phantom_communicator(rank(), size());
      for (Communicator* group : {real.get(), phantom.get()}) {
        group->set_places(places_of(labels));
        for (const uint64_t seed : {0, 1, 2}) run_all(*group, labels, seed);
      }
      EXPECT_EQ(real->traffic().bytes_by_level, phantom->traffic().bytes_by_level);
      EXPECT_EQ(real->traffic().messages_by_level, phantom->traffic().messages_by_level);
      EXPECT_GT(real->traffic().messages, 0);
    }
}

TEST_F(RackCollectives, AreRefusedWhereAServerIsInTwoRacks) {
  RankLabels labels = all_labels(size()).front();
  labels.servers.assign(labels.servers.size(), 0);
  labels.servers.back() = 1;
  EXPECT_THROW(world_->make_collectives(labels, SumOrder::any), InvalidArgument);
}

}  // namespace
}  // namespace pecia::comm
