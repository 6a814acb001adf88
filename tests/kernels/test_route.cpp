// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Routing;

class Route : public testing::TestWithParam<std::string> {
 protected:
  struct Choice {
    std::vector<int32_t> chosen;
    std::vector<float> weights;
  };

  static Choice choose(Device& device, Tensor& logits, int64_t rows, int64_t k, Routing routing) {
    Choice choice{std::vector<int32_t>(rows * k, -1), std::vector<float>(rows * k, -1.0f)};
    device.backend->route({logits.view(), TensorView(choice.chosen.data(), DType::int32, {rows, k}),
                           TensorView(choice.weights.data(), DType::fp32, {rows, k}), routing},
                          device.stream);
    return choice;
  }

  static Choice choose(Device& device, Tensor& logits, int64_t k, Tensor* bias,
                       const kernels::SigmoidRouting& sigmoid) {
    const int64_t rows = logits.view().rows();
    Choice choice{std::vector<int32_t>(rows * k, -1), std::vector<float>(rows * k, -1.0f)};
    device.backend->route(
        {logits.view(), TensorView(choice.chosen.data(), DType::int32, {rows, k}),
         TensorView(choice.weights.data(), DType::fp32, {rows, k}), Routing::sigmoid,
         bias == nullptr ? TensorView() : bias->view(), sigmoid},
        device.stream);
    return choice;
  }

  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Route, testing::ValuesIn(every_device()), name_of_device);

TEST_P(Route, TakesTheLargestLogitsAndTheirSharesOfAllOrOfEachOther) {
  const float ln2 = std::log(2.0f), ln4 = std::log(4.0f);
  Tensor logits({2, 4}, DType::fp32, {0, ln4, ln2, 0, -300, -300 + ln2, -301, -300 + ln4}, 2);
  const Choice of_all = choose(device_, logits, 2, 2, Routing::of_all);
  EXPECT_EQ(of_all.chosen, (std::vector<int32_t>{1, 2, 3, 1}));
  const double rest = 1 + std::exp(-1.0);
  EXPECT_TRUE(all_close(of_all.weights,
                        std::vector<float>{0.5f, 0.25f, static_cast<float>(4 / (6 + rest)),
                                           static_cast<float>(2 / (6 + rest))},
                        0, 1e-6));
  const Choice of_chosen = choose(device_, logits, 2, 2, Routing::of_chosen);
  EXPECT_EQ(of_chosen.chosen, of_all.chosen);
  EXPECT_TRUE(all_close(of_chosen.weights,
                        std::vector<float>{2 / 3.0f, 1 / 3.0f, 2 / 3.0f, 1 / 3.0f}, 0, 1e-6));
}

TEST_P(Route, MultipliesWeightsByTheScalesOfTheirExperts) {
  Tensor logits({2, 3}, DType::fp32, {0, 0, -40, 0, -40, 0}),
      scales({1, 3}, DType::fp32, {2, 3, 5});
  Choice found{std::vector<int32_t>(4, -1), std::vector<float>(4, -1.0f)};
  const auto route = [&](const TensorView& by) {
    device_.backend->route({.logits = logits.view(),
                            .chosen = {found.chosen.data(), DType::int32, {2, 2}},
                            .weights = {found.weights.data(), DType::fp32, {2, 2}},
                            .routing = Routing::of_chosen,
                            .scales = by},
                           device_.stream);
  };
  const TensorView by = scales.view().reshape({3});
  route(by);
  EXPECT_EQ(found.chosen, (std::vector<int32_t>{0, 1, 0, 2}));
  EXPECT_TRUE(all_close(found.weights, std::vector<float>{1, 1.5f, 1, 2.5f}, 0, 1e-6));
  EXPECT_THROW(route(scales.view().reshape({3}).slice_rows(0, 2)), InvalidArgument);
}

