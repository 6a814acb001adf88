// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "lib/model/weights/linear_weight.hpp"

namespace pecia::model {
namespace {

LinearWeight of_one(const TensorView& weight) {
  LinearWeight linear;
  linear.parts.push_back({weight, TensorView()});
  return linear;
}

std::optional<LinearWeight> both_of(const LinearWeight& first, const LinearWeight& second) {
  return joined({&first, &second});
}

TEST(LinearWeight, ColumnsOfFp8InBlocksTakeTheScalesOfTheirBlocks) {
  std::vector<uint8_t> codes(2 * 300);
  std::vector<float> scales = {1, 2, 3, 4, 5, 6};
  const LinearWeight::Part part{TensorView(codes.data(), DType::fp8, {2, 300}),
                                {},
                                TensorView(scales.data(), DType::fp32, {2, 3})};
  const LinearWeight::Part last = part.columns(128, 172);
  EXPECT_EQ(last.weight.data(), codes.data() + 128);
  EXPECT_EQ(last.scales.size(1), 2);
  EXPECT_EQ(static_cast<const float*>(last.scales.row(1))[0], 5);
  EXPECT_EQ(part.columns(0, 128).scales.size(1), 1);
  EXPECT_THROW(part.columns(64, 128), InvalidArgument);
  EXPECT_THROW(part.columns(0, 64), InvalidArgument);
}

TEST(LinearWeight, ColumnsOfNvfp4TakeTheScalesOfTheirBlocksAndTheFactor) {
  std::vector<uint8_t> codes(2 * 32), scales = {1, 2, 3, 4, 5, 6, 7, 8};
  const LinearWeight::Part part{TensorView(codes.data(), DType::nvfp4, {2, 4}),
                                {},
                                TensorView(scales.data(), DType::fp8, {2, 4}),
                                0.5f};
  EXPECT_EQ(part.in(), 64);
  const LinearWeight::Part inner = part.columns(16, 32);
  EXPECT_EQ(inner.weight.data(), codes.data() + 8);
  EXPECT_EQ(inner.in(), 32);
  EXPECT_EQ(*static_cast<const uint8_t*>(inner.scales.row(1)), 6);
  EXPECT_EQ(inner.factor, 0.5f);
  EXPECT_THROW(part.columns(8, 16), InvalidArgument);
  const LinearWeight last = slice_rows(LinearWeight{{part}}, 1, 1);
  EXPECT_EQ(last.parts.front().factor, 0.5f);
}

class Joined : public testing::Test {
 protected:
  std::array<float, 40> memory_{};
  TensorView first_{memory_.data(), DType::fp32, {3, 4}};        // elements 0 … 11
  TensorView second_{memory_.data() + 12, DType::fp32, {5, 4}};  // 12 … 31
};

TEST_F(Joined, AreTheRowsOfBothWhereOneBeginsAsTheOtherEnds) {
  const auto both = both_of(of_one(first_), of_one(second_));
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->out(), 8);
  EXPECT_EQ(both->in(), 4);
  EXPECT_EQ(both->parts.front().weight.data(), memory_.data());
}

TEST_F(Joined, AreNotOneWhereSomethingLiesBetweenOrTheyAreNotAlike) {
  EXPECT_FALSE(both_of(of_one(second_), of_one(first_))) << "the other order";
  EXPECT_FALSE(both_of(of_one(first_), of_one(second_.slice_rows(1, 4)))) << "a gap";
  EXPECT_FALSE(both_of(of_one(first_.slice_columns(0, 2)), of_one(second_))) << "not dense";
  EXPECT_FALSE(both_of(of_one(first_), of_one(TensorView(second_.data(), DType::fp32, {4, 5}))))
      << "another depth";
  EXPECT_FALSE(both_of(of_one(first_), of_one(TensorView(second_.data(), DType::bf16, {5, 4}))))
      << "another type";
}

TEST_F(Joined, TakeBiasesAndScalesThatFollowEachOther) {
  LinearWeight first = of_one(first_), second = of_one(second_);
  const auto numbers = [&](int64_t begin, int64_t count) {
    return TensorView(memory_.data() + begin, DType::fp32, {count});
  };
  first.parts.front().bias = numbers(32, 3), second.parts.front().bias = numbers(35, 5);
  first.parts.front().scales = numbers(12, 3), second.parts.front().scales = numbers(15, 5);
  const auto both = both_of(first, second);
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->parts.front().bias.rows(), 8);
  EXPECT_EQ(both->parts.front().bias.data(), memory_.data() + 32);
  EXPECT_EQ(both->parts.front().scales.rows(), 8);

  LinearWeight apart = second;
  apart.parts.front().bias = numbers(34, 5);
  EXPECT_FALSE(both_of(first, apart));
  apart = second, apart.parts.front().scales = {};
  EXPECT_FALSE(both_of(first, apart));
  apart = second, apart.parts.front().factor = 2;
  EXPECT_FALSE(both_of(first, apart));
}

TEST_F(Joined, MayBeThree) {
  const LinearWeight a = of_one(first_.slice_rows(0, 1)), b = of_one(first_.slice_rows(1, 2)),
                     c = of_one(second_);
  const auto all = joined({&a, &b, &c});
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->out(), 8);
  EXPECT_FALSE(joined({&a, &c, &b}));
}

TEST_F(Joined, AreNotOneOfSeveralParts) {
  LinearWeight of_two = of_one(first_);
  of_two.parts.push_back(of_two.parts.front());
  EXPECT_FALSE(both_of(of_two, of_one(second_)));
  EXPECT_FALSE(both_of(of_one(first_), of_two));
}

}  // namespace
}  // namespace pecia::model
