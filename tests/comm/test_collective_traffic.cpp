// SPDX-License-Identifier: Apache-2.0
/// What travels is what collectives.hpp says, counted by level, rank by rank.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <numeric>

#include "lib/ranks/comm/host_collectives.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/comm/server_layouts.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;

/// Servers of even labels stand in one rack, of odd ones in another.
std::vector<RackServerGpu> places_of(const std::vector<int>& labels) {
  std::vector<RackServerGpu> places;
  for (size_t rank = 0; rank < labels.size(); ++rank)
    places.push_back({labels[rank] % 2 == 0 ? "even" : "odd",
                      "server" + std::to_string(labels[rank]), static_cast<int>(rank)});
  return places;
}

/// The formulas, from labels alone.
class Formulas {
 public:
  Formulas(std::vector<int> labels, Route route, std::vector<int64_t> block_bytes)
      : labels_(std::move(labels)), route_(route), bytes_(std::move(block_bytes)) {}

  Traffic all_gather(int rank) const {
    Traffic traffic;
    if (route_ == Route::flat) {
      for (int to = 0; to < size(); ++to) add(traffic, rank, to, bytes_[rank]);
      return traffic;
    }
    const int local_peers = ranks_on(labels_[rank]) - 1;
    for (int to = 0; to < size(); ++to)
      if (labels_[to] == labels_[rank] || is_delegate(to, rank))
        add(traffic, rank, to, bytes_[rank]);
    for (int from = 0; from < size(); ++from)
      if (is_delegate(rank, from))
        for (int peer = 0; peer < local_peers; ++peer) add_inside(traffic, bytes_[from]);
    return traffic;
  }

  Traffic reduce_scatter(int rank) const {
    Traffic traffic;
    for (int owner = 0; owner < size(); ++owner) {
      if (route_ == Route::flat || is_delegate(rank, owner))
        add(traffic, rank, owner, bytes_[owner]);
      else if (owner != rank)
        add_inside(traffic, bytes_[owner]);
    }
    return traffic;
  }

  int ranks_on(int label) const { return static_cast<int>(std::ranges::count(labels_, label)); }

 private:
  int size() const { return static_cast<int>(labels_.size()); }
  int index_on_server(int rank) const {
    return static_cast<int>(std::count(labels_.begin(), labels_.begin() + rank, labels_[rank]));
  }
  /// Whether `rank` does for its server what `other`, on another server, has to do with it.
  bool is_delegate(int rank, int other) const {
    return labels_[rank] != labels_[other] &&
           index_on_server(other) % ranks_on(labels_[rank]) == index_on_server(rank);
  }
  void add(Traffic& traffic, int from, int to, int64_t bytes) const {
    if (from == to || bytes == 0) return;
    const bool same_server = labels_[from] == labels_[to];
    const bool same_rack = (labels_[from] - labels_[to]) % 2 == 0;
    count(traffic, bytes, same_server ? 0 : same_rack ? 1 : 2);
  }
  static void add_inside(Traffic& traffic, int64_t bytes) {
    if (bytes > 0) count(traffic, bytes, 0);
  }
  static void count(Traffic& traffic, int64_t bytes, int level) {
    ++traffic.messages;
    traffic.bytes += bytes;
    traffic.bytes_by_level[level] += bytes;
  }

  std::vector<int> labels_;
  Route route_;
  std::vector<int64_t> bytes_;
};

void expect_equal(const Traffic& actual, const Traffic& expected) {
  EXPECT_EQ(actual.messages, expected.messages);
  EXPECT_EQ(actual.bytes, expected.bytes);
  EXPECT_EQ(actual.bytes_by_level, expected.bytes_by_level);
}

int64_t between_servers(Communicator& comm) {
  const Traffic traffic = comm.traffic();
  const int64_t own = traffic.bytes_by_level[1] + traffic.bytes_by_level[2];
  return static_cast<int64_t>(comm.all_reduce_sum(static_cast<double>(own)));
}

class CollectiveTraffic : public testing::TestWithParam<test::ServerLayout> {
 protected:
  CollectiveTraffic() {
    comm_->set_places(places_of(labels_));
    for (const int64_t count : counts_) bytes_.push_back(count * 4);
  }
  int rank() const { return comm_->rank(); }
  void all_gather(Collectives& collectives) {
    std::vector<std::vector<float>> all;
    std::vector<std::span<std::byte>> blocks;
    for (const int64_t count : counts_) all.emplace_back(count, 1.0f);
    for (auto& block : all) blocks.push_back(std::as_writable_bytes(std::span(block)));
    collectives.start_all_gather(blocks)->wait();
  }
  void reduce_scatter(Collectives& collectives) {
    const std::vector<float> partial(std::accumulate(counts_.begin(), counts_.end(), int64_t{0}));
    std::vector<float> mine(counts_[rank()]);
    collectives.start_reduce_scatter(partial, counts_, mine)->wait();
  }

  const std::unique_ptr<Communicator> comm_ = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const std::vector<int> labels_ = GetParam().labels(comm_->size());
  const std::vector<int64_t> counts_ = test::ragged_counts(comm_->size(), 1);
  std::vector<int64_t> bytes_;
};

