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

  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Route, testing::ValuesIn(every_device()));

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

TEST_P(Route, RefusesMoreExpertsThanThereAre) {
  Tensor logits = Tensor::filled({1, 2}, 0);
  EXPECT_THROW(choose(device_, logits, 1, 3, Routing::of_all), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
