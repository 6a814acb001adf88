// SPDX-License-Identifier: Apache-2.0
/// The forward pass on one rank: which rows give outputs, and where rows break.

#include <gtest/gtest.h>

#include <limits>

#include "lib/model/layers/model.hpp"
#include "lib/model/weights/weights.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::model {
namespace {

constexpr int64_t count = 5;
constexpr float infinity = std::numeric_limits<float>::infinity();

/// One sequence of a small checkpoint, whose weights a test may damage before the pass.
class ModelTest : public testing::Test {
 protected:
  ModelTest()
      : config_(read_config(test::golden("llama-gqa-fp32"))),
        stored_(config_, io::Checkpoint(test::golden("llama-gqa-fp32")), DType::fp32),
        weights_(stored_) {}

  void forward(std::vector<int64_t> wanted = {0, 1, 2, 3, 4}) {
    attention_.ledger().add(0, std::vector<int64_t>{count}, std::nullopt);
    attention_.begin_pass({{parallel::team_of_all(1), {{0, 0, count}}}}, 0);
    model_.forward({{7, 3, 9, 3, 8}, std::vector<int64_t>(count, count), std::move(wanted)},
                   attention_);
  }

  /// Lets a copy take the weight's place whose element at `row` and column 0 is infinite.
  void damage(TensorView& weight, int64_t row) {
    const auto* values = weight.as<float>();
    std::vector<float>& copy = copies_.emplace_back(values, values + weight.elements());
    copy[row * weight.size(1)] = infinity;
    weight = TensorView(copy.data(), DType::fp32, {weight.rows(), weight.size(1)});
  }
  static TensorView& only_part(LinearWeight& weight) { return weight.parts.at(0).weight; }
  std::vector<std::string> broken() {
    std::vector<std::string> names;
    for (const Model::BrokenPlace& place : model_.broken_at(std::vector<int64_t>{0, 1, 2, 3, 4})) {
      EXPECT_EQ(place.order == 0, place.name.empty());
      names.push_back(place.name);
    }
    return names;
  }

  ModelConfig config_;
  Weights stored_;
  WeightViews weights_;  ///< what the model reads
  std::vector<std::vector<float>> copies_;
  std::unique_ptr<comm::Communicator> alone_ = comm::make_null_communicator();
  attention::ReplicaGroups groups_ = attention::make_replica_groups(*alone_, 1, 1);
  test::CpuCompute compute_;
  attention::KvCache cache_{{config_.layers, config_.num_kv_heads, config_.head_dim, DType::fp32},
                            count,
                            *compute_.device};
  attention::Attention attention_{
      groups_, {config_.num_heads, config_.num_kv_heads}, config_.windows(), compute_, cache_};
  Model model_{config_, weights_, groups_, compute_};
};

TEST_F(ModelTest, GivesTheOutputsThatAreAskedForInTheirOrder) {
  forward();
  const Model::Outputs some = model_.outputs(std::vector<int64_t>{4, 0, 2});
  EXPECT_EQ(some.which, (std::vector<int64_t>{0, 1, 2}));
  std::vector<float> hidden(some.hidden.as<float>(),
                            some.hidden.as<float>() + some.hidden.elements());
  std::vector<float> logits(3 * config_.vocab);
  model_.logits(some.hidden, TensorView(logits.data(), DType::fp32, {3, config_.vocab}));
  const int64_t rows[] = {4, 0, 2};
  for (int64_t i = 0; i < 3; ++i) {
    const Model::Outputs one = model_.outputs(std::vector<int64_t>{rows[i]});
    const float* found = one.hidden.as<float>();
    EXPECT_EQ(std::vector<float>(found, found + config_.hidden),
              std::vector<float>(hidden.begin() + i * config_.hidden,
                                 hidden.begin() + (i + 1) * config_.hidden));
    EXPECT_GT(std::abs(logits[i * config_.vocab]), 0);
  }
  EXPECT_EQ(model_.vocab_range(), (parallel::RowRange{0, config_.vocab}));
  EXPECT_EQ(broken(), std::vector<std::string>(count));
}

TEST_F(ModelTest, GivesTheSameOutputsWhereOtherRowsEndAfterTheLastMixer) {
  const std::vector<int64_t> some{1, 3};
  const auto outputs_of = [&](std::vector<int64_t> wanted) {
    forward(std::move(wanted));
    const TensorView hidden = model_.outputs(some).hidden;
    attention_.ledger().remove(0);
    return std::vector<float>(hidden.as<float>(), hidden.as<float>() + hidden.elements());
  };
  const std::vector<float> of_all = outputs_of({0, 1, 2, 3, 4}), of_some = outputs_of(some);
  EXPECT_TRUE(test::all_close(of_some, of_all, 1e-6, 1e-6));
  EXPECT_EQ(model_.broken_at(some).size(), 2u);
  EXPECT_THROW(model_.outputs(std::vector<int64_t>{2}), InvalidArgument);
  EXPECT_THROW(model_.broken_at(std::vector<int64_t>{4}), InvalidArgument);
}

TEST_F(ModelTest, MayHaveNoRowsAfterTheLastMixer) {
  forward({});
  EXPECT_EQ(model_.outputs({}).hidden.rows(), 0);
}

TEST_F(ModelTest, NamesTheEmbeddingWhereItIsBroken) {
  damage(weights_.embedding, 9);
  forward();
  // Later rows see the broken key, and earlier ones may meet it in the same tile.
  const std::vector<std::string> places = broken();
  EXPECT_EQ(places[2], "the embedding");
  EXPECT_EQ(places[3], "attention of layer 0");
  EXPECT_EQ(places[4], "attention of layer 0");
}

TEST_F(ModelTest, NamesTheMixerWhereItIsBroken) {
  damage(only_part(weights_.layers[1].attention.o), 3);
  forward();
  EXPECT_EQ(broken(), std::vector<std::string>(count, "attention of layer 1"));
}

TEST_F(ModelTest, NamesTheFeedForwardWhereItIsBroken) {
  damage(only_part(weights_.layers[0].ffn.down), 3);
  forward();
  EXPECT_EQ(broken(), std::vector<std::string>(count, "the FFN of layer 0"));
}

TEST_F(ModelTest, NamesWhereItIsBrokenWhereOtherRowsEnd) {
  damage(only_part(weights_.layers[0].ffn.down), 3);
  damage(only_part(weights_.layers[1].ffn.down), 3);
  forward({2, 4});
  for (const Model::BrokenPlace& place : model_.broken_at(std::vector<int64_t>{4, 2}))
    EXPECT_EQ(place.name, "the FFN of layer 0");
}

TEST_F(ModelTest, RefusesRowsThatThePassDoesNotHave) {
  attention_.ledger().add(0, std::vector<int64_t>{count}, std::nullopt);
  attention_.begin_pass({{parallel::team_of_all(1), {{0, 0, count}}}}, 0);
  EXPECT_THROW(model_.forward({{7, 3}, {2, 2}, {}}, attention_), InvalidArgument);
}

}  // namespace
}  // namespace pecia::model