TEST_P(CollectiveTraffic, OfAllGatherIsTheFormulas) {
  HostCollectives collectives(*comm_, labels_);
  all_gather(collectives);
  expect_equal(comm_->traffic(), Formulas(labels_, collectives.route(), bytes_).all_gather(rank()));
}

TEST_P(CollectiveTraffic, OfReduceScatterIsTheFormulas) {
  HostCollectives collectives(*comm_, labels_);
  reduce_scatter(collectives);
  expect_equal(comm_->traffic(),
               Formulas(labels_, collectives.route(), bytes_).reduce_scatter(rank()));
}

TEST_P(CollectiveTraffic, OfAllReduceIsBoth) {
  HostCollectives collectives(*comm_, labels_);
  constexpr int64_t count = 1003;
  std::vector<float> values(count);
  Traffic expected;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    std::vector<int64_t> cuts;
    for (int r = 0; r < comm_->size(); ++r)
      cuts.push_back(size_of(dtype) *
                     (count / comm_->size() + (r < count % comm_->size() ? 1 : 0)));
    collectives.start_all_reduce({values.data(), dtype, count})->wait();
    const Formulas formulas(labels_, collectives.route(), cuts);
    for (const Traffic& part : {formulas.all_gather(rank()), formulas.reduce_scatter(rank())}) {
      expected.messages += part.messages;
      expected.bytes += part.bytes;
      for (int level = 0; level < num_link_levels; ++level)
        expected.bytes_by_level[level] += part.bytes_by_level[level];
    }
    expect_equal(comm_->traffic(), expected);
  }
}

/// The sums over all ranks of the first table in collectives.hpp.
TEST_P(CollectiveTraffic, BetweenServersIsTheTablesSum) {
  const Formulas formulas(labels_, Route::flat, bytes_);
  const int size = comm_->size();
  const int64_t total = std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
  int64_t flat_expected = 0;
  for (int r = 0; r < size; ++r)
    flat_expected += bytes_[r] * (size - formulas.ranks_on(labels_[r]));
  std::vector<int> distinct = labels_;
  std::ranges::sort(distinct);
  const int64_t servers = std::ranges::unique(distinct).begin() - distinct.begin();

  HostCollectives flat(*comm_, std::vector(size, 0)), by_server(*comm_, labels_);
  all_gather(flat);
  EXPECT_EQ(between_servers(*comm_), flat_expected);
  reduce_scatter(flat);
  EXPECT_EQ(between_servers(*comm_), 2 * flat_expected);
  all_gather(by_server);
  EXPECT_EQ(between_servers(*comm_), 2 * flat_expected + (servers - 1) * total);
  reduce_scatter(by_server);
  EXPECT_EQ(between_servers(*comm_), 2 * flat_expected + 2 * (servers - 1) * total);
  EXPECT_EQ(comm_->all_reduce_sum(static_cast<double>(comm_->traffic().bytes)),
            static_cast<double>(4 * (size - 1) * total));
}

INSTANTIATE_TEST_SUITE_P(Layouts, CollectiveTraffic, testing::ValuesIn(test::server_layouts()),
                         [](const auto& test) { return test.param.name; });

TEST(Traffic, IsCountedByLevelOnceThePlacesAreKnown) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const int size = comm->size(), rank = comm->rank();
  std::vector<RackServerGpu> places;
  for (int r = 0; r < size; ++r)
    places.push_back({"rack" + std::to_string(r / 4), "n" + std::to_string(r / 2), r % 2});
  const auto exchange_all = [&] {
    std::vector<std::byte> sent(size * 10), received(size * 10);
    Blocks blocks;
    for (int r = 0; r < size; ++r) {
      blocks.send.push_back(std::span(sent).subspan(r * 10, 10));
      blocks.receive.push_back(std::span(received).subspan(r * 10, 10));
    }
    comm->start_all_to_all(blocks)->wait();
  };
  exchange_all();
  const int64_t others = 10 * (size - 1);
  EXPECT_EQ(comm->traffic().bytes_by_level, (std::array<int64_t, 3>{others, 0, 0}));
  EXPECT_THROW(comm->set_places({places.begin(), places.end() - 1}), InvalidArgument);
  comm->set_places(places);
  exchange_all();
  const auto ranks_from = [&](int begin, int end) {  // of the group's ranks, those in [begin, end)
    return std::max(0, std::min(end, size) - begin);
  };
  const int64_t server = 10 * (ranks_from(rank / 2 * 2, rank / 2 * 2 + 2) - 1);
  const int64_t rack = 10 * (ranks_from(rank / 4 * 4, rank / 4 * 4 + 4) - 1) - server;
  EXPECT_EQ(comm->traffic().bytes_by_level,
            (std::array<int64_t, 3>{others + server, rack, others - server - rack}));
  EXPECT_EQ(comm->split(0, 0)->traffic().bytes, 0);
}

}  // namespace
}  // namespace pecia::comm
