// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/ranks/cluster/topology.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"

namespace pecia::cluster {
namespace {

using namespace std::chrono_literals;

TEST(GatherPlaces, IsByRankOnEveryRank) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const auto place_of = [](int rank) {
    return comm::RackServerGpu{"rack" + std::to_string(rank / 3), "server" + std::to_string(rank),
                               rank};
  };
  const auto places = gather_places(*world, place_of(world->rank()));
  EXPECT_EQ(places.size(), static_cast<size_t>(world->size()));
  for (int rank = 0; rank < world->size(); ++rank) EXPECT_EQ(places.at(rank), place_of(rank));
}

TEST(GatherPlaces, RefusesDoubledPlacesOnEveryRank) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, 60s);
  if (world->size() == 1)
    EXPECT_NO_THROW(gather_places(*world, {"", "same", 0}));
  else
    EXPECT_THROW(gather_places(*world, {"", "same", 0}), InputError);
}

TEST(GatherPlaces, RefusesUnevenServersOnEveryRank) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const comm::RackServerGpu mine{"", world->rank() == 0 ? "first" : "others", world->rank()};
  if (world->size() <= 2)
    EXPECT_NO_THROW(gather_places(*world, mine));
  else
    EXPECT_THROW(gather_places(*world, mine), InputError);
}

TEST(FindPlaces, NamesTheRankThatHasNoneOnEveryRank) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, 60s);
  try {
    find_places(*world, "no/such/file");
    ADD_FAILURE() << "a file that is not there";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find("rank 0 (host "), 0u) << error.what();
    EXPECT_NE(std::string(error.what()).find("topology file no/such/file: "), std::string::npos);
  }
}

TEST(LocalRank, ComesFromTheHostsCommunicator) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const auto host = world->split_by_host();
  const auto places = gather_places(*world, {"", "host", host->rank()});
  EXPECT_EQ(places.size(), static_cast<size_t>(world->size()));
}

}  // namespace
}  // namespace pecia::cluster
