// SPDX-License-Identifier: Apache-2.0
/// Nothing is asserted about speed.

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>

#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/settle/measure/described_cluster.hpp"
#include "lib/settle/measure/product_rates.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::test {
namespace {

TEST(DescribedCluster, IsAFileOfThisMachine) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  CpuCompute compute;
  // Two ranks on each server, which share a rack.
  std::vector<comm::RackServerGpu> places;
  for (int rank = 0; rank < world->size(); ++rank)
    places.push_back({"", fmt::format("s{}", rank / 2), rank % 2});
  const cluster_files::Cluster cluster =
      measure::describe_cluster(*world, *world, places, compute,
                                measure::cpu_op_sizes(1 << 20, DType::fp32), int64_t{8} << 30, 1);

  EXPECT_EQ(cluster.ranks_per_server, std::min(2, world->size()));
  EXPECT_EQ(cluster.servers_per_rack, std::max(1, world->size() / 2));
  EXPECT_DOUBLE_EQ(cluster.rank.memory_gib, 8.0 / cluster.ranks_per_server);
  const std::string text = to_yaml(cluster);
  EXPECT_EQ(cluster_files::parse_cluster(text, "measured"), cluster) << text;
  for (const auto& part : world->all_gather(std::as_bytes(std::span(text))))
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(part.data()), part.size()), text)
        << "ranks have measured different machines";

  EXPECT_GT(cluster.overhead.op_us, 0.0);
  const cluster_files::Cluster::Shares& shares = cluster.efficiency;
  EXPECT_EQ(shares.gemm.curves.size(), 3u) << "rows, depth and width";
  EXPECT_EQ(shares.attention.slices.size(), 5u) << "rows at some depths";
  EXPECT_EQ(shares.copy.curves.size(), 1u) << "bytes";
  ASSERT_TRUE(shares.stream);
  ASSERT_TRUE(shares.weights && shares.pieces);
  ASSERT_TRUE(shares.recurrence);
  EXPECT_GT(cluster.overhead.recurrent_row_us, 0);
  EXPECT_EQ(shares.weights->curves.size(), 1u) << "bytes";
  EXPECT_EQ(shares.pieces->curves.size(), 1u) << "bytes";
  EXPECT_TRUE(world->size() > 1 || cluster.overhead.exchange_us == 0);
  EXPECT_GT(cluster.rank.first_touch_gbs, 0);
  EXPECT_GE(cluster.rank.alone, 1);
  EXPECT_GE(cluster.rank.alone_flops, 1);
  EXPECT_TRUE(world->size() > 1 || (cluster.rank.alone == 1 && cluster.rank.alone_flops == 1));
  EXPECT_EQ(shares.attention.factor, shares.gemm.factor) << "neighbours slow all that computes";
  EXPECT_EQ(shares.stream->factor, shares.copy.factor) << "neighbours share memory";
  EXPECT_EQ(cluster.links[0].us > 0, world->size() > 1);
}

}  // namespace
}  // namespace pecia::test
