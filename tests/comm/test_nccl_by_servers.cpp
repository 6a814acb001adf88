// SPDX-License-Identifier: Apache-2.0
/// Gathers and scatters by (a double of) NCCL that go by servers give what the host's do, and count
/// the same bytes of each level.

#include <gtest/gtest.h>
#include <mpi.h>

#include <numeric>

#include "lib/base/device/buffer.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/host_collectives.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/nccl_communicator.hpp"
#include "tests/comm/server_layouts.hpp"
#include "tests/support/fake_nccl.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;

class NcclByServers : public testing::Test {
 protected:
  /// Two servers, each with half of the ranks.
  void SetUp() override {
    for (int rank = 0; rank < world_->size(); ++rank) {
      labels_.servers.push_back(rank / (world_->size() / 2));
      places_.push_back({"rack", std::to_string(labels_.servers.back()), rank});
    }
    tensors_->set_places(places_);
    host_->set_places(places_);
  }
  /// Two racks, each with two servers of two ranks.
  void stand_in_racks() {
    labels_ = {}, places_.clear();
    for (int rank = 0; rank < world_->size(); ++rank) {
      labels_.servers.push_back(rank / 2);
      labels_.racks.push_back(rank / 4);
      places_.push_back({std::to_string(rank / 4), std::to_string(rank / 2), rank});
    }
    tensors_->set_places(places_);
    host_->set_places(places_);
  }
  void expect_gathers_of_host();
  void expect_sums_of_host();

  device::Buffer upload(std::span<const float> values) {
    device::Buffer buffer(*device_, device::Memory::device,
                          static_cast<int64_t>(values.size_bytes()));
    device_->copy(buffer.as<float>(), values.data(), buffer.bytes(), *stream_);
    return buffer;
  }
  std::vector<float> download(const device::Buffer& buffer) {
    std::vector<float> values(static_cast<size_t>(buffer.bytes()) / sizeof(float));
    device_->copy(values.data(), buffer.as<float>(), buffer.bytes(), *stream_);
    stream_->synchronize();
    return values;
  }
  static Addends addends(const device::Buffer& buffer) {
    return {buffer.as<float>(), DType::fp32, buffer.bytes() / 4};
  }
  /// Of a rank's number; sums of small whole numbers are exact in any order.
  static float number(int rank, int64_t i) { return static_cast<float>((rank * 31 + i * 7) % 101); }

  /// Equal blocks, which are one call, and others.
  std::vector<std::vector<int64_t>> all_counts() const {
    std::vector<std::vector<int64_t>> all{std::vector<int64_t>(world_->size(), 37)};
    for (int seed = 0; seed < 3; ++seed) all.push_back(test::ragged_counts(world_->size(), seed));
    return all;
  }
  void expect_counted_as_host() const {
    const Traffic mine = tensors_->traffic(), wanted = host_->traffic();
    EXPECT_EQ(mine.bytes_by_level, wanted.bytes_by_level);
    EXPECT_EQ(mine.messages_by_level, wanted.messages_by_level);
  }

  std::unique_ptr<Communicator> world_ = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  std::unique_ptr<Communicator> host_ = world_->split(0, world_->rank());
  std::unique_ptr<device::Device> device_ = test::make_separate_device();
  std::unique_ptr<device::Stream> stream_ = device_->make_stream();
  std::unique_ptr<Communicator> tensors_ = make_nccl_communicator(
      world_->split(0, world_->rank()),
      test::make_fake_nccl(world_->split(0, world_->rank()), test::SumsOf::nobody), *device_,
      *stream_, [](const std::string& words) { ADD_FAILURE() << words; });
  RankLabels labels_;
  std::vector<RackServerGpu> places_;
};

