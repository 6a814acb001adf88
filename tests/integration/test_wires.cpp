// SPDX-License-Identifier: Apache-2.0
/// Activations that travel in bf16 (model.wire): the predictions are those of one rank, as near as
/// what is rounded on the way lets them be. Products, keys and values are of fp32 here, so that
/// nothing else is rounded, and every rank has to widen what it receives.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>

#include "lib/model/attention/replica_groups.hpp"
#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/prediction_difference.hpp"
#include "tests/support/replica.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using parallel::AttentionExchange;
using Results = std::map<int64_t, batch::Finished>;

/// A number rounded to bf16 is off by 2⁻⁸ of itself at most, in the mean square by 0.0015. In a
/// layer these travel at most: q, k, v and attention's output; the rows of two gathers, the parts of
/// two sums, and the sums. Rows of experts and their sums take the place of others. Once there are
/// parts and sums of the embedding. Norms and softmax magnify an error by up to 2.8
/// (test_production_types.cpp).
double tolerance(int64_t layers) {
  return 2.8 * 0.0015 * std::sqrt(static_cast<double>(10 * layers + 2));
}

class Wires : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<Request> requests() {
    std::vector<Request> requests;
    int64_t row = 0;
    for (const int64_t length : {1, 7, 37, 150})
      requests.push_back(
          greedy_request(row++, random_tokens(length, 90, static_cast<uint64_t>(length)), 3));
    const int64_t lengths[] = {40, 3, 9};
    requests.push_back(greedy_turns(io::Followup::chain, row, lengths, 90, 5, 3));
    for (auto& turn : requests.back().turns)  // else another token would change what follows it
      if (&turn != &requests.back().turns.back()) turn.max_new_tokens = 0;
    return requests;
  }
  ReplicaSettings settings() const {
    ReplicaSettings settings;
    settings.logprobs = settings.prompt_logprobs = -1;
    return settings;
  }
  bool only_windows() const {
    return std::ranges::all_of(config_.windows(),
                               [](kernels::Window window) { return static_cast<bool>(window); });
  }
  void expect_near_one_rank(ReplicaSettings settings) {
    if (wanted_.empty()) wanted_ = run_alone(*world_, model_, requests(), this->settings());
    settings.logprobs = settings.prompt_logprobs = -1;
    settings.wire = DType::bf16;
    const double off = prediction_difference(run_requests(*world_, model_, requests(), settings),
                                             wanted_, config_.vocab, config_.experts ? 0.05 : 0);
    EXPECT_LE(off, tolerance(config_.layers));
    EXPECT_GT(off, 1e-5) << "nothing was rounded";
  }

  std::unique_ptr<comm::Communicator> world_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  std::filesystem::path model_ = golden(GetParam());
  model::ModelConfig config_ = model::read_config(model_);
  Results wanted_;
};

INSTANTIATE_TEST_SUITE_P(Families, Wires,
                         testing::Values("llama-gqa-fp32", "llama-mha-tied", "olmo2-postnorm",
                                         "gemma3-windows", "mixtral-window16"),
                         name_of_model);

TEST_P(Wires, OfBf16PredictInEveryModeWhatOneRankPredicts) {
  const int ranks = world_->size();
  const auto modes =
      cases_of(GetParam(), ranks, parallel::legal_modes(ranks, resources::shape_of(config_)));
  if (modes.empty()) GTEST_SKIP() << "other families have these modes";
  int64_t number = 0;
  for (const parallel::ModePair& pair : modes) {
    SCOPED_TRACE(fmt::format("{}, {} + {}", to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    ReplicaSettings of_mode = settings();
    set_modes(of_mode, pair);
    of_mode.ring = AttentionExchange::pass_q;  // keys travel in the cache's type, which is fp32
    if (number++ % 2 == 1) of_mode.max_batch_tokens = 23;
    expect_near_one_rank(of_mode);
  }
}

TEST_P(Wires, OfBf16PredictInElasticTeamsWhatOneRankPredicts) {
  if (!takes_every_mode(GetParam())) GTEST_SKIP() << "other families have teams";
  if (only_windows()) GTEST_SKIP() << "keys that a window reaches travel, and no queries";
  ReplicaSettings elastic = settings();
  elastic.elastic = true;
  elastic.max_batch_tokens = 32;
  elastic.kv_tokens = 110;  // so that some requests need several instances
  expect_near_one_rank(elastic);
}

TEST_P(Wires, OfBf16PredictByLevelsWhatOneRankPredicts) {
  if (!takes_every_mode(GetParam())) GTEST_SKIP() << "other families have levels";
  if (only_windows()) GTEST_SKIP() << "layers with a window have no levels";
  ReplicaSettings by_levels = settings();
  by_levels.levels_from = 24;
  by_levels.sparse = {{parallel::Geometry::disjoint, 0}, {}, {}};
  expect_near_one_rank(by_levels);
}

TEST(WiresOfRanks, AreTheSameOrRefusedByName) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const DType own = world->rank() == 1 ? DType::bf16 : DType::fp32;
  try {
    attention::make_replica_groups(*world, 1, 1, {}, 1, own);
    FAIL() << "ranks with different wires make a replica";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "model.wire: activations travel in bf16 on rank 1 of a replica and in fp32 on its "
                 "rank 0; name one type in the job");
  }
}

}  // namespace
}  // namespace pecia::test
