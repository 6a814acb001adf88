// SPDX-License-Identifier: Apache-2.0
/// Keys and values that go by relays from server to server, where several ranks need a KV head, give
/// the bits of those that go directly: in every mode that exchanges heads, on the host and on a device
/// of its own. Sums that go by racks have the bits of those that do not where a job asks for that.

#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"
#include "tests/support/two_servers.hpp"

namespace pecia::test {
namespace {

std::vector<batch::Request> requests() {
  std::vector<batch::Request> requests;
  int64_t row = 0;
  for (const int64_t length : {1, 7, 40})
    requests.push_back(greedy_request(row++, random_tokens(length, 90, 3), 5));
  const int64_t lengths[] = {20, 3, 9};
  requests.push_back(greedy_turns(io::Followup::fork, row, lengths, 90, 5, 4));
  return requests;
}

/// Two KV heads on four ranks, so two ranks of a server need the same one.
TEST(KvRelays, GiveTheBitsOfDirectKeysInEveryModeThatExchangesHeads) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const std::filesystem::path model = golden("llama-biases");
  const model::ModelConfig config = model::read_config(model);
  ASSERT_EQ(config.num_kv_heads, 2);
  ASSERT_EQ(all->size(), 4);
  int modes = 0;
  for (const parallel::ModePair& pair :
       parallel::legal_modes(all->size(), resources::shape_of(config))) {
    const auto& [cp, sp, tp, ep] = pair.degrees;
    if (cp > 1 || sp == 1) continue;
    SCOPED_TRACE(fmt::format("{}, {} + {}", to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    ReplicaSettings settings;
    settings.sp = sp, settings.tp = tp, settings.ep = ep;
    settings.modes = parallel::pass_modes(pair, 6);
    settings.logprobs = 2;
    settings.places = two_servers(4);
    settings.wire = modes++ % 2 == 0 ? DType::fp32 : DType::bf16;
    for (const TestPlace place :
         {TestPlace::host, TestPlace::separate_staged, TestPlace::separate_nccl}) {
      settings.place = place;
      settings.link_costs = {};
      const auto direct = run_requests(*all, model, requests(), settings);
      settings.link_costs = relays_pay;
      expect_same_bits(run_requests(*all, model, requests(), settings), direct);
    }
  }
  EXPECT_GT(modes, 1);
}

TEST(SumsByRacks, HaveTheBitsOfOneServerWithReproducibleLayout) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  ReplicaSettings settings;
  settings.tp = all->size();
  settings.modes = parallel::pass_modes(
      {{1, 1, settings.tp}, parallel::PrefillMode::tp, parallel::DecodeMode::tp}, {});
  settings.layout_invariant = true;
  settings.logprobs = 2;
  for (const TestPlace place : {TestPlace::host, TestPlace::separate_staged}) {
    settings.place = place;
    settings.places.clear();
    settings.link_costs = {};
    const auto on_one_server = run_requests(*all, golden("llama-gqa-fp32"), requests(), settings);
    settings.places = two_racks(all->size());
    settings.link_costs = racks_pay;
    expect_same_bits(run_requests(*all, golden("llama-gqa-fp32"), requests(), settings),
                     on_one_server);
  }
}

}  // namespace
}  // namespace pecia::test
