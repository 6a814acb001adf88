// SPDX-License-Identifier: Apache-2.0
/// Decode passes of the CUDA backend, emulated, are graphs between the transfers of several ranks,
/// and nothing changes by that.

#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>

#include "lib/comm/mpi_communicator.hpp"
#include "lib/model/config.hpp"
#include "lib/resources/resources.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

TEST(RankSteps, AreGraphsThatComeAgainAndGiveTheSameBits) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const std::filesystem::path model = golden("llama-gqa-fp32");
  std::vector<schedule::Request> requests;
  for (const int64_t length : {40, 5})
    requests.push_back(greedy_request(static_cast<int64_t>(requests.size()),
                                      random_tokens(length, 96, static_cast<uint64_t>(length)),
                                      14));
  for (const parallel::ModePair& pair :
       parallel::legal_modes(all->size(), resources::shape_of(model::read_config(model)))) {
    SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    ReplicaSettings settings;
    settings.sp = pair.degrees.sp;
    settings.tp = pair.degrees.tp;
    settings.modes = parallel::pass_modes(pair, 6);
    settings.ring = parallel::Ring::pass_q;
    device::GraphCounts one_by_one, as_graphs;
    settings.place = TestPlace::emulated_staged;
    settings.graphs = &one_by_one;
    const auto wanted = run_requests(*all, model, requests, settings);
    settings.place = TestPlace::emulated_nccl;
    settings.graphs = &as_graphs;
    expect_same_bits(run_requests(*all, model, requests, settings), wanted);
    if (all->size() > 1) {
      EXPECT_EQ(one_by_one.launched, 0) << "the host waits for these transfers";
    }
    EXPECT_GT(as_graphs.launched, 3 * as_graphs.made) << as_graphs.made;
  }
}

}  // namespace
}  // namespace pecia::test
