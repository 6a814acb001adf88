// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/settle/measure/rounding.hpp"

namespace pecia::measure {
namespace {

TEST(Rounding, IsTheRootOfWhatIsLostOverWhatWasThere) {
  const auto comm = comm::make_null_communicator();
  std::array<model::SquareSums, model::num_matrix_kinds> sums{};
  sums[0] = {4, 10000};  // q
  sums[6] = {5, 2500};   // down
  const WeightRounding rounding = gather_rounding(sums, *comm);
  EXPECT_DOUBLE_EQ(rounding.of_matrix[0], 0.02);
  EXPECT_EQ(rounding.of_matrix[1], 0);
  EXPECT_DOUBLE_EQ(rounding.of_matrix[6], std::sqrt(0.002));
  EXPECT_DOUBLE_EQ(rounding.total, std::sqrt(9.0 / 12500));
  EXPECT_EQ(to_text(rounding), "2.68 %: q 2.00 %, down 4.47 %");
  const auto json = to_json(rounding);
  EXPECT_EQ(json.size(), 3u);
  EXPECT_EQ(json.at("q"), 0.02);
  EXPECT_EQ(json.at("total"), rounding.total);
}

}  // namespace
}  // namespace pecia::measure
