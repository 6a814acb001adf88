// SPDX-License-Identifier: Apache-2.0
/// Ring attention of a layer that keeps the tokens which its window reaches, and no others.

#include <mpi.h>

#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/attention/ringed.hpp"

namespace pecia::attention {
namespace {

struct RecentKeys : testing::TestWithParam<std::tuple<AttentionExchange, kernels::Window, DType>> {
  std::unique_ptr<comm::Communicator> comm =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  AttentionExchange ring = std::get<0>(GetParam());
  kernels::Window window = std::get<1>(GetParam());

  /// As many slots as `sequences` have between passes and a pass of `tokens` takes on a rank.
  Ringed ringed(int64_t sequences, int64_t tokens) const {
    return {*comm, window, std::get<2>(GetParam()),
            RecentSlots::enough(window.tokens, sequences, tokens / comm->size() + 2 * sequences)};
  }
};

TEST_P(RecentKeys, OfChunkedPromptsAndLongAnswersAreEnough) {
  const int size = comm->size();
  Ringed ringed = this->ringed(2, 500);
  ringed.add(1, 1400), ringed.add(2, 1400);
  for (const int64_t count : {500, 1, 333, 37}) {
    ringed.pass({{1, ringed.length(1), count}}, ring);
    ringed.pass({{2, ringed.length(2), count / 3 + 1}}, ring);
  }
  for (int step = 0; step < 300; ++step)
    ringed.pass(
        {{1, ringed.length(1), 1, step % size}, {2, ringed.length(2), 1, (step + 1) % size}}, ring);
  ringed.pass({{1, ringed.length(1), 41}, {2, ringed.length(2), 100}}, ring);
  ringed.settle();
  EXPECT_LE(ringed.recent()->taken(), 2 * RecentSlots::most_of_sequence(window.tokens));
  ringed.remove(1), ringed.remove(2);
  EXPECT_EQ(ringed.recent()->taken(), 0);
}

TEST_P(RecentKeys, OfAParentAreEnoughForItsChildren) {
  Ringed ringed = this->ringed(3, 600);
  ringed.add(1, 800);
  ringed.pass({{1, 0, 600}}, ring);
  ringed.pass({{1, 600, 150}}, ring);
  ringed.add(2, 500, 1), ringed.add(3, 500, 1);
  ringed.pass({{2, 750, 7}, {3, 750, 1}}, ring);
  ringed.pass({{2, 757, 1, 0}, {3, 751, 400}}, ring);
  ringed.remove(2);
  ringed.add(4, 500, 1);
  ringed.pass({{4, 750, 33}, {3, 1151, 3}}, ring);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, RecentKeys,
    testing::Combine(testing::Values(AttentionExchange::pass_kv, AttentionExchange::pass_q,
                                     AttentionExchange::broadcast_q),
                     testing::Values(kernels::Window(1), kernels::Window(16), kernels::Window(150),
                                     kernels::Window::chunks_of(150)),
                     testing::Values(DType::fp32, DType::fp8)));

}  // namespace
}  // namespace pecia::attention
