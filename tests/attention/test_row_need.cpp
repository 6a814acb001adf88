// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lib/model/attention/row_need.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TensorView list(const std::vector<int32_t>& rows) {
  return {rows.data(), DType::int32, {std::ssize(rows)}};
}

TensorView view(std::vector<float>& data, int64_t width) {
  return {static_cast<void*>(data.data()), DType::fp32, {std::ssize(data) / width, width}};
}

/// Log-sums of these sums.
std::vector<float> logs(std::vector<float> sums) {
  for (float& sum : sums) sum = std::log(sum);
  return sums;
}

TEST(RowNeed, IsTheLargestShareBeyondWhatIsSeenInAnyCase) {
  test::CpuCompute compute(1);
  RowNeed need(compute);
  need.begin_pass(3);
  EXPECT_FALSE(need.known());
  // Three rows of four heads, in groups of two.
  std::vector<float> here = logs({1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
  std::vector<float> all = logs({2, 1, 1, 4, 2, 2, 2, 2, 12, 3, 3, 3});
  need.attended_here(view(here, 4));
  // Row 2 sees as much again of other tokens in its first group, row 0 twice as much in its second.
  std::vector<float> of_first = logs({3, 0}), of_second = logs({0, 2});
  const std::vector<int32_t> first = {2}, second = {0}, rows = {0, 2, 1};
  const std::vector<kernels::PickedParts> always = {{{}, view(of_first, 2), list(first), 0},
                                                    {{}, view(of_second, 2), list(second), 2}};
  const std::vector<kernels::LearntRows> dropped_last = {{list(rows), 2}};
  need.learn(view(all, 4), always, dropped_last);
  EXPECT_TRUE(need.known());
  const float* const found = need.of_rows().as<const float>();
  EXPECT_FLOAT_EQ(found[0], 0.5f) << "head 0: 1 of 2; head 3: 3 of 4 are always seen";
  EXPECT_EQ(found[1], 0) << "nothing is known of it";
  EXPECT_FLOAT_EQ(found[2], 0.5f);

  // What is known of a dropped row grows; what was always seen belongs to one layer.
  here = logs({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}),
  all = logs({1, 1, 1, 1, 4, 1, 1, 1, 5, 5, 5, 5});
  need.attended_here(view(here, 4));
  const std::vector<int32_t> others = {1, 2, 0};
  const std::vector<kernels::LearntRows> first_dropped = {{list(others), 2}};
  need.learn(view(all, 4), {}, first_dropped);
  EXPECT_FLOAT_EQ(found[0], 0.5f * RowNeed::growth);
  EXPECT_FLOAT_EQ(found[1], 0.75f);
  EXPECT_FLOAT_EQ(found[2], 0.8f);

  need.begin_pass(1);
  EXPECT_FALSE(need.known());
  EXPECT_EQ(need.of_rows().rows(), 1);
  EXPECT_EQ(need.of_rows().as<const float>()[0], 0);
}

TEST(RowNeed, IsNoNumberThatIsNan) {
  test::CpuCompute compute(1);
  RowNeed need(compute);
  need.begin_pass(2);
  std::vector<float> here = {nan, nan, 0, nan}, all = {nan, nan, std::log(2.0f), 0};
  need.attended_here(view(here, 2));
  const std::vector<int32_t> rows = {0, 1};
  const std::vector<kernels::LearntRows> both = {{list(rows), 2}};
  need.learn(view(all, 2), {}, both);
  EXPECT_EQ(need.of_rows().as<const float>()[0], 0);
  EXPECT_FLOAT_EQ(need.of_rows().as<const float>()[1], 0.5f);
}

TEST(RowNeed, TakesAPassWithoutRows) {
  test::CpuCompute compute(1);
  RowNeed need(compute);
  need.begin_pass(0);
  std::vector<float> none;
  need.attended_here({static_cast<void*>(none.data()), DType::fp32, {0, 2}});
  need.learn({static_cast<void*>(none.data()), DType::fp32, {0, 2}}, {}, {});
  EXPECT_TRUE(need.known()) << "all ranks know, also one without rows";
}

}  // namespace
}  // namespace pecia::attention