void NcclByServers::expect_gathers_of_host() {
  for (const int64_t least : {1, 40, 1 << 20}) {
    tensors_->set_least_block_by_servers(least);
    const auto gathers = tensors_->make_collectives(labels_, SumOrder::any);
    const auto of_host = host_->make_collectives(labels_, SumOrder::any);
    EXPECT_EQ(gathers->route(), Route::hierarchical);
    for (const auto& counts : all_counts()) {
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      std::vector<float> wanted(total, -1);
      std::vector<std::span<std::byte>> host_blocks, blocks;
      for (int64_t begin = 0, rank = 0; rank < std::ssize(counts); begin += counts[rank++]) {
        if (rank == world_->rank())
          for (int64_t i = begin; i < begin + counts[rank]; ++i)
            wanted[i] = number(world_->rank(), i);
        host_blocks.push_back(
            std::as_writable_bytes(std::span(wanted).subspan(begin, counts[rank])));
      }
      const device::Buffer found = upload(wanted);
      for (int64_t begin = 0, rank = 0; rank < std::ssize(counts); begin += counts[rank++])
        blocks.push_back(std::as_writable_bytes(
            std::span(found.as<float>() + begin, static_cast<size_t>(counts[rank]))));
      of_host->start_all_gather(host_blocks)->wait();
      gathers->start_all_gather(blocks)->wait();
      EXPECT_EQ(download(found), wanted);
      expect_counted_as_host();
    }
  }
}

TEST_F(NcclByServers, GathersWhatTheHostGathers) {
  expect_gathers_of_host();
}

/// The sum in its own block of the partials, and elsewhere.
void NcclByServers::expect_sums_of_host() {
  tensors_->set_least_block_by_servers(1);
  const auto sums = tensors_->make_collectives(labels_, SumOrder::any);
  const auto of_host = host_->make_collectives(labels_, SumOrder::any);
  for (const bool in_place : {false, true})
    for (const auto& counts : all_counts()) {
      const int own = world_->rank();
      std::vector<float> partial;
      for (int64_t i = 0; i < std::accumulate(counts.begin(), counts.end(), int64_t{0}); ++i)
        partial.push_back(number(own, i));
      const int64_t begin = std::accumulate(counts.begin(), counts.begin() + own, int64_t{0});
      std::vector<float> wanted(counts[own]);
      const device::Buffer values = upload(partial), apart = upload(wanted);
      const Addends mine = in_place ? addends(values).part(begin, counts[own]) : addends(apart);
      of_host->start_reduce_scatter(partial, counts, wanted)->wait();
      sums->start_reduce_scatter(addends(values), counts, mine)->wait();
      std::vector<float> found = download(in_place ? values : apart);
      if (in_place) found = {found.begin() + begin, found.begin() + begin + counts[own]};
      EXPECT_EQ(found, wanted);
      expect_counted_as_host();
      std::vector<float> all = partial;
      const device::Buffer on_device = upload(all);
      of_host->start_all_reduce(all)->wait();
      sums->start_all_reduce(addends(on_device))->wait();
      EXPECT_EQ(download(on_device), all);
      expect_counted_as_host();
    }
}

TEST_F(NcclByServers, SumsWhatTheHostSums) {
  expect_sums_of_host();
}

/// Blocks of any size, and large ones alone.
TEST_F(NcclByServers, GoesByRacksAsTheHostDoes) {
  if (world_->size() < 8) GTEST_SKIP() << "four servers of two ranks";
  stand_in_racks();
  for (const int64_t least : {0, 4096}) {
    labels_.least_block_by_racks = least;
    expect_gathers_of_host();
    expect_sums_of_host();
  }
}

/// What a phantom of the rank counts follows, since its collectives are the host's.
TEST_F(NcclByServers, LetsEachBlockCrossOnce) {
  tensors_->set_least_block_by_servers(1);
  const auto gathers = tensors_->make_collectives(labels_, SumOrder::any);
  const device::Buffer all = upload(std::vector<float>(5 * world_->size()));
  std::vector<std::span<std::byte>> blocks;
  for (int rank = 0; rank < world_->size(); ++rank)
    blocks.push_back(std::as_writable_bytes(std::span(all.as<float>() + 5 * rank, 5)));
  gathers->start_all_gather(blocks)->wait();
  stream_->synchronize();
  EXPECT_EQ(tensors_->traffic().bytes_by_level[static_cast<size_t>(LinkLevel::rack)], 20);
}

TEST_F(NcclByServers, IsNotForRanksThatHaveNoRails) {
  tensors_->set_least_block_by_servers(1);
  std::vector<int> mixed(labels_.servers);
  std::swap(mixed.front(), mixed.back());
  EXPECT_EQ(tensors_->make_collectives(mixed, SumOrder::any)->route(), Route::flat);
  const std::vector<int> one(mixed.size(), 0);
  EXPECT_EQ(tensors_->make_collectives(one, SumOrder::any)->route(), Route::flat);
}

}  // namespace
}  // namespace pecia::comm
