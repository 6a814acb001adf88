#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/comm/mpi_communicator.hpp"
#include "lib/comm/topology.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;

TEST(GatherPlaces, IsByRankOnEveryRank) {
  const auto world = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const auto place_of = [](int rank) {
    return RackServerGpu{std::string(rank % 3, 'r'), "server" + std::to_string(rank / 2), rank % 2};
  };
  const auto places = gather_places(*world, place_of(world->rank()));
  EXPECT_EQ(places.size(), static_cast<size_t>(world->size()));
  for (int rank = 0; rank < world->size(); ++rank) EXPECT_EQ(places.at(rank), place_of(rank));
}

TEST(GatherPlaces, RefusesDoubledPlacesOnEveryRank) {
  const auto world = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  if (world->size() == 1)
    EXPECT_NO_THROW(gather_places(*world, {"", "same", 0}));
  else
    EXPECT_THROW(gather_places(*world, {"", "same", 0}), InputError);
}

TEST(LocalRank, ComesFromTheHostsCommunicator) {
  const auto world = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const auto host = world->split_by_host();
  const auto places = gather_places(*world, {"", "host", host->rank()});
  EXPECT_EQ(places.size(), static_cast<size_t>(world->size()));
}

}  // namespace
}  // namespace pecia::comm
