// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "lib/model/linear_weight.hpp"

namespace pecia::model {
namespace {

LinearWeight of_one(const TensorView& weight) {
  LinearWeight linear;
  linear.parts.push_back({weight, TensorView()});
  return linear;
}

class Joined : public testing::Test {
 protected:
  std::array<float, 40> memory_{};
  TensorView first_{memory_.data(), DType::fp32, {3, 4}};        // elements 0 … 11
  TensorView second_{memory_.data() + 12, DType::fp32, {5, 4}};  // 12 … 31
};

TEST_F(Joined, AreTheRowsOfBothWhereOneBeginsAsTheOtherEnds) {
  const auto both = joined(of_one(first_), of_one(second_));
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->out(), 8);
  EXPECT_EQ(both->in(), 4);
  EXPECT_EQ(both->parts.front().weight.data(), memory_.data());
}

TEST_F(Joined, AreNotOneWhereSomethingLiesBetweenOrTheyAreNotAlike) {
  EXPECT_FALSE(joined(of_one(second_), of_one(first_))) << "the other order";
  EXPECT_FALSE(joined(of_one(first_), of_one(second_.slice_rows(1, 4)))) << "a gap";
  EXPECT_FALSE(joined(of_one(first_.slice_columns(0, 2)), of_one(second_))) << "not dense";
  EXPECT_FALSE(joined(of_one(first_), of_one(TensorView(second_.data(), DType::fp32, {4, 5}))))
      << "another depth";
  EXPECT_FALSE(joined(of_one(first_), of_one(TensorView(second_.data(), DType::bf16, {5, 4}))))
      << "another type";
}

TEST_F(Joined, AreNotOneWithBiasesScalesOrSeveralParts) {
  LinearWeight with_bias = of_one(first_), with_scales = of_one(first_), of_two = of_one(first_);
  with_bias.parts.front().bias = TensorView(memory_.data() + 32, DType::fp32, {3});
  with_scales.parts.front().scales = TensorView(memory_.data() + 32, DType::fp32, {3});
  of_two.parts.push_back(of_two.parts.front());
  for (const LinearWeight& other : {with_bias, with_scales, of_two})
    EXPECT_FALSE(joined(other, of_one(second_)));
}

}  // namespace
}  // namespace pecia::model
