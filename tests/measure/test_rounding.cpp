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
  constexpr auto k = static_cast<size_t>(model::MatrixKind::k);
  constexpr auto q = static_cast<size_t>(model::MatrixKind::q);
  constexpr auto down = static_cast<size_t>(model::MatrixKind::down);
  sums[q] = {4, 10000};
  sums[down] = {5, 2500};
  const WeightRounding rounding = gather_rounding(sums, *comm);
  EXPECT_DOUBLE_EQ(rounding.of_matrix[q], 0.02);
  EXPECT_EQ(rounding.of_matrix[k], 0);
  EXPECT_DOUBLE_EQ(rounding.of_matrix[down], std::sqrt(0.002));
  EXPECT_DOUBLE_EQ(rounding.total, std::sqrt(9.0 / 12500));
  EXPECT_EQ(to_text(rounding), "2.68 %: q 2.00 %, down 4.47 %");
  const auto json = to_json(rounding);
  EXPECT_EQ(json.size(), 3u);
  EXPECT_EQ(json.at("q"), 0.02);
  EXPECT_EQ(json.at("total"), rounding.total);
}

}  // namespace
}  // namespace pecia::measure