TEST_P(Route, TakesTheFirstOfEqualLogits) {
  Tensor logits({3, 5}, DType::fp32, {1, 1, 1, 1, 1, 0, 2, 1, 2, 1, 3, 0, 3, 0, 3});
  EXPECT_EQ(choose(device_, logits, 3, 3, Routing::of_all).chosen,
            (std::vector<int32_t>{0, 1, 2, 1, 3, 2, 0, 2, 4}));
}

TEST_P(Route, AgreesWithTheReference) {
  Device oracle = make_device("reference");
  for (const int64_t experts : {1, 2, 8, 33, 128})
    for (const int64_t k : {1, 2, 8})
      for (const int64_t rows : {0, 1, 77}) {
        if (k > experts) continue;
        Tensor logits = Tensor::random({rows, experts}, DType::fp32, 5, 3);
        for (const Routing routing : {Routing::of_all, Routing::of_chosen}) {
          const Choice found = choose(device_, logits, rows, k, routing);
          const Choice expected = choose(oracle, logits, rows, k, routing);
          EXPECT_EQ(found.chosen, expected.chosen) << experts << " experts, " << k;
          EXPECT_TRUE(all_close(found.weights, expected.weights, 0, 1e-6));
        }
      }
}

TEST_P(Route, BreaksOnlyTheRowsThatHoldNaNOrInfinity) {
  const float nan = std::nanf("");
  Tensor logits({4, 3}, DType::fp32, {1, nan, 2, 0, 1, 2, infinity, 0, 1, nan, nan, nan});
  const Choice found = choose(device_, logits, 4, 2, Routing::of_chosen);
  for (const int row : {0, 2, 3}) {
    EXPECT_TRUE(std::isnan(found.weights[2 * row]) && std::isnan(found.weights[2 * row + 1]));
    const std::set<int32_t> chosen(&found.chosen[2 * row], &found.chosen[2 * row] + 2);
    EXPECT_EQ(chosen.size(), 2u) << "row " << row;
    EXPECT_TRUE(*chosen.begin() >= 0 && *chosen.rbegin() < 3) << "row " << row;
  }
  EXPECT_EQ(found.chosen[2], 2);
  EXPECT_NEAR(found.weights[2], 1 / (1 + std::exp(-1.0)), 1e-6);
}

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}

