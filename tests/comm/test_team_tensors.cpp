// SPDX-License-Identifier: Apache-2.0
/// Teams whose tensors are in a device's memory and travel by (a double of) NCCL.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>
#include <numeric>

#include "lib/base/device/buffer.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/nccl_communicator.hpp"
#include "lib/ranks/comm/team.hpp"
#include "tests/support/fake_nccl.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;

constexpr int64_t num_values = 1013;  // no multiple of any number of ranks here

struct TeamTensors : testing::Test {
  std::unique_ptr<Communicator> world = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  std::unique_ptr<device::Device> device = test::make_separate_device();
  std::unique_ptr<device::Stream> stream = device->make_stream();
  std::unique_ptr<Communicator> parent = make_nccl_communicator(
      world->split(0, world->rank()),
      test::make_fake_nccl(world->split(0, world->rank()), test::SumsOf::host), *device, *stream,
      [](const std::string& words) { ADD_FAILURE() << words; });

  /// The ranks of this rank's half, the highest first.
  std::vector<int> own_half() const {
    const int half = (world->size() + 1) / 2;
    const bool first = world->rank() < half;
    std::vector<int> ranks(first ? half : world->size() - half);
    std::iota(ranks.rbegin(), ranks.rend(), first ? 0 : half);
    return ranks;
  }
  /// One server for each rank, or two with every second rank of the list.
  static std::vector<int> servers_of(size_t ranks, bool two) {
    std::vector<int> servers(ranks);
    for (size_t i = 0; i < ranks; ++i) servers[i] = static_cast<int>(two ? i % 2 : i);
    return servers;
  }
  static std::vector<float> values_of(int rank) {
    std::vector<float> values(num_values);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 1.0f / static_cast<float>(i + 1 + 3 * static_cast<size_t>(rank));
    return values;
  }

  device::Buffer upload(std::span<const float> values) {
    device::Buffer buffer(*device, device::Memory::device,
                          static_cast<int64_t>(values.size_bytes()));
    device->copy(buffer.as<float>(), values.data(), buffer.bytes(), *stream);
    return buffer;
  }
  std::vector<float> download(const device::Buffer& buffer) {
    std::vector<float> values(static_cast<size_t>(buffer.bytes()) / sizeof(float));
    device->copy(values.data(), buffer.as<float>(), buffer.bytes(), *stream);
    stream->synchronize();
    return values;
  }
  static std::span<float> floats(const device::Buffer& buffer) {
    return {buffer.as<float>(), static_cast<size_t>(buffer.bytes()) / sizeof(float)};
  }
};

/// Bit by bit; both halves at the same time, in teams that change.
TEST_F(TeamTensors, AreSummedAsThoseOfAHostGroup) {
  const std::vector<int> ranks = own_half();
  const auto group = world->part(ranks);
  for (const bool two_servers : {false, true}) {
    const auto team = make_team(*parent, ranks, 1 + two_servers);
    const auto servers = servers_of(ranks.size(), two_servers);
    const auto of_team = team->make_collectives(servers, SumOrder::tree);
    const auto of_group = group->make_collectives(servers, SumOrder::tree);
    EXPECT_EQ(of_team->route(), of_group->route());

    std::vector<float> wanted = values_of(world->rank());
    const device::Buffer found = upload(wanted);
    of_group->start_all_reduce(wanted)->wait();
    of_team->start_all_reduce(floats(found))->wait();
    EXPECT_EQ(download(found), wanted);

    const std::vector<float> partial = values_of(10 + world->rank());
    std::vector<int64_t> counts(ranks.size(), 0);
    for (int64_t i = 0; i < num_values; ++i) ++counts[static_cast<size_t>(i % 7) % ranks.size()];
    std::vector<float> block(counts[team->rank()]);
    const device::Buffer on_device = upload(partial), sum = upload(block);
    of_group->start_reduce_scatter(partial, counts, block)->wait();
    of_team->start_reduce_scatter(floats(on_device), counts, floats(sum))->wait();
    EXPECT_EQ(download(sum), block);
  }
}

TEST_F(TeamTensors, AreGatheredBesideMessagesOfNccl) {
  const std::vector<int> ranks = own_half();
  const auto team = make_team(*parent, ranks, 1);
  const auto gathers = team->make_collectives(servers_of(ranks.size(), true), SumOrder::any);
  std::vector<device::Buffer> blocks;
  std::vector<std::span<std::byte>> places;
  for (const int rank : ranks) {
    std::vector<float> values = values_of(rank);
    if (rank != world->rank()) std::ranges::fill(values, -1.0f);
    blocks.push_back(upload(values));
    places.push_back(std::as_writable_bytes(floats(blocks.back())));
  }
  const int right = (team->rank() + 1) % team->size();
  const int left = (team->rank() + team->size() - 1) % team->size();
  const device::Buffer sent = upload(values_of(20 + world->rank()));
  const device::Buffer received = upload(std::vector<float>(num_values, -1.0f));
  std::unique_ptr<Transfer> message = std::make_unique<DoneTransfer>();
  if (team->size() > 1)
    message = team->start_send_receive(std::as_bytes(floats(sent)), right,
                                       std::as_writable_bytes(floats(received)), left);
  gathers->start_all_gather(places)->wait();
  message->wait();
  for (size_t i = 0; i < ranks.size(); ++i) EXPECT_EQ(download(blocks[i]), values_of(ranks[i]));
  if (team->size() > 1) {
    EXPECT_EQ(download(received), values_of(20 + ranks[left]));
  }
}

TEST_F(TeamTensors, AreCountedWhereTheyTravel) {
  std::vector<int> ranks(world->size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto team = make_team(*parent, ranks, 1);
  const device::Buffer values = upload(values_of(world->rank()));
  team->make_collectives(ranks, SumOrder::any)->start_all_reduce(floats(values))->wait();
  EXPECT_EQ(team->traffic().bytes, 0);
  const int64_t of_all = 2 * num_values * 4 * (world->size() - 1);
  EXPECT_EQ(world->all_reduce_sum(static_cast<double>(team->on_host().traffic().bytes)), of_all);
}

}  // namespace
}  // namespace pecia::comm
