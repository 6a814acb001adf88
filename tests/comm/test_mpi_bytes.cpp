// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/ranks/comm/mpi_bytes.hpp"

namespace pecia::comm {
namespace {

/// The ranks of the test, whose messages hold this much.
class Ranks {
 public:
  explicit Ranks(size_t most_bytes) {
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
    ranks.comm = MPI_COMM_WORLD;
    ranks.most_bytes = most_bytes;
    ranks.start = [this](const char* operation, std::string peers) {
      ++messages;
      return std::make_unique<MpiTransfer>(
          MpiTransfer::Label{operation, series_.next(), std::move(peers), series_}, timeout,
          common_);
    };
  }

  MpiRanks ranks{};
  int messages = 0;

 private:
  static constexpr std::chrono::seconds timeout{60};
  std::shared_ptr<Activity> activity_ = std::make_shared<Activity>();
  NumberedSeries series_{*activity_, 1};
  std::shared_ptr<MpiCommon> common_ =
      std::make_shared<MpiCommon>(MpiCommon{timeout, activity_, {}});
};

/// What a rank sends: rank 1 nothing, the others more and more.
std::vector<std::byte> bytes_of(int rank) {
  std::vector<std::byte> bytes(rank == 1 ? 0 : 100 + 37 * rank);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + rank);
  return bytes;
}

TEST(MpiBytes, TravelInSeveralMessagesWhereOneIsTooSmall) {
  for (const size_t most_bytes : {size_t{8}, size_t{64}, max_message_bytes}) {
    Ranks here(most_bytes);
    const auto mine = bytes_of(here.ranks.rank);
    const auto all = all_gather_bytes(here.ranks, mine);
    ASSERT_EQ(std::ssize(all), here.ranks.size);
    for (int rank = 0; rank < here.ranks.size; ++rank) EXPECT_EQ(all[rank], bytes_of(rank));
    const int root = here.ranks.size - 1;
    const auto at_root = gather_bytes(here.ranks, mine, root);
    EXPECT_EQ(at_root, here.ranks.rank == root ? all : decltype(all){});
    if (most_bytes == max_message_bytes)
      EXPECT_EQ(here.messages, 4);  // sizes and bytes, twice
    else
      EXPECT_GT(here.messages, 4);
    EXPECT_EQ(gather_bytes(here.ranks, {}, 0).size(),
              here.ranks.rank == 0 ? static_cast<size_t>(here.ranks.size) : 0);
  }
}

}  // namespace
}  // namespace pecia::comm