TEST_P(Route, ChoosesByScoreAndBiasAndWeighsByScoreAlone) {
  Tensor logits({1, 4}, DType::fp32, {0, 2, 1, -3});
  Tensor bias({4}, DType::fp32, {0, -0.5f, 0, 0.9f});
  // c = 0.5, 0.381, 0.731, 0.947
  const Choice normed = choose(device_, logits, 2, &bias, {.scale = 2.5f});
  EXPECT_EQ(normed.chosen, (std::vector<int32_t>{3, 2}));
  const float sum = sigmoid(-3) + sigmoid(1);
  EXPECT_TRUE(all_close(normed.weights,
                        std::vector<float>{2.5f * sigmoid(-3) / sum, 2.5f * sigmoid(1) / sum}, 0,
                        1e-6));
  const Choice raw = choose(device_, logits, 2, nullptr, {.normed = false});
  EXPECT_EQ(raw.chosen, (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(all_close(raw.weights, std::vector<float>{sigmoid(2), sigmoid(1)}, 0, 1e-6));
}

TEST_P(Route, ChoosesByLogitsWhereScoresAreRoundedToOne) {
  Tensor logits({1, 4}, DType::fp32, {40, -1, 41, 42});
  const kernels::SigmoidRouting by_logits{.normed = false, .by_logits = true};
  EXPECT_EQ(choose(device_, logits, 2, nullptr, {.normed = false}).chosen,
            (std::vector<int32_t>{0, 2}));
  const Choice found = choose(device_, logits, 4, nullptr, by_logits);
  EXPECT_EQ(found.chosen, (std::vector<int32_t>{3, 2, 0, 1}));
  EXPECT_TRUE(all_close(found.weights, std::vector<float>{1, 1, 1, sigmoid(-1)}, 0, 1e-6));
  Tensor bias = Tensor::filled({4}, 0);
  EXPECT_THROW(choose(device_, logits, 2, &bias, by_logits), InvalidArgument);
}

TEST_P(Route, TakesExpertsOfTheGroupsWhoseTwoBestHaveTheLargestSums) {
  // The best expert is alone in its group, and expert 7 is the worst of the kept ones.
  Tensor logits({1, 8}, DType::fp32, {4, -4, 1, 1.5f, 0, 0, 2, -1});
  EXPECT_EQ(choose(device_, logits, 4, nullptr, {.groups = 4, .kept_groups = 2}).chosen,
            (std::vector<int32_t>{6, 3, 2, 7}));
  // Of equal groups the first, and of equal experts the first.
  Tensor equal({1, 6}, DType::fp32, {1, 1, 1, 1, 1, 1});
  EXPECT_EQ(choose(device_, equal, 3, nullptr, {.groups = 3, .kept_groups = 2}).chosen,
            (std::vector<int32_t>{0, 1, 2}));
}

TEST_P(Route, BySigmoidsAgreesWithTheReference) {
  Device oracle = make_device("reference");
  for (const int64_t experts : {8, 64, 256})
    for (const int groups : {1, 2, 4})
      for (const int64_t k : {1, 4})
        for (const bool has_bias : {false, true}) {
          Tensor logits = Tensor::random({77, experts}, DType::fp32, 5, 3);
          Tensor bias = Tensor::random({experts}, DType::fp32, 6);
          const kernels::SigmoidRouting sigmoid{groups, std::max(1, groups / 2), k > 1, 1.5f};
          Tensor* const own = has_bias ? &bias : nullptr;
          const Choice found = choose(device_, logits, k, own, sigmoid);
          const Choice expected = choose(oracle, logits, k, own, sigmoid);
          EXPECT_EQ(found.chosen, expected.chosen) << experts << " experts, " << groups;
          EXPECT_TRUE(all_close(found.weights, expected.weights, 0, 1e-6));
        }
}

TEST_P(Route, BySigmoidsBreaksOnlyTheRowsThatHoldNaNOrInfinity) {
  const float nan = std::nanf("");
  Tensor logits({4, 4}, DType::fp32,
                {1, nan, 2, 0, 0, 1, 2, -infinity, infinity, 0, 1, 0, nan, nan, nan, nan});
  const Choice found = choose(device_, logits, 2, nullptr, {.groups = 2});
  for (const int row : {0, 2, 3}) {
    EXPECT_TRUE(std::isnan(found.weights[2 * row]) && std::isnan(found.weights[2 * row + 1]));
    const std::set<int32_t> chosen(&found.chosen[2 * row], &found.chosen[2 * row] + 2);
    EXPECT_EQ(chosen.size(), 2u) << "row " << row;
    EXPECT_TRUE(*chosen.begin() >= 0 && *chosen.rbegin() < 4) << "row " << row;
  }
  EXPECT_NEAR(found.weights[2] + found.weights[3], 1, 1e-6);
}

TEST_P(Route, RefusesGroupsThatDoNotFit) {
  Tensor logits = Tensor::filled({1, 6}, 0);
  for (const kernels::SigmoidRouting& sigmoid :
       {kernels::SigmoidRouting{4, 1}, kernels::SigmoidRouting{6, 3}, kernels::SigmoidRouting{3, 1},
        kernels::SigmoidRouting{2, 3}})
    EXPECT_THROW(choose(device_, logits, 3, nullptr, sigmoid), InvalidArgument);
}

TEST_P(Route, RefusesMoreExpertsThanThereAre) {
  Tensor logits = Tensor::filled({1, 2}, 0);
  EXPECT_THROW(choose(device_, logits, 1, 3, Routing::of_all), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
