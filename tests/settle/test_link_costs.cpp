// SPDX-License-Identifier: Apache-2.0
/// Links are measured where routes between servers are chosen by them, and only there.

#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/ranks/comm/communicator_over.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/settle/link_costs.hpp"
#include "lib/settle/measure/measured.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::settle {
namespace {

struct Question {
  std::string model;
  int per_server, sp, tp;
  parallel::PrefillMode prefill = parallel::PrefillMode::ulysses;
  bool on_stream = false;
  std::string kept = "";
  int per_rack = 8;
};

/// As NCCL's transfers are.
class OnStream : public comm::CommunicatorOver {
 public:
  explicit OnStream(comm::Communicator& inner) : CommunicatorOver(inner) {}
  bool on_stream() const override { return true; }
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return inner().split(color, key);
  }
  std::unique_ptr<comm::Communicator> split_by_host() override { return inner().split_by_host(); }
};

struct Answer {
  parallel::LinkCosts costs;
  std::string why;
};

/// Of a replica of all ranks.
Answer answer_to(const Question& question, comm::Communicator& world) {
  std::vector<comm::RackServerGpu> places;
  for (int rank = 0; rank < world.size(); ++rank)
    places.push_back({std::to_string(rank / question.per_rack),
                      std::to_string(rank / question.per_server), rank});
  resources::Resources resources;
  resources.sp = question.sp, resources.tp = question.tp;
  resources.cp = world.size() / (question.sp * question.tp);
  resources.prefill = question.prefill;
  const Ranks ranks = make_ranks(places, resources, world);
  const model::ModelConfig config = model::read_config(test::golden(question.model));
  const resources::ComputePlace place;
  const std::optional<tune::TunedQuestion> tuned;
  test::CpuCompute compute;
  Answer answer;
  OnStream on_stream(*ranks.replica);
  answer.costs =
      link_costs({config, ranks, place, DType::fp32, DType::fp32, nullptr, question.kept, tuned},
                 question.on_stream ? on_stream : *ranks.replica, compute, resources);
  answer.why = resources.reasons.text();
  return answer;
}

TEST(LinkCosts, AreMeasuredWhereKeysMayGoByRelays) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const auto measured = [&](const Question& question) {
    const auto [costs, why] = answer_to(question, *world);
    if (costs == parallel::LinkCosts()) {
      EXPECT_EQ(why, "");
      return false;
    }
    for (const double s_per_byte : {costs.across_s_per_byte, costs.inside_s_per_byte}) {
      EXPECT_GT(s_per_byte, 1e-12);  // a link passes something between 1 MB/s and 1 TB/s
      EXPECT_LT(s_per_byte, 1e-6);
      const auto mine = static_cast<int64_t>(1e18 * s_per_byte);
      EXPECT_EQ(world->all_reduce_max(mine), mine) << "another rank has more";
      EXPECT_EQ(-world->all_reduce_max(-mine), mine) << "another rank has less";
    }
    EXPECT_GT(costs.exchange_s, 0);
    EXPECT_EQ(costs.racks_s_per_byte > 0, question.per_rack < 8);
    EXPECT_NE(why.find("what several ranks of a server need"), std::string::npos) << why;
    return true;
  };
  using parallel::PrefillMode;
  const char* const two_kv_heads = "llama-biases";
  EXPECT_TRUE(measured({two_kv_heads, 2, 4, 1}));
  EXPECT_TRUE(measured({two_kv_heads, 2, 1, 4})) << "weights are gathered";
  EXPECT_FALSE(measured({two_kv_heads, 2, 1, 4, PrefillMode::tp})) << "no heads are exchanged";
  EXPECT_TRUE(measured({two_kv_heads, 2, 1, 4, PrefillMode::tp, true})) << "NCCL gathers";
  EXPECT_FALSE(measured({two_kv_heads, 1, 1, 4, PrefillMode::tp, true}));
  EXPECT_TRUE(measured({two_kv_heads, 1, 1, 4, PrefillMode::tp, false, "", 2})) << "two racks";
  EXPECT_FALSE(measured({two_kv_heads, 2, 1, 4, PrefillMode::tp, false, "", 2}))
      << "a server in each rack";
  EXPECT_FALSE(measured({two_kv_heads, 4, 4, 1})) << "one server";
  EXPECT_FALSE(measured({two_kv_heads, 2, 2, 2})) << "a head's ranks are on different servers";
  EXPECT_FALSE(measured({two_kv_heads, 1, 4, 1})) << "one rank on each server";
  EXPECT_FALSE(measured({two_kv_heads, 2, 2, 1, PrefillMode::usp})) << "a head on one rank each";
  EXPECT_FALSE(measured({"llama-gqa-fp32", 2, 4, 1})) << "as many KV heads as ranks";
}

TEST(LinkCosts, OfAContinuedRunAreThoseOfItsFirstStart) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  resources::Resources resources;
  resources.sp = 4;
  measure::Measured first;
  first.links = {3e-9, 2e-10, 5e-5, 7e-9};
  Question question{"llama-biases", 2, 4, 1};
  question.kept = measure::to_json(first, resources);
  EXPECT_EQ(answer_to(question, *world).costs, first.links);
  resources.sp = 2;
  question.kept = measure::to_json(first, resources);
  EXPECT_NE(answer_to(question, *world).costs, first.links) << "of other degrees";
}

}  // namespace
}  // namespace pecia::settle
