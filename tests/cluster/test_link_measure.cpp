// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <thread>

#include "lib/ranks/cluster/link_measure.hpp"
#include "lib/ranks/comm/communicator_over.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/comm/server_layouts.hpp"

namespace pecia::cluster {
namespace {

using namespace std::chrono_literals;

const MeasureOptions quick{int64_t{1} << 14, 1ms};

void expect_figure(double value) {
  EXPECT_TRUE(std::isfinite(value) && value > 0) << value;
}

/// Links on which a message takes at least so long, however fast the machine is.
class SlowLinks : public comm::CommunicatorOver {
 public:
  static constexpr auto small_takes = 500us, large_takes = 4000us;

  explicit SlowLinks(std::unique_ptr<comm::Communicator> inner)
      : comm::CommunicatorOver(std::move(inner)) {}

  std::unique_ptr<comm::Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                                     std::span<std::byte> receive,
                                                     int from) override {
    if (!send.empty()) std::this_thread::sleep_for(send.size() > 8 ? large_takes : small_takes);
    return inner().start_send_receive(send, to, receive, from);
  }
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return inner().split(color, key);
  }
  std::unique_ptr<comm::Communicator> split_by_host() override { return inner().split_by_host(); }
};

/// A rack for each pair of servers.
std::vector<comm::RackServerGpu> places_of(const std::vector<int>& servers) {
  std::vector<comm::RackServerGpu> places;
  for (size_t rank = 0; rank < servers.size(); ++rank)
    places.push_back({fmt::format("rack{}", std::abs(servers[rank]) / 2),
                      fmt::format("n{}", servers[rank]), static_cast<int>(rank)});
  return places;
}

/// What all ranks must have alike: the values themselves, not just their number.
void expect_same_everywhere(comm::Communicator& world, const std::vector<double>& values) {
  const auto all = world.all_gather(std::as_bytes(std::span(values)));
  for (const auto& bytes : all) EXPECT_EQ(bytes, all[0]);
}

class EveryLayout : public testing::TestWithParam<test::ServerLayout> {};

TEST_P(EveryLayout, IsMeasuredPairByPairOnEveryRankAlike) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const auto places = places_of(GetParam().labels(world->size()));
  const auto pairs = representative_pairs(places, 3);
  const auto figures = measure_pairs(*world, pairs, quick);
  std::vector<double> values;
  EXPECT_EQ(figures.size(), pairs.size());
  for (size_t i = 0; i < figures.size(); ++i) {
    EXPECT_EQ(figures[i].ranks, pairs[i]);
    expect_figure(figures[i].latency_us);
    expect_figure(figures[i].bandwidth_gb_s);
    values.push_back(figures[i].latency_us);
    values.push_back(figures[i].bandwidth_gb_s);
  }
  expect_same_everywhere(*world, values);
}

TEST(MeasurePairs, SaysWhatAMessageTakesOneWay) {
  SlowLinks world(comm::make_mpi_communicator(MPI_COMM_WORLD, 60s));
  if (world.size() < 2) GTEST_SKIP() << "there is no link";
  const std::vector<RankPair> pairs{{0, 1}};
  const auto figures = measure_pairs(world, pairs, quick);
  ASSERT_EQ(figures.size(), 1u);
  // Other work on the machine makes messages slower, up to a hundred times, but never faster.
  EXPECT_GE(figures[0].latency_us, 500);
  EXPECT_LE(figures[0].latency_us, 50000);
  const double fastest_gb_s = static_cast<double>(quick.large_bytes) / 4000 * 1e-3;
  EXPECT_LE(figures[0].bandwidth_gb_s, fastest_gb_s);
  EXPECT_GE(figures[0].bandwidth_gb_s, fastest_gb_s / 100);
}

TEST(MeasureRings, SaysWhatAStepTakes) {
  SlowLinks world(comm::make_mpi_communicator(MPI_COMM_WORLD, 60s));
  if (world.size() < 2) GTEST_SKIP() << "there is no ring";
  const auto figures = measure_rings(world, {{0, 1}}, quick);
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_GE(figures[0].step_us, 500);
  EXPECT_LE(figures[0].step_us, 50000);
  const double fastest_gb_s = static_cast<double>(quick.large_bytes) / 4000 * 1e-3;
  ASSERT_EQ(figures[0].bandwidth_gb_s.size(), 2u);
  for (const double bandwidth : figures[0].bandwidth_gb_s) EXPECT_LE(bandwidth, fastest_gb_s);
}

INSTANTIATE_TEST_SUITE_P(OfServers, EveryLayout, testing::ValuesIn(test::server_layouts()),
                         [](const auto& layout) { return layout.param.name; });

TEST(MeasureRings, HasALinkFromEachRankOfARingOfTwoOrMore) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, 60s);
  std::vector<int> odd, even;
  for (int rank = world->size() - 1; rank >= 0; --rank)
    (rank % 2 == 0 ? even : odd).push_back(rank);
  const auto figures = measure_rings(*world, {even, odd}, quick);
  EXPECT_EQ(figures.size(), static_cast<size_t>((even.size() > 1) + (odd.size() > 1)));
  std::vector<double> values;
  for (const RingFigures& ring : figures) {
    EXPECT_TRUE(ring.ranks == even || ring.ranks == odd);
    EXPECT_EQ(ring.bandwidth_gb_s.size(), ring.ranks.size());
    expect_figure(ring.step_us);
    for (const double bandwidth : ring.bandwidth_gb_s) expect_figure(bandwidth);
    values.insert(values.end(), ring.bandwidth_gb_s.begin(), ring.bandwidth_gb_s.end());
    values.push_back(ring.step_us);
  }
  expect_same_everywhere(*world, values);
}

TEST(RepresentativePairs, ArePerServerPerRackAndBetweenRacks) {
  const std::vector<comm::RackServerGpu> places{{"b", "n3", 0}, {"a", "n1", 1}, {"a", "n2", 0},
                                                {"a", "n1", 0}, {"b", "n3", 1}, {"a", "n1", 2}};
  const std::vector<RankPair> expected{{3, 1}, {0, 4}, {3, 2}, {3, 0}};
  EXPECT_EQ(representative_pairs(places, 8), expected);
}

TEST(RepresentativePairs, AreSpreadWhereThereAreMany) {
  std::vector<comm::RackServerGpu> places;
  for (int rank = 0; rank < 200; ++rank)
    places.push_back({"", fmt::format("n{:03}", rank / 2), rank % 2});
  const std::vector<RankPair> expected{{0, 1}, {100, 101}, {0, 2}, {98, 100}};
  EXPECT_EQ(representative_pairs(places, 2), expected);
  EXPECT_TRUE(representative_pairs(std::span(places).first(1), 2).empty());
}

}  // namespace
}  // namespace pecia::cluster
